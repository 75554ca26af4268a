"""Watching a job: server-sent events, and waiting for its end. Slow listeners skip incumbents, never the last one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio

from lehd.service.desk import Desk
from lehd.service.jobs import ACTIVE, Job
from lehd.service.store import Record

KEEPALIVE = 15.0  # seconds of silence before a comment shows that the stream is alive


@contextlib.contextmanager
def listening(job: Job) -> Iterator[asyncio.Event]:
    """An event that is set whenever the job changes."""
    waker = (asyncio.get_running_loop(), asyncio.Event())
    job.wakers.add(waker)
    try:
        yield waker[1]
    finally:
        job.wakers.discard(waker)


async def until_ended(job: Job, timeout: float) -> bool:
    """Wait until the job is neither waiting nor running; False if that takes longer."""
    deadline = time.monotonic() + timeout
    with listening(job) as event:
        while job.state in ACTIVE:
            event.clear()
            if job.state in ACTIVE:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), max(0.01, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                return job.state not in ACTIVE
    return True


async def stream(desk: Desk, identity: str, record: Record) -> AsyncIterator[str]:
    """Events `state`, `progress` and `incumbent`, and at last `end` with the whole record.

    An incumbent has the points of the history that the listener has not seen yet.
    """
    job = desk.active.get(identity)
    if job is None and record["state"] in ACTIVE:  # it has ended since it was looked up
        ended: Record | None = await anyio.to_thread.run_sync(desk.find, identity)
        record, job = ended or record, desk.active.get(identity)  # which it is again if it was resumed
    shown = _Shown()
    if job is not None:
        with listening(job) as event:
            while job.state in ACTIVE:
                event.clear()
                for message in shown.news(desk.find(identity) or job.record(), job.version):
                    yield message
                if job.state in ACTIVE:
                    try:
                        await asyncio.wait_for(event.wait(), KEEPALIVE)
                    except TimeoutError:
                        yield ": still here\n\n"
        record = job.record()
    for message in shown.news(record, shown.version + 1):
        yield message
    yield _event("end", record, shown.version + 1)


class _Shown:
    """What a listener has seen."""

    def __init__(self) -> None:
        self.version = 0
        self.state: tuple[Any, ...] = ()
        self.progress: Any = None
        self.points = 0

    def news(self, record: Record, version: int) -> Iterator[str]:
        self.version = version
        state = (record["state"], record.get("position"))
        if state != self.state:
            self.state = state
            keys = ("id", "state", "position", "name", "problem", "nodes", "time_limit", "seconds")
            yield _event("state", {key: record.get(key) for key in keys}, version)
        progress = record.get("progress")
        if progress is not None and progress != self.progress:
            self.progress = progress
            yield _event("progress", progress, version)
        history = record["history"]
        if record["incumbent"] is not None and len(history) > self.points:
            new = history[self.points :]
            self.points = len(history)
            yield _event("incumbent", {**record["incumbent"], "history": new}, version)


def _event(kind: str, data: Any, version: int) -> str:
    return f"event: {kind}\nid: {version}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
