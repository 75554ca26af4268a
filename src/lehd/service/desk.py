"""The desk where requests and workers meet: it takes jobs in, hands them out, and writes down what becomes of them.

Requests and worker threads call it from different threads. One lock guards the queue and the states of jobs; nothing
slow happens under it. A job is in the store before anybody hears of its state, so that a crash takes nothing back.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

from lehd.errors import LehdError
from lehd.service.config import Limits
from lehd.service.jobs import DONE, FAILED, INTERRUPTED, PAUSED, QUEUED, RESUMABLE, RUNNING, STOPPED, FairQueue, Job
from lehd.service.store import Record, Store

log = logging.getLogger("lehd.service")

CHECKPOINT = 5.0  # seconds between notes of a running job's incumbent


class ConflictError(LehdError):
    """What was asked for does not go with the state of the job."""


class Desk:
    def __init__(self, store: Store, limits: Limits, workers: int = 1):
        self.store, self.limits, self.workers = store, limits, workers
        self.queue = FairQueue(limits)
        self.active: dict[str, Job] = {}  # waiting and running jobs
        self.ended: Counter[str] = Counter()  # since the start, by state
        self.searched = 0.0  # seconds of search since the start
        self.closing = False
        self._recent: deque[float] = deque([5.0], maxlen=50)  # how long the latest jobs took
        self._change = threading.Condition()

    # ---- for requests

    def submit(self, job: Job, request: bytes) -> None:
        self._take_in(job, lambda: self.store.add(job.record(), request))

    def resume(self, record: Record, job: Job) -> None:
        """Let a paused or interrupted job, put together again, go on from where it was."""
        if record["state"] not in RESUMABLE:
            raise ConflictError(f"the job is {record['state']}; only paused and interrupted jobs can go on")
        job.id, job.created, job.started = record["id"], record["created"], record["started"]
        job.seconds = job.before = record["seconds"]
        job.iterations = record["iterations"]
        job.incumbent, job.history, job.answer = record["incumbent"], record["history"], record["answer"]
        self._take_in(job, lambda: self.store.save(job.record()))

    def _take_in(self, job: Job, write: Callable[[], None]) -> None:
        """Put a job into the queue, once it is written down."""
        with self._change:
            if self.closing:
                raise ConflictError("the service is shutting down")
            if job.id in self.active or any(other.id == job.id for other in self.queue.reserved):
                raise ConflictError("the job is on its way already")
            self.queue.reserve(job, self.retry_after())
        try:
            write()
        except BaseException:
            with self._change:
                self.queue.release(job)
            raise
        with self._change:
            self.queue.add(job)
            self.active[job.id] = job
            self._change.notify()

    def retry_after(self) -> float:
        """Seconds until a quarter of the queue is likely to be done."""
        return len(self.queue) / 4 * sum(self._recent) / len(self._recent) / max(1, self.workers)

    def find(self, identity: str) -> Record | None:
        """What there is to say about a job."""
        job = self.active.get(identity)
        if job is None:
            return self.store.record(identity)
        with self._change:
            record = job.record(progress=job.progress)
            if job.state == QUEUED:
                record["position"] = self.queue.position(job)
            return record

    def end(self, identity: str, state: str) -> Job | None:
        """Ask a job to become STOPPED or PAUSED; None if it is not active. It may take a moment if it is running."""
        with self._change:
            job = self.active.get(identity)
            if job is None:
                return None
            if job.state == QUEUED:
                self.queue.remove(job)
            elif job.wish is None or state == STOPPED:
                job.wish = state
                job.drop()
                return job
        if job.state == QUEUED:
            self._close(job, state)
        return job

    # ---- for workers

    def take(self, most: int, timeout: float = 1.0) -> list[Job]:
        """The next jobs for a worker; none if there are none in time."""
        with self._change:
            if not self.queue.lanes and not self.closing:
                self._change.wait(timeout)
            jobs = [] if self.closing else self.queue.take(most)
            for job in jobs:
                job.state, job.started, job.begun = RUNNING, job.started or time.time(), time.monotonic()
                job.changed()
        for job in jobs:
            self._save(job.record())
        return jobs

    def report(self, job: Job, incumbent: dict[str, Any], points: list[dict[str, Any]]) -> None:
        with self._change:
            job.incumbent = incumbent
            job.history = [*job.history, *points]
            job.seconds, job.iterations, job.progress = incumbent["seconds"], incumbent["iteration"], None
            job.changed()
        if time.monotonic() - job.saved > CHECKPOINT:
            job.saved = time.monotonic()
            self._save(job.record())

    def tell(self, job: Job, progress: dict[str, Any]) -> None:
        with self._change:
            job.progress = progress
            job.changed()

    def finish(self, job: Job, outcome: dict[str, Any]) -> None:
        """What a worker found; see `worker.outcome`."""
        with self._change:
            took = max(0.0, outcome["seconds"] - job.before)
            self.searched += took
            self._recent.append(max(0.01, took))
            job.incumbent, job.history = outcome["incumbent"], outcome["history"]
            job.seconds, job.iterations, job.answer = outcome["seconds"], outcome["iterations"], outcome["answer"]
            state = job.wish if outcome["interrupted"] and job.wish else DONE
            job.error = outcome["error"]
            if job.error is not None and state == DONE:
                state = FAILED
        self._close(job, state)

    def fail(self, jobs: Iterable[Job], message: str, state: str = FAILED) -> None:
        """Jobs that no answer will come for; what they have found so far is kept."""
        for job in jobs:
            job.error, job.seconds = message, job.seconds_so_far()
            self._close(job, state)

    def _close(self, job: Job, state: str) -> None:
        job.begun = None  # its clock stands still
        finished = None if state in (PAUSED, INTERRUPTED) else time.time()
        self._save(job.record(state=state, finished=finished and round(finished, 3)))
        with self._change:
            job.state, job.finished, job.progress = state, finished, None
            self.active.pop(job.id, None)
            self.ended[state] += 1
            job.changed()

    def _save(self, record: Record) -> None:
        try:
            self.store.save(record)
        except sqlite3.Error:
            log.exception("job %s could not be written to the database", record["id"])

    # ---- the end

    def close(self) -> None:
        """Let workers go; what is waiting is marked as interrupted."""
        with self._change:
            self.closing = True
            self._change.notify_all()
            waiting = [job for job in self.active.values() if job.state == QUEUED]
            for job in waiting:
                self.queue.remove(job)
        self.fail(waiting, "the service was shut down", INTERRUPTED)
