"""How long construction will take on this machine: measured in a moment, so that a time limit can be planned for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from lehd.decoding.replay import COARSE, Record
from lehd.decoding.spread import Spread
from lehd.decoding.stop import Stop
from lehd.model.lehd import LEHD
from lehd.model.precision import inference
from lehd.problems.base import Problem
from lehd.types import Instances

# Rows, and nodes in view of each, in a small and in a large step: large enough to keep the device busy.
PROBES = {"cpu": ((1, 8), (1, 160)), "cuda": ((1, 8), (1, 1024)), "recorded": ((1, 8), (64, 1024))}
THREADS_PROBE = (8, 160)  # the same, for a CPU's threads: what a step of many parts at once looks like
# What a thread does at a time: so small that Python, of which there is one for all, counts as it does in short parts.
SPREAD_PROBE, SPREAD_STEPS = (2, 80), 5
WORTH_TRYING = 2.0  # seconds left: trying takes a tenth of a second, on a busy machine a few of them
RECORDING = 3  # steps launched one by one take as long as the first two of a recording: one is launched, one recorded
QUADRATIC = 0.003  # a node in a view of n costs 1 + QUADRATIC · n times what it costs in a small view


@dataclass(frozen=True)
class Speed:
    per_step: float  # seconds a step takes however small
    per_token: float  # further seconds for each node in view of each row, in a small view
    search_cost: float = Problem.search_cost  # of that, for each available node, to find the nearest
    rows_at_once: float = 1.0  # on several threads: so many rows take as long as one

    def seconds(self, rows: int, nodes: int, nearest: int | None = None) -> float:
        """Time to construct `rows` paths through so many nodes, with all or only the nearest of them in view."""
        if nearest is not None and nodes > nearest:
            view = nearest * (1 + QUADRATIC * nearest) * 7 / 6  # the encoder, the seventh layer, runs at every step too
            tokens = nodes * view + self.search_cost * nodes**2 / 2
        else:
            # Starting and destination node are in view at every step, and the encoder sees every node once.
            tokens = nodes**2 / 2 + QUADRATIC * nodes**3 / 3 + (2 + 1 / 6) * nodes
        in_turn = max(1.0, rows / self.rows_at_once) if rows else 0.0
        return nodes * self.per_step + in_turn * self.per_token * tokens


def measure_speed(
    model: LEHD, problem: Problem, instances: Instances, stop: Stop, record: Record | None = None
) -> Speed:
    """Time a small and a large decoding step, each a few times where that is next to nothing of the time left. Where
    construction records its steps, so is what is measured."""
    device = instances.device
    small, large = PROBES["recorded" if record else device.type if device.type in PROBES else "cpu"]
    with inference(device):
        step = _steps(model, problem, instances)
        steps = {probe: step(*probe) for probe in (small, large)}
        _seconds(steps[small], device)  # the very first call pays for initialisation
        limit = time.perf_counter() + 0.02 * max(0.0, stop.time_left())
        times = {probe: _seconds(each, device) for probe, each in steps.items()}
        launched = times[small]
        if record is not None:
            launched = min(launched, _seconds(steps[small], device))
            steps = {probe: record(each).replay for probe, each in steps.items()}
            times = {probe: _seconds(each, device) for probe, each in steps.items()}
        for _ in range(4):
            if time.perf_counter() < limit:
                times = {probe: min(times[probe], _seconds(each, device)) for probe, each in steps.items()}
    overhead = 1.2  # what a construction does besides scoring
    rows, nodes = large
    tokens = rows * nodes * (1 + QUADRATIC * nodes) - small[1]
    per_step = times[small] if record is None else times[small] + RECORDING * launched / COARSE
    per_token = max(overhead * (times[large] - times[small]) / tokens, 1e-9)
    return Speed(overhead * per_step, per_token, problem.search_cost)


def faster_threads(model: LEHD, problem: Problem, instances: Instances, stop: Stop) -> int:
    """All threads of a CPU, or one if that is faster now: on a busy machine threads wait for each other. One too where
    there is hardly time to try."""
    threads = torch.get_num_threads()
    if threads == 1 or stop.time_left() < WORTH_TRYING:
        return 1
    with inference(instances.device):
        step = _steps(model, problem, instances)(*THREADS_PROBE)
        _seconds(step, instances.device)  # the first call pays for initialisation
        together = _seconds(step, instances.device)
        torch.set_num_threads(1)
        alone = _seconds(step, instances.device)
    return threads if together < alone else 1


def gain_by_spreading(spread: Spread, instances: Instances, stop: Stop) -> float:
    """How many times as fast many rows are when each thread has its own; 1 where there is hardly time to try."""
    if stop.time_left() < WORTH_TRYING:
        return 1.0
    device = instances.device
    with inference(device):
        step = _steps(spread.model, spread.problem, instances)(*SPREAD_PROBE)

    def work() -> None:
        with inference(device):  # threads do not know of each other's
            for _ in range(SPREAD_STEPS):
                step()

    work()  # the first call pays for initialisation
    return spread.gain(work, device)


def _steps(model: LEHD, problem: Problem, instances: Instances) -> Callable[[int, int], Callable[[], object]]:
    """Makes steps that score so many rows with so many nodes in view, of no meaning."""
    device = instances.device
    some = instances.rows(slice(1)).take(torch.arange(min(instances.num_nodes, 8), device=device)[None])
    embeddings = model.encode(problem.features(some, model.config.box))
    begin = problem.initial_state(some)

    def step(rows: int, nodes: int) -> Callable[[], object]:
        view = torch.arange(nodes, device=device)[None] % some.num_nodes
        state = replace(begin, available=view).repeat(rows)
        context = problem.context(some, state)
        return lambda: model.score(embeddings, state, context).argmax(1)

    return step


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun
