"""Jobs, and the queue they wait in: bounded, and fair between clients."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lehd.errors import LehdError
from lehd.service.config import Limits
from lehd.service.task import Options, Problem

QUEUED, RUNNING, PAUSED, DONE = "queued", "running", "paused", "done"
STOPPED, FAILED, INTERRUPTED = "stopped", "failed", "interrupted"
STATES = (QUEUED, RUNNING, PAUSED, DONE, STOPPED, FAILED, INTERRUPTED)
ACTIVE = (QUEUED, RUNNING)  # kept in memory; all others are in the store alone
RESUMABLE = (PAUSED, INTERRUPTED)

MOST_BYTES = 1 << 30  # of matrices in the queue
Waker = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class TooManyError(LehdError):
    """A limit on numbers is reached; to be tried again after so many seconds."""

    def __init__(self, message: str, retry_after: float):
        super().__init__(message)
        self.retry_after = max(1, math.ceil(min(retry_after, 600)))


@dataclass(eq=False)
class Job:
    """A problem on its way through the service."""

    client: str
    problem: Problem
    options: Options  # with a time limit
    id: str = field(default_factory=lambda: secrets.token_urlsafe(15))  # whoever knows it may see the job
    state: str = QUEUED
    created: float = field(default_factory=time.time)
    started: float | None = None
    finished: float | None = None
    seconds: float = 0.0  # of search, before the last pause too
    before: float = 0.0  # seconds of search before this run
    begun: float | None = None  # this run's start, on the monotonic clock
    iterations: int = 0
    incumbent: dict[str, Any] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    progress: dict[str, Any] | None = None  # phase, done, total
    answer: dict[str, Any] | None = None
    error: str | None = None
    wish: str | None = None  # the state a client wants a running job to end in
    drop: Callable[[], None] = lambda: None  # tells the worker of the wish
    saved: float = 0.0  # when the store last heard of it
    version: int = 0
    wakers: set[Waker] = field(default_factory=set)

    @property
    def time_limit(self) -> float:
        assert self.options.time_limit is not None
        return self.options.time_limit

    def seconds_so_far(self) -> float:
        if self.state != RUNNING or self.begun is None:
            return self.seconds
        return min(self.time_limit, self.before + time.monotonic() - self.begun)

    def changed(self) -> None:
        """Wake everybody who listens."""
        self.version += 1
        for loop, event in tuple(self.wakers):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def record(self, **changes: Any) -> dict[str, Any]:
        """What clients see, and what is stored."""
        options = self.options
        return {
            "id": self.id,
            "state": self.state,
            "name": self.problem.name,
            "problem": self.problem.kind,
            "nodes": self.problem.instances.num_nodes,
            "time_limit": options.time_limit,
            "max_iterations": options.iterations,
            "seed": options.seed or 0,
            "created": round(self.created, 3),
            "started": None if self.started is None else round(self.started, 3),
            "finished": None if self.finished is None else round(self.finished, 3),
            "seconds": round(self.seconds_so_far(), 3),
            "iterations": self.iterations,
            "incumbent": self.incumbent,
            "history": list(self.history),
            "error": self.error,
            "answer": self.answer,
        } | changes

    def batch_key(self) -> Hashable:
        """Jobs of the same key may be solved together; what is only like itself has a key of its own."""
        instances = self.problem.instances
        alone = instances.matrix is not None or self.options.iterations is not None or self.incumbent is not None
        if alone:
            return self.id
        kind = None if instances.demands is None else instances.demands.dtype
        fleet, sited = instances.vehicles is not None, instances.sites is not None
        return (instances.num_nodes, instances.rule.name, sited, kind, fleet, self.time_limit, self.options.seed or 0)


class FairQueue:
    """A lane for each client, served in turn. Not safe for threads: the desk guards it."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.lanes: OrderedDict[str, deque[Job]] = OrderedDict()  # the first one is next
        self.reserved: set[Job] = set()  # still being written down, but with a place

    def __len__(self) -> int:
        return sum(map(len, self.lanes.values())) + len(self.reserved)

    def reserve(self, job: Job, retry_after: float) -> None:
        """Hold a place; TooManyError if there is none."""
        mine = len(self.lanes.get(job.client, ())) + sum(other.client == job.client for other in self.reserved)
        if mine >= self.limits.waiting_per_client:
            raise TooManyError(f"{mine} of your jobs are waiting already; try again later", retry_after)
        if len(self) >= self.limits.waiting:
            raise TooManyError(f"the queue is full ({len(self)} jobs are waiting); try again later", retry_after)
        held = sum(other.problem.weight for other in [*self._in_turn(), *self.reserved])
        if held and held + job.problem.weight > MOST_BYTES:
            raise TooManyError(
                "the matrices that are waiting take up all memory set aside; try again later", retry_after
            )
        self.reserved.add(job)

    def release(self, job: Job) -> None:
        self.reserved.discard(job)

    def add(self, job: Job) -> None:
        self.release(job)
        self.lanes.setdefault(job.client, deque()).append(job)

    def remove(self, job: Job) -> None:
        lane = self.lanes.get(job.client)
        if lane is not None and job in lane:
            lane.remove(job)
            if not lane:
                del self.lanes[job.client]

    def take(self, most: int) -> list[Job]:
        """The next job and, up to `most` in all, others that can be solved together with it."""
        if not self.lanes:
            return []
        client, lane = next(iter(self.lanes.items()))
        first = lane[0]
        taken = [first]
        if most > 1:
            key = first.batch_key()
            taken += [job for job in self._in_turn() if job is not first and job.batch_key() == key][: most - 1]
        for job in taken:
            self.remove(job)
        if client in self.lanes:
            self.lanes.move_to_end(client)
        return taken

    def _in_turn(self) -> Iterator[Job]:
        """All jobs in the order they would be served one by one."""
        depth = max(map(len, self.lanes.values()), default=0)
        for place in range(depth):
            yield from (lane[place] for lane in self.lanes.values() if place < len(lane))

    def position(self, job: Job) -> int:
        """How many jobs are served before this one."""
        return next((place for place, other in enumerate(self._in_turn()) if other is job), 0)
