"""The bare loop: one unit after the other, in this process. What a job raises is raised, and ends the run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from lehd.work.units import ONE_CORE, Job, Needs, Unit


class Here:
    """For work that has the whole machine to itself: its threads, its GPU, or the clock."""

    def start(self, job: Job, needs: Needs = ONE_CORE, patience: float = float("inf")) -> Alone:
        return Alone(job)


class Alone:
    def __init__(self, job: Job):
        self.job = job
        self.given: Unit | None = None

    def room(self) -> bool:
        return self.given is None

    def give(self, unit: Unit) -> None:
        self.given = unit

    def take(self) -> list[tuple[Unit, Any]]:
        unit, self.given = self.given, None
        return [] if unit is None else [(unit, self.job(unit.content))]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
