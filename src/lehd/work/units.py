"""Words of bulk work: a unit of it, what it needs, and the engines that work on units.

A job is a function of a unit's content. It may be a dataclass with settings and weights: it travels to a worker once,
not with every unit. Nothing of a result may depend on the worker: random numbers come from seeds in the content.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

Job = Callable[[Any], Any]


@dataclass(frozen=True)
class Unit:
    id: str  # the same whenever the same work is cut into units again
    content: Any


@dataclass(frozen=True)
class Needs:
    """What a worker has for itself while it works on a unit. A part of a GPU: it is shared, memory included."""

    cores: float = 1.0
    gpus: float = 0.0

    @property
    def device(self) -> str:
        """Where a unit computes: its worker sees the GPUs it may use and no other."""
        return "cuda" if self.gpus else "cpu"


ONE_CORE = Needs()


@dataclass(frozen=True)
class Failure:
    """Why there is no result: the job raised, its process died, or it did not end."""

    reason: str
    fatal: bool = False  # it would be the same with every unit: something is missing where the worker is


class Crew(Protocol):
    """Workers that are at work on one job, until they are dismissed."""

    def room(self) -> bool:
        """Whether to give another unit now. More than that would only wait in memory."""

    def give(self, unit: Unit) -> None: ...

    def take(self) -> list[tuple[Unit, Any]]:
        """Units that are done, each once, with its result or a Failure; after about a second perhaps none."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Engine(Protocol):
    """Where crews come from."""

    def start(self, job: Job, needs: Needs = ONE_CORE, patience: float = float("inf")) -> Crew:
        """`patience`: a unit that takes more seconds is a Failure, and its process ended."""


def attempt(job: Job, content: Any) -> Any:
    """The job's result; whatever it raises concerns this unit alone."""
    try:
        return job(content)
    except ImportError as error:
        return Failure(f"a worker on {platform.node()} lacks a package ({error})", fatal=True)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}")


def use_cores(needs: Needs) -> None:
    """In a worker, as it starts: torch takes the cores that the unit was promised, whatever the machine has."""
    threads = max(1, int(needs.cores))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
