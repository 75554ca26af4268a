"""Services for the tests: one in this process without workers, and a real one as users start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from lehd.service.config import Config, Limits
from lehd.service.server import prepare

PLENTY = Limits(jobs_per_minute=100_000, requests_per_second=10_000, waiting=100_000, waiting_per_client=100_000)


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Generous, since machines may be busy."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Service:
    """A `lehd serve` process of its own."""

    def __init__(self, database: Path, *options: str):
        self.command = [sys.executable, "-m", "lehd.cli", "serve", "--port", "0", "--database", str(database), *options]
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> Service:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(self.command, text=True, stdout=subprocess.PIPE, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.url = re.search(r"http://\S+", line)[0]  # type: ignore[index]
        self.client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        deadline = time.monotonic() + 120
        while self.client.get("/health").json()["status"] != "ok":
            assert time.monotonic() < deadline, "no worker came up"
            time.sleep(0.1)
        return self

    def end(self, how: int = signal.SIGINT) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(20)
            self.client.close()
            assert self.process.stdout is not None
            self.process.stdout.close()
        self.process = None

    def wait_for(self, identity: str, *states: str, seconds: float = 60) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while (record := self.client.get(f"/jobs/{identity}").json())["state"] not in states:
            assert time.monotonic() < deadline, record["state"]
            time.sleep(0.05)
        return record


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    database = tmp_path_factory.mktemp("service") / "jobs.sqlite"
    options = ["--device", "cpu", "--workers", "2", "--jobs-per-minute", "100000", "--requests-per-second", "10000"]
    running = Service(database, *options).start()
    yield running
    running.end()


@contextmanager
def without_workers(database: Path, limits: Limits, **settings: Any) -> Iterator[httpx.Client]:
    """A service in a thread of this process whose jobs stay in the queue."""
    config = Config(database=database, port=0, devices=(), limits=limits, **settings)
    server, listening = prepare(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
        yield client
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Callable[..., httpx.Client]]:
    """Makes services without workers, each with limits and settings of its own."""
    with ExitStack() as stack:
        numbers = count()

        def make(limits: Limits = PLENTY, **settings: Any) -> httpx.Client:
            database = tmp_path / f"jobs-{next(numbers)}.sqlite"
            return stack.enter_context(without_workers(database, limits, **settings))

        yield make


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One service without workers for many tests."""
    with without_workers(tmp_path_factory.mktemp("plain") / "jobs.sqlite", PLENTY) as client:
        yield client
