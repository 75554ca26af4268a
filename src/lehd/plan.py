"""How a search goes about it: what a user asked for, how much of an instance the model sees, which parts RRC takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from lehd import symmetry
from lehd.decoding import picture
from lehd.decoding.rrc import SHORTEST
from lehd.decoding.speed import Speed
from lehd.problems.base import Problem
from lehd.types import Instances

WHOLE_SHARE, SHARE = 0.25, 0.7  # of the time left for a first construction: with all nodes in view, or with some
# RRC shows all nodes of its partial solutions if none has more than this. With longer ones it tries more in the same
# time with fewer in view, unless that takes nearly as long: so it does where a GPU has few rows to work on. What suits
# the longest is done with all of them.
WHOLE_PARTS, NEARLY = 200, 1.2
VIEWS = ("average", "best")  # what to do with the eight ways to look at an instance
# Of the time left, what the longest iteration may take after a start without the model, if parts are as long as the
# problem says; what going over the instance once may take, if that takes several iterations; and each of these.
ROUGH_SHARE, ROUGH_SWEEP, ROUGH_PIECE = 0.45, 0.8, 0.15
USUAL_LENGTH = 100  # of partial solutions, where time does not allow to reconstruct longer ones everywhere at once


@dataclass(frozen=True)
class Options:
    """How to search. What is None is chosen: the paper's way, or what suits a time limit."""

    beam: int | None = None
    sample: int | None = None
    longest: int | None = None
    parallel: bool | None = None
    nearest: int | None = None
    views: str | None = None  # one of VIEWS
    turn: bool | None = None

    @property
    def width(self) -> int:
        """Rows of the first construction for each instance."""
        return (self.beam or self.sample or 1) * (1 if self.views is None else symmetry.COUNT)


class Plan(NamedTuple):
    """How RRC goes about it; see `random_reconstruct`."""

    longest: int | None
    coverage: int
    nearest: int | None
    turn: bool


def view_of(problem: Problem, nodes: int) -> int | None:
    """How many of so many nodes the model should see; None: all."""
    return None if nodes <= problem.whole_up_to else problem.in_view


def whole_is_fast(problem: Problem, speed: Speed, rows: int, nodes: int) -> bool:
    """Whether construction takes hardly longer with all nodes in view than with the nearest."""
    whole, near = (speed.seconds(rows, nodes, view) for view in (None, problem.in_view))
    return whole <= NEARLY * near


def affordable_views(
    problem: Problem, speed: Speed, rows: int, steps: int, nearest: int | None, left: float
) -> list[int | None]:
    """How many nodes a first construction can have in view with so many seconds left, the better choice first."""
    best = nearest or view_of(problem, steps)
    if nearest is None and steps <= problem.whole_if_fast_up_to and whole_is_fast(problem, speed, rows, steps):
        best = None
    views = dict.fromkeys([best, problem.in_view])
    shares = {view: WHOLE_SHARE if view is None else SHARE for view in views}
    return [view for view, share in shares.items() if speed.seconds(rows, steps, view) < share * left]


def plan_parts(
    problem: Problem, instances: Instances, wish: Options, speed: Speed | None, left: float, cheap: bool
) -> Plan:
    """How to reconstruct: as the paper does, or so that the seconds left are enough for many iterations. It is `cheap`
    where no search began with a solution of the model."""
    batch, size, device = len(instances), instances.num_nodes, instances.device
    if speed is None:
        return Plan(wish.longest, size if wish.parallel else 0, wish.nearest, wish.turn is True)
    budget = problem.iteration_share * left

    def view_of_part(length: int, rows: int) -> int | None:
        if wish.nearest is not None or length <= WHOLE_PARTS:
            return wish.nearest
        return view_of(problem, length) if whole_is_fast(problem, speed, batch * rows, length) else problem.in_view

    def fits(length: int, rows: int) -> bool:
        return speed.seconds(batch * rows, length, view_of_part(length, rows)) <= budget

    parallel, turn, longest = wish.parallel is not False, wish.turn is not False, wish.longest
    in_plane = picture.faithful(instances)
    if in_plane and cheap and problem.rough_parts and parallel and not (longest or wish.nearest):
        # What a first construction would have done, in pieces all at once and with fewer nodes in view.
        rough, view = problem.rough_parts
        pieces = max(1, size // rough)
        sweep = speed.seconds(batch * pieces, rough, view)
        if sweep <= ROUGH_SHARE * left:
            return Plan(rough, size, view, turn)
        if sweep <= ROUGH_SWEEP * left:  # some of it at a time, one after the other
            some = largest(lambda rows: speed.seconds(batch * rows, rough, view) <= ROUGH_PIECE * left, 1, pieces)
            return Plan(rough, some * rough, view, turn)
    if longest is None:
        worth = min(size, _by_device(problem.longest_in_time, device))
        if not in_plane:
            worth = min(worth, picture.LARGEST)
        longest = largest(lambda length: fits(length, size // length if parallel else 1), SHORTEST, worth)
        if longest < min(USUAL_LENGTH, worth):  # better fewer than shorter ones
            longest = largest(lambda length: fits(length, 1), SHORTEST, min(USUAL_LENGTH, worth))
    length = min(longest, size)
    most = largest(lambda rows: fits(length, rows), 1, max(1, size // longest))
    return Plan(longest, most * longest if parallel else 0, view_of_part(length, most), turn)


def largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """About the largest number in low..high that fits; low if none does."""
    number = high
    while number > low and not fits(number):
        number = max(low, number * 9 // 10)
    return number


def _by_device(values: Mapping[str, int], device: torch.device) -> int:
    return values.get(device.type, values["cpu"])
