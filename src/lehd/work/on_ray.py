"""Units on a Ray cluster (`pip install lehd[ray]`), which may be many machines.

Ray starts workers, finds room for units and tells which were lost with a worker or a machine; what is done about these,
and in which order units are given, is the common loop's. lehd must be installed on every machine, in the same version.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from lehd import __version__
from lehd.errors import LehdError
from lehd.work.units import ONE_CORE, Failure, Job, Needs, Unit, attempt, use_cores

AUTO = "auto"
LOOK = 1.0  # seconds between two looks at the size of the cluster
WAITING = 2  # units given for each that the cluster can work on: none of its workers waits for the next
CONNECT = 10.0  # seconds for a cluster to answer


@dataclass(frozen=True)
class Ray:
    """Engine: a cluster by its address, or the one that runs on this machine."""

    address: str = AUTO

    def start(self, job: Job, needs: Needs = ONE_CORE, patience: float = float("inf")) -> Tasks:
        connect(self.address)
        return Tasks(job, needs, patience)


class Tasks:
    """A crew: the units that the cluster has, each a task of Ray."""

    def __init__(self, job: Job, needs: Needs, patience: float):
        ray = _ray()
        self.ray, self.needs, self.patience = ray, needs, patience
        self.job = ray.put(job)
        # Ray would try again by itself; how often is the common loop's to say.
        options = {"num_cpus": needs.cores, "num_gpus": needs.gpus, "max_retries": 0}
        self.work = ray.remote(**options)(_work)
        self.given: dict[Any, Unit] = {}  # by reference
        self.next_look = 0.0
        if not self._fitting():
            wanted = f"{needs.cores:g} cores" + (f" and {needs.gpus:g} GPUs" if needs.gpus else "")
            raise LehdError(f"no machine of the Ray cluster has {wanted} for a unit")

    def room(self) -> bool:
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK
            self.most = WAITING * max(1, self._fitting())
        return len(self.given) < self.most

    def _fitting(self) -> int:
        """How many units all machines together take at once."""
        units = 0
        for node in self.ray.nodes():
            if node["Alive"]:
                has = node["Resources"]
                by_cores = int(has.get("CPU", 0) / self.needs.cores)
                units += min(by_cores, int(has.get("GPU", 0) / self.needs.gpus)) if self.needs.gpus else by_cores
        return units

    def give(self, unit: Unit) -> None:
        # In a list the reference stays one: the worker fetches the job when it has not got it yet.
        self.given[self.work.remote(__version__, [self.job], unit.content, self.needs, self.patience)] = unit

    def take(self) -> list[tuple[Unit, Any]]:
        waiting = list(self.given)
        done, _ = self.ray.wait(waiting, num_returns=1, timeout=LOOK)
        if done:
            done, _ = self.ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return [(self.given.pop(reference), self._result(reference)) for reference in done]

    def _result(self, reference: Any) -> Any:
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except errors.WorkerCrashedError:
            late = f", or ended after {self.patience:g} s" if self.patience < float("inf") else ""
            return Failure(f"its process died{late}")
        except errors.RayError as error:
            return Failure(f"{type(error).__name__}: {_first_line(error)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reference in self.given:
            with suppress(Exception):  # the cluster may be gone
                self.ray.cancel(reference, force=True)


_JOBS: dict[Any, Job] = {}  # in a worker: the job it has, by its reference


def _work(version: str, shared: list[Any], content: Any, needs: Needs, patience: float) -> Any:
    """What a worker does with a unit."""
    if version != __version__:
        return Failure(f"lehd {version} here, {__version__} on {platform.node()}: expected the same", fatal=True)
    (reference,) = shared
    if reference not in _JOBS:
        _JOBS.clear()
        use_cores(needs)
        _JOBS[reference] = _ray().get(reference)
    timed = patience < float("inf") and hasattr(signal, "setitimer")
    if timed:  # the operating system ends a process that hangs, even one that hangs in C
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        return attempt(_JOBS[reference], content)
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)


def connect(address: str) -> None:
    """Once in a process."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to Ray's makers
    ray = _ray()
    if ray.is_initialized():
        return
    if address != AUTO and not address.startswith("ray://"):
        _knock(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        # What Ray has to say of lost workers it would print among our results; there is no public way to ask it not to.
        import_module("ray._private.worker")._worker_logs_enabled = False  # type: ignore[attr-defined]
    except Exception as error:  # of many kinds: no cluster, another version of Ray or of Python, no access
        where = "no Ray cluster found from this machine" if address == AUTO else f"{address}: no Ray cluster there"
        raise LehdError(f"{where}; `ray start --head` starts one ({_first_line(error)})") from None


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise LehdError("Ray is not installed: pip install lehd[ray]") from None


def _knock(address: str) -> None:
    """Ray itself takes a minute to find out that nobody answers."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()
    except ValueError:
        raise LehdError(f"cluster {address!r}: expected local, {AUTO} or an address such as 10.0.0.1:6379") from None
    except OSError as error:
        raise LehdError(f"{address}: no Ray cluster answers ({error.strerror or error})") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
