"""How long construction will take on this machine: measured in a moment, so that a time limit can be planned for."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from lehd.decoding.construct import construct
from lehd.model.lehd import LEHD
from lehd.problems.base import Problem
from lehd.types import Instances

PROBE = 48  # nodes in the measured construction
QUADRATIC = 0.002  # a token of a sequence of n costs 1 + QUADRATIC · n times what it costs in a short one


@dataclass(frozen=True)
class Speed:
    per_step: float  # seconds a step takes however small
    per_token: float  # seconds for each node in view of each row, in a short sequence

    def seconds(self, rows: int, nodes: int) -> float:
        """Time to construct `rows` paths through so many nodes."""
        tokens = nodes**2 / 2 + QUADRATIC * nodes**3 / 3
        return nodes * self.per_step + rows * self.per_token * tokens

    def longest(self, rows: int, seconds: float) -> int:
        """The most nodes that can be placed in the given time."""
        low, high = 0, 1
        while self.seconds(rows, high) <= seconds and high < 1 << 30:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.seconds(rows, middle) <= seconds else (low, middle)
        return low


def measure_speed(model: LEHD, problem: Problem, instances: Instances) -> Speed:
    """Time two short constructions from the cheap start's first nodes."""
    one = instances.rows(slice(1))
    nodes = one.num_nodes
    short = one.take(torch.arange(min(nodes, PROBE), device=one.device)[None])
    state = problem.initial_state(short)
    few = min(4, state.available.shape[1])
    if few == 0:
        return Speed(1e-6, 1e-9)

    def run(steps: int) -> float:
        part = type(state)(state.instance, state.start, state.destination, state.available[:, :steps], state.resources)
        begun = time.perf_counter()
        construct(model, problem, short, part)
        if one.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    run(few)  # the first call of all pays for initialisation
    per_step = min(run(few), run(few)) / few
    full = state.available.shape[1]
    spent = min(run(full), run(full))
    tokens = full**2 / 2 + QUADRATIC * full**3 / 3
    return Speed(per_step, max((spent - full * per_step) / tokens, 1e-9))
