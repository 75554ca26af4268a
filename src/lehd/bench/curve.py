"""One run of a batch, as the paper does it: greedy construction, then Random Re-Construct, one part at a time.

The run is made of segments of 50 iterations, each with random numbers of its own. So a run can go on after any segment
and gives what it would have given, and asking for more points on the way does not change it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from lehd.decoding.rrc import constructor, random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.model.lehd import LEHD
from lehd.problems.base import Problem
from lehd.types import Instances, Solution

SEGMENT = 50


@dataclass(frozen=True)
class Point:
    """Where a run stands: its solutions after so many iterations and seconds."""

    iteration: int
    seconds: float
    solution: Solution


def run_curve(
    model: LEHD,
    problem: Problem,
    instances: Instances,
    budgets: list[int],
    seed: int,
    begin: Point | None = None,
    turn: bool = False,
    nearest: int | None = None,
    tick: Callable[[int], None] = lambda iteration: None,
) -> Iterator[Point]:
    """The points at 0 iterations, at every budget and at the end of every segment, in order.

    `begin` is the end of a segment from which to go on. With `turn` the model sees every part turned or mirrored at
    random; it sees so many of the `nearest` nodes, all by default. `tick` is called after every iteration.
    """
    device = instances.device
    spent = begin.seconds if begin else 0.0
    begun = time.perf_counter()

    def point(iteration: int, solution: Solution) -> Point:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return Point(iteration, spent + time.perf_counter() - begun, solution)

    construct_part = constructor(model, problem, device, nodes=instances.num_nodes + 1)
    if begin is None:
        state = problem.initial_state(instances)
        begin = point(0, problem.complete(state, construct_part(instances, state, nearest=nearest)))
        yield begin
    last = max(budgets, default=0)
    while begin.iteration < last:
        first, length = begin.iteration, min(SEGMENT, last - begin.iteration)
        points: list[Point] = []

        def note(done: int, solution: Solution, first: int = first, points: list[Point] = points) -> None:
            tick(first + done)
            if first + done in budgets:
                points.append(point(first + done, solution))

        rng = random.Random(f"{seed} {first // SEGMENT}")
        stop = max_iterations(length)
        solution = random_reconstruct(
            model,
            problem,
            instances,
            begin.solution,
            stop,
            rng,
            on_iteration=note,
            construct_part=construct_part,
            turn=turn,
            nearest=nearest,
        )
        begin = point(first + length, solution)
        yield from (each for each in points if each.iteration < begin.iteration)
        yield begin
