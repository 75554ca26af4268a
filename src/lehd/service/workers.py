"""Workers, seen from the service: one thread looks after each, and replaces it when it hangs or dies.

Processes, not threads: a search is mostly Python between small tensor operations, so that two of them in one process
would wait for each other and make every request wait too; and only a process can be ended from outside.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from lehd.service.config import Config
from lehd.service.desk import Desk
from lehd.service.jobs import FAILED, INTERRUPTED, Job
from lehd.service.places import Here, Line, OnRay, Place
from lehd.service.worker import Task
from lehd.work.engines import LOCAL
from lehd.work.units import usable_cores

log = logging.getLogger("lehd.service")

GRACE, GRACE_SHARE = 10.0, 0.2  # seconds, and share of the time limit, that a search may overrun before it is ended
DROPPING = 10.0  # seconds for a search to end when told to
STARTING = 120.0  # seconds for a process to load torch
LEAST_TIME = 0.05  # seconds of search for a job that was paused at its very end
ENOUGH = 3  # starts in a row that may fail before the worker rests between them


class Workers:
    """All of them."""

    def __init__(self, desk: Desk, config: Config):
        place: Place
        if config.cluster == LOCAL:
            place = Here()
            numbers = {device: config.workers if device == "cpu" else 1 for device in config.devices}
            devices = [device for device in config.devices for _ in range(numbers[device])]
            threads = max(1, usable_cores() // max(1, len(devices)))
        else:
            place = OnRay(config.cluster)
            devices, threads = list(config.devices) * config.workers, 1
        self.all = [Worker(desk, place, device, config.batch_on(device), threads) for device in devices]

    def start(self) -> None:
        for each in self.all:
            each.thread.start()

    def ready(self) -> int:
        return sum(each.ready for each in self.all)

    def close(self) -> None:
        """End them; what they were doing is marked as interrupted."""
        for each in self.all:
            each.kill()
        for each in self.all:
            each.thread.join(timeout=5)


class Worker:
    def __init__(self, desk: Desk, place: Place, device: str, batch: int, threads: int):
        self.desk, self.place, self.device, self.batch, self.threads = desk, place, device, batch, threads
        self.line: Line | None = None
        self.ready = False
        self.restarts = -1
        self._sending = threading.Lock()
        self.thread = threading.Thread(target=self._serve, name=f"worker on {device}", daemon=True)

    def _serve(self) -> None:
        failures = 0
        while not self.desk.closing:
            if not self.ready or self._ended():
                failures = 0 if self._start() else failures + 1
                if failures >= ENOUGH:
                    time.sleep(min(30, failures))
                continue
            jobs = self.desk.take(self.batch)
            if jobs:
                try:
                    if not self._solve(jobs):
                        self._start()
                        self._solve(jobs, again=True)
                except Exception:  # whatever it is, the service goes on
                    log.exception("a worker on %s failed", self.device)
                    self.kill()
                    self.desk.fail([job for job in jobs if job.id in self.desk.active], "an error in the service")

    def _ended(self) -> bool:
        """Whether the process has ended while it had nothing to do."""
        try:
            if self.line is not None and self.line.poll(0):
                self.line.receive()
            return self.line is None
        except (EOFError, OSError):
            return True

    def _start(self) -> bool:
        """A fresh process, loaded and ready; False if that fails."""
        self.kill()
        self.restarts += 1
        deadline = time.monotonic() + STARTING
        why = "no answer"
        try:
            self.line = line = self.place.start(self.device, self.threads)
            while time.monotonic() < deadline and not self.desk.closing:
                if line.poll(0.5):
                    self.ready = line.receive()[0] == "ready"
                    return self.ready
        except Exception as error:  # it has ended, or could not begin; on a cluster for reasons of many kinds
            why = str(error) or "it ended"
        if not self.desk.closing:
            log.error("a worker on %s did not start (%s)", self.device, why)
        self.kill()
        return False

    def kill(self) -> None:
        self.ready = False
        if (line := self.line) is not None:
            line.kill()
            with self._sending:
                self.line = None
                line.close()

    def _solve(self, jobs: list[Job], again: bool = False) -> bool:
        """Have a batch solved and pass on what is heard of it; False, once, if the worker ended without a word."""
        pending = {job.id: job for job in jobs}
        limit = max(job.time_limit - job.before for job in jobs)
        deadline = time.monotonic() + limit * (1 + GRACE_SHARE) + GRACE
        for job in jobs:
            job.drop = lambda identity=job.id: self._send("drop", identity)  # type: ignore[misc]
        self._send("solve", [_task(job) for job in jobs])
        for job in jobs:
            if job.wish is not None:  # from before there was a worker to tell
                job.drop()
        dropped_since, heard = None, False
        while pending:
            line = self.line
            try:
                if line is None:
                    raise EOFError
                if line.poll(0.25):
                    self._handle(pending, *line.receive())
                    heard = True
                    continue
            except (EOFError, OSError):
                if not (heard or again or self.desk.closing):
                    return False
                lost = INTERRUPTED if self.desk.closing else FAILED
                why = "the service was shut down" if self.desk.closing else "the worker process ended unexpectedly"
                self.kill()
                self.desk.fail(pending.values(), why, lost)
                return True
            now = time.monotonic()
            dropped = all(job.wish is not None for job in pending.values())
            dropped_since = (dropped_since or now) if dropped else None
            if now > deadline or (dropped_since is not None and now - dropped_since > DROPPING):
                self.kill()
                self.desk.fail(
                    pending.values(), "the search did not end in time and was ended; its best so far is kept"
                )
                return True
        return True

    def _handle(self, pending: dict[str, Job], kind: str, identity: str, *content: Any) -> None:
        job = pending.get(identity)
        if job is None:
            return
        if kind == "incumbent":
            self.desk.report(job, *content)
        elif kind == "progress":
            self.desk.tell(job, *content)
        elif kind == "outcome":
            del pending[identity]
            self.desk.finish(job, *content)
        elif kind == "failed":
            del pending[identity]
            self.desk.fail([job], *content)

    def _send(self, *message: Any) -> None:
        with self._sending:
            try:
                if self.line is not None:
                    self.line.send(*message)
            except (EOFError, OSError):
                pass  # it died, which whoever reads will notice


def _task(job: Job) -> Task:
    found = job.incumbent
    iterations = job.options.iterations
    return Task(
        job.id,
        job.problem,
        time_limit=max(LEAST_TIME, job.time_limit - job.before),
        iterations=None if iterations is None else max(0, iterations - job.iterations),
        seed=job.options.seed or 0,
        start=None if found is None else found.get("tour") or found.get("routes"),
        seconds=job.before,
        iterations_before=job.iterations,
        history=tuple(job.history),
    )
