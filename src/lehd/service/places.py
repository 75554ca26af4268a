"""Where worker processes run: on this machine, or on the machines of a Ray cluster.

Either way the service has a line to each of them, over which both speak as worker.py says. A worker on a cluster is a
task of Ray, which finds it a machine; it calls the service back over TCP.
"""

from __future__ import annotations

import hmac
import multiprocessing
import secrets
import socket
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, Protocol

from lehd.errors import LehdError
from lehd.service import worker
from lehd.service.worker import receive, send

GREETING = 10.0  # seconds for whoever connects to say the password
IDLE, INTERVAL, PROBES = 10, 5, 3  # a machine that has not answered for 10 + 5 * 3 seconds is lost


class Line(Protocol):
    """A worker, seen from the service. When it has ended, `poll` or `receive` raises EOFError or OSError."""

    def poll(self, seconds: float) -> bool:
        """Whether there is something to receive; waits so long for it."""

    def receive(self) -> Any: ...

    def send(self, *message: Any) -> None: ...

    def kill(self) -> None:
        """End the worker."""

    def close(self) -> None:
        """Afterwards, when nobody sends any more."""


class Place(Protocol):
    def start(self, device: str, threads: int) -> Line: ...


class Here:
    """This machine."""

    def start(self, device: str, threads: int) -> Line:
        return Process(device, threads)


class Process:
    def __init__(self, device: str, threads: int):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=worker.main, args=(theirs, device, threads), name="lehd worker", daemon=True
        )
        self.process.start()
        theirs.close()

    def poll(self, seconds: float) -> bool:
        return self.connection.poll(seconds)

    def receive(self) -> Any:
        return receive(self.connection)

    def send(self, *message: Any) -> None:
        send(self.connection, *message)

    def kill(self) -> None:
        self.process.kill()
        self.process.join(timeout=5)

    def close(self) -> None:
        self.connection.close()


class OnRay:
    """The machines of a Ray cluster; this one is among them."""

    def __init__(self, address: str):
        from lehd.work.on_ray import connect

        if address.startswith("ray://"):
            raise LehdError(f"{address}: workers must reach the service; run it on a machine of the cluster")
        connect(address)
        self.ray: Any = import_module("ray")
        self.host = self.ray.util.get_node_ip_address()

    def workers(self, device: str | None, number: int | None) -> tuple[str, int]:
        """What workers compute on, and how many there are: by default the GPUs of the cluster, or else its cores."""
        there = self.ray.cluster_resources()
        device = device or ("cuda" if there.get("GPU") else "cpu")
        if device not in ("cpu", "cuda"):
            raise LehdError(f"device {device}: expected cpu or cuda; the cluster chooses the GPU")
        room = int(there.get("GPU" if device == "cuda" else "CPU", 0))
        if not room:
            raise LehdError(f"no machine of the Ray cluster has a {'GPU' if device == 'cuda' else 'core'} for a worker")
        return device, number or room

    def start(self, device: str, threads: int) -> Line:
        return Remote(self.ray, self.host, device, threads)


class Remote:
    def __init__(self, ray: Any, host: str, device: str, threads: int):
        self.ray = ray
        self.connection: Connection | None = None
        self.door = socket.create_server((host, 0))  # for one guest
        self.password = secrets.token_bytes(32)
        # A process of its own, which ends with the task; trying again is the service's.
        options = {"num_cpus": threads, "num_gpus": int(device == "cuda"), "max_calls": 1, "max_retries": 0}
        work = ray.remote(**options)(lehd_worker)
        self.task = work.remote(self.door.getsockname()[:2], self.password, device, threads)

    def poll(self, seconds: float) -> bool:
        if self.connection is not None:
            return self.connection.poll(seconds)
        self._open(seconds)
        ended, _ = self.ray.wait([self.task], timeout=0)
        if ended:
            try:
                self.ray.get(self.task)
            except self.ray.exceptions.RayError as error:
                raise EOFError(str(error)) from None
            raise EOFError
        return False

    def _open(self, seconds: float) -> None:
        """Let the worker in if it knocks."""
        self.door.settimeout(seconds)
        with suppress(TimeoutError):
            guest, _ = self.door.accept()
            with guest:
                guest.settimeout(GREETING)
                with suppress(OSError):
                    if hmac.compare_digest(guest.recv(len(self.password), socket.MSG_WAITALL), self.password):
                        self.connection = _connection(guest)
                        self.door.close()

    def receive(self) -> Any:
        return receive(self._line())

    def send(self, *message: Any) -> None:
        send(self._line(), *message)

    def _line(self) -> Connection:
        if self.connection is None:
            raise EOFError
        return self.connection

    def kill(self) -> None:
        with suppress(Exception):  # the cluster may be gone
            self.ray.cancel(self.task, force=True)

    def close(self) -> None:
        self.door.close()
        if self.connection is not None:
            self.connection.close()


def lehd_worker(service: tuple[str, int], password: bytes, device: str, threads: int) -> None:
    """What the task on the cluster does."""
    with socket.create_connection(service, GREETING) as line:
        line.sendall(password)
        connection = _connection(line)
    worker.main(connection, device, threads)


def _connection(line: socket.socket) -> Connection:
    """The same as a pipe. One whose other end is lost without a word breaks, too, after a while."""
    line.settimeout(None)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    lost = IDLE + INTERVAL * PROBES
    limits = {"KEEPIDLE": IDLE, "KEEPINTVL": INTERVAL, "KEEPCNT": PROBES, "USER_TIMEOUT": 1000 * lost}
    for name, value in limits.items():
        if hasattr(socket, f"TCP_{name}"):  # not on every system
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"), value)
    return Connection(line.detach())
