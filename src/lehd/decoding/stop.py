"""When a search ends: after so many iterations, after so much time, when asked to, or whichever comes first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


class OutOfTime(Exception):  # noqa: N818 - not an error: the search keeps what it has
    """The time was up in the middle of a construction."""


@dataclass(frozen=True)
class Stop:
    iterations: int | None = None
    deadline: float | None = None  # on the clock of time.perf_counter()
    asked: Callable[[], bool] | None = None  # whether somebody wants it to end now; called at every step

    def done(self, iteration: int) -> bool:
        """Whether no further iteration should begin."""
        return (self.iterations is not None and iteration >= self.iterations) or self.out_of_time()

    def out_of_time(self) -> bool:
        return (self.deadline is not None and time.perf_counter() >= self.deadline) or self.called_off()

    def called_off(self) -> bool:
        return self.asked is not None and self.asked()

    def time_left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.perf_counter()


def check_time(stop: Stop | None) -> None:
    """Raise OutOfTime if there is a stop and it has run out of time."""
    if stop is not None and stop.out_of_time():
        raise OutOfTime


def max_iterations(iterations: int) -> Stop:
    return Stop(iterations=iterations)


def max_runtime(seconds: float) -> Stop:
    return Stop(deadline=time.perf_counter() + seconds)
