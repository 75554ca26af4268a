"""How long construction will take on this machine: measured in a moment, so that a time limit can be planned for."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from lehd.decoding.stop import Stop
from lehd.model.lehd import LEHD
from lehd.model.precision import inference
from lehd.problems.base import Problem
from lehd.types import Instances, State

PROBES = {"cpu": (8, 160), "cuda": (8, 1024)}  # nodes in view in a small and in a large step
SEARCH = 0.002  # finding the nearest costs as much per available node, compared with a node in view
QUADRATIC = 0.003  # a node in a view of n costs 1 + QUADRATIC · n times what it costs in a small view


@dataclass(frozen=True)
class Speed:
    per_step: float  # seconds a step takes however small
    per_token: float  # further seconds for each node in view of each row, in a small view

    def seconds(self, rows: int, nodes: int, nearest: int | None = None) -> float:
        """Time to construct `rows` paths through so many nodes, with all or only the nearest of them in view."""
        if nearest is not None and nodes > nearest:
            view = nearest * (1 + QUADRATIC * nearest) * 7 / 6  # the encoder, the seventh layer, runs at every step too
            tokens = nodes * view + SEARCH * nodes**2 / 2
        else:
            # Starting and destination node are in view at every step, and the encoder sees every node once.
            tokens = nodes**2 / 2 + QUADRATIC * nodes**3 / 3 + (2 + 1 / 6) * nodes
        return nodes * self.per_step + rows * self.per_token * tokens


def measure_speed(model: LEHD, problem: Problem, instances: Instances, stop: Stop) -> Speed:
    """Time a small and a large decoding step, each a few times where that is next to nothing of the time left."""
    device = instances.device
    some = instances.rows(slice(1)).take(torch.arange(min(instances.num_nodes, 8), device=device)[None])
    small, large = PROBES.get(device.type, PROBES["cpu"])
    with inference(device):
        embeddings = model.encode(problem.features(some, model.config.box))
        begin = problem.initial_state(some)

        def step(nodes: int) -> float:
            view = torch.arange(nodes, device=device)[None] % some.num_nodes
            state = State(begin.instance, begin.start, begin.destination, view, begin.resources)
            begun = time.perf_counter()
            model.score(embeddings, state, problem.context(some, state)).argmax(1)
            if device.type == "cuda":
                torch.cuda.synchronize()
            return time.perf_counter() - begun

        step(small)  # the very first call pays for initialisation
        limit = time.perf_counter() + 0.02 * max(0.0, stop.time_left())
        times = {nodes: step(nodes) for nodes in (small, large)}
        for _ in range(4):
            if time.perf_counter() < limit:
                times = {nodes: min(seconds, step(nodes)) for nodes, seconds in times.items()}
    overhead = 1.2  # what a construction does besides scoring
    tokens = large * (1 + QUADRATIC * large) - small
    return Speed(overhead * times[small], max(overhead * (times[large] - times[small]) / tokens, 1e-9))
