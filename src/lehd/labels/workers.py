"""Many tasks on many processes, where a task that crashes or hangs its process is lost alone.

The standard library's pools give up as a whole when one process dies. Here each process has a pipe of its own: when it
breaks, the task it had is reported as failed and another process takes its place.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from typing import Any

# Linux's fork starts at once; elsewhere it is not safe.
CONTEXT: Any = get_context("fork" if sys.platform == "linux" else "spawn")
LOOK = 1.0  # seconds between two looks of an idle process at its parent, and of the parent at the clock


@dataclass(frozen=True)
class Failure:
    """Why there is no result."""

    reason: str


class Worker:
    """A process and the task it has."""

    def __init__(self, function: Callable[[Any], Any]):
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_work, args=(theirs, function, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe breaks when the process dies
        self.key: Any = None
        self.since = 0.0

    def give(self, key: Any, task: Any) -> None:
        self.key, self.since = key, time.monotonic()
        with suppress(OSError):  # it is dead: `take` will tell
            self.pipe.send(task)

    def take(self) -> Any:
        """The result; where the process has died instead, a Failure."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return Failure(f"the process of the solver died (code {self.process.exitcode})")

    @property
    def alive(self) -> bool:
        return bool(self.process.is_alive())

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def solve_all(
    tasks: Iterable[tuple[Any, Any]], function: Callable[[Any], Any], processes: int, patience: float
) -> Iterator[tuple[Any, Any]]:
    """(key, function(task)) for every (key, task), as they are done; a Failure where there is no result.

    A task that takes longer than `patience` seconds is given up. `tasks` is read no faster than it is worked on.
    """
    todo = iter(tasks)
    idle: list[Worker] = []
    busy: dict[Any, Worker] = {}  # by pipe
    try:
        while True:
            while len(busy) < processes and (item := next(todo, None)) is not None:
                worker = idle.pop() if idle else Worker(function)
                worker.give(*item)
                busy[worker.pipe] = worker
            if not busy:
                return
            for pipe in connection.wait(list(busy), LOOK):
                worker = busy.pop(pipe)
                result = worker.take()
                if isinstance(result, Failure) and not worker.alive:
                    worker.end()
                else:
                    idle.append(worker)
                yield worker.key, result
            late = time.monotonic() - patience
            for worker in [worker for worker in busy.values() if worker.since < late]:
                del busy[worker.pipe]
                worker.end()
                yield worker.key, Failure(f"no answer in {patience:g} s")
    finally:
        for worker in [*idle, *busy.values()]:
            worker.end()


def _work(pipe: Any, function: Callable[[Any], Any], parent: int) -> None:
    """What a process does: one task after the other, until nobody is left to give any."""
    try:
        while True:
            while not pipe.poll(LOOK):
                if os.getppid() != parent:
                    return
            task = pipe.recv()
            try:
                result = function(task)
            except Exception as error:  # whatever a solver raises concerns its instance alone
                result = Failure(f"{type(error).__name__}: {error}")
            pipe.send(result)
    except (EOFError, OSError, KeyboardInterrupt):
        return
