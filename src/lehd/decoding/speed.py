"""How long construction will take on this machine: measured in a moment, so that a time limit can be planned for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from lehd.decoding.replay import COARSE, Record
from lehd.decoding.stop import Stop
from lehd.model.lehd import LEHD
from lehd.model.precision import inference
from lehd.problems.base import Problem
from lehd.recording import Recorder
from lehd.types import Instances, State

PROBES = {"cpu": (8, 160), "cuda": (8, 1024)}  # nodes in view in a small and in a large step
SEARCH = 0.002  # finding the nearest costs as much per available node, compared with a node in view
RECORDING = 3  # steps launched one by one take as long as the first two of a recording: one is launched, one recorded
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


def measure_speed(
    model: LEHD, problem: Problem, instances: Instances, stop: Stop, record: Record | None = None
) -> Speed:
    """Time a small and a large decoding step, each a few times where that is next to nothing of the time left.

    On a GPU most steps are recorded, so that is what counts there; `record` is then by default the GPU's.
    """
    device = instances.device
    if record is None and device.type == "cuda":
        record = Recorder(device).record
    some = instances.rows(slice(1)).take(torch.arange(min(instances.num_nodes, 8), device=device)[None])
    small, large = PROBES.get(device.type, PROBES["cpu"])
    with inference(device):
        embeddings = model.encode(problem.features(some, model.config.box))
        begin = problem.initial_state(some)

        def step(nodes: int) -> Callable[[], object]:
            view = torch.arange(nodes, device=device)[None] % some.num_nodes
            state = State(begin.instance, begin.start, begin.destination, view, begin.resources)
            context = problem.context(some, state)
            return lambda: model.score(embeddings, state, context).argmax(1)

        steps = {nodes: step(nodes) for nodes in (small, large)}
        _seconds(steps[small], device)  # the very first call pays for initialisation
        limit = time.perf_counter() + 0.02 * max(0.0, stop.time_left())
        times = {nodes: _seconds(each, device) for nodes, each in steps.items()}
        launched = times[small]
        if record is not None:
            launched = min(launched, _seconds(steps[small], device))
            steps = {nodes: record(each).replay for nodes, each in steps.items()}
            times = {nodes: _seconds(each, device) for nodes, each in steps.items()}
        for _ in range(4):
            if time.perf_counter() < limit:
                times = {nodes: min(times[nodes], _seconds(each, device)) for nodes, each in steps.items()}
    overhead = 1.2  # what a construction does besides scoring
    tokens = large * (1 + QUADRATIC * large) - small
    per_step = times[small] if record is None else times[small] + RECORDING * launched / COARSE
    return Speed(overhead * per_step, max(overhead * (times[large] - times[small]) / tokens, 1e-9))


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun
