"""How fast the model decides: greedy construction and RRC by size and batch, beside what the machine could compute.

    python -m lehd.bench.speed --nodes 100 1000 --batch 1 128 --output speed.jsonl

Instances are uniform ones from a seed. Greedy construction is measured with all nodes in view, and in larger instances
with the nearest too. Latency is the wall-clock time of one batch, for RRC of one iteration of it; the
ceiling is what large matrix products reach on the machine (790 TFLOP/s on an H200, measured elsewhere).
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lehd import __version__
from lehd.bench.arithmetic import decision_flops, layer_flops
from lehd.bench.machine import device_words, forget_peak, matmul_ceiling, peak_memory, synchronize
from lehd.bench.store import GREEDY, append_lines, read_lines
from lehd.bench.text import NOTHING, markdown
from lehd.data.generate import uniform_cvrp, uniform_tsp
from lehd.decoding.construct import construct
from lehd.decoding.rrc import ConstructPart, constructor, random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.io.arrays import coordinate_instances
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from lehd.types import Instances, State

RRC, NEAREST = "RRC", "greedy, {} nearest"  # modes, beside greedy
NODES = {"cuda": (100, 200, 500, 1000), "cpu": (50, 100, 200)}
BATCHES = {"cuda": (1, 16, 128, 1024), "cpu": (1, 16)}
CAPACITIES = {100: 50, 200: 80, 500: 100, 1000: 250}  # the paper's
ROUNDS, ROUNDS_OF_RRC = 3, 20  # the most; fewer where they take long


@dataclass(frozen=True)
class Speed:
    problem: str
    nodes: int
    batch: int
    mode: str  # greedy, with so many nearest nodes in view or all; or RRC: one iteration
    device: str
    weights: str
    ceiling: float  # FLOP/s
    rounds: int = 0
    seconds: float = 0.0  # of one round: the latency
    tokens: float = 0.0  # through the decoder, in one round
    flops: float = 0.0
    memory: float | None = None  # GiB at the most; None where the system does not say
    error: str = ""
    version: str = __version__

    @property
    def key(self) -> tuple[object, ...]:
        return (self.problem, self.nodes, self.batch, self.mode, self.device, self.weights)

    def line(self) -> str:
        rates = {}
        if not self.error:
            rates = {
                "instances_per_second": self.batch / self.seconds,
                "tokens_per_second": self.tokens / self.seconds,
                "share_of_ceiling": self.flops / self.seconds / self.ceiling,
            }
        return json.dumps({"bench": "speed", **asdict(self), **rates})


class Counter:
    """What has gone through a model."""

    def __init__(self) -> None:
        self.tokens, self.flops = 0, 0.0

    @contextmanager
    def counting(self, model: LEHD) -> Iterator[None]:
        encode, score, config = model.encode, model.score, model.config

        def count_encode(features: Tensor, seen: Tensor | None = None) -> Tensor:
            self.flops += layer_flops(config, len(features), features.shape[1])
            return encode(features, seen)

        def count_score(embeddings: Tensor, state: State, context: Tensor) -> Tensor:
            rows, available = state.available.shape
            self.tokens += rows * (available + 2)
            self.flops += decision_flops(config, rows, available)
            return score(embeddings, state, context)

        vars(model).update(encode=count_encode, score=count_score)
        try:
            yield
        finally:
            del model.encode, model.score


def draw(problem: str, nodes: int, batch: int) -> Instances:
    rng = np.random.default_rng([nodes, batch])
    if problem == "TSP":
        return coordinate_instances(uniform_tsp(rng, batch, nodes))
    drawn = uniform_cvrp(rng, batch, nodes, capacity=CAPACITIES.get(nodes, 50))
    return coordinate_instances(drawn.coords, drawn.demands, drawn.capacity)


def modes(nodes: int, nearest: int) -> list[str]:
    """What is measured with instances of so many nodes."""
    return [GREEDY, *([NEAREST.format(nearest)] if nodes > nearest else []), RRC]


def measure(model: LEHD, problem: str, nodes: int, batch: int, mode: str, seconds: float, ceiling: float) -> Speed:
    """Time rounds for about so many seconds, after one that does not count; a GPU takes four times as long."""
    device = next(model.parameters()).device
    facts: dict[str, Any] = {
        "problem": problem,
        "nodes": nodes,
        "batch": batch,
        "mode": mode,
        "device": device_words(device),
        "weights": fingerprint(model),
        "ceiling": ceiling,
    }
    try:
        counter, rounds, spent = _time(model, problem, nodes, batch, mode, seconds, device)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return Speed(**facts, error="out of memory")
    memory = peak_memory(device)
    tokens, flops = counter.tokens / rounds, counter.flops / rounds
    return Speed(**facts, rounds=rounds, seconds=spent / rounds, tokens=tokens, flops=flops, memory=memory)


def _time(
    model: LEHD, problem: str, nodes: int, batch: int, mode: str, seconds: float, device: torch.device
) -> tuple[Counter, int, float]:
    kind = PROBLEMS[problem]
    instances: Instances = draw(problem, nodes, batch).to(device)
    state = kind.initial_state(instances)
    first = construct(model, kind, instances, state)
    solution = kind.complete(state, first)
    plain: ConstructPart = functools.partial(construct, model, kind)
    nearest = None if mode in (GREEDY, RRC) else int(mode.split()[1])

    def one_round(number: int, construct_part: ConstructPart) -> None:
        if mode != RRC:
            construct_part(instances, state, nearest=nearest)
        else:
            random_reconstruct(
                model,
                kind,
                instances,
                solution,
                max_iterations(1),
                random.Random(number),
                construct_part=construct_part,
            )
        synchronize(device)

    synchronize(device)
    forget_peak(device)
    counter, rounds, most = Counter(), 0, ROUNDS_OF_RRC if mode == RRC else ROUNDS
    with counter.counting(model):
        begun = time.perf_counter()
        while rounds < most and (rounds == 0 or time.perf_counter() - begun < seconds):
            one_round(rounds, plain)
            rounds += 1
    spent = time.perf_counter() - begun
    if device.type == "cpu":
        return counter, rounds, spent
    # A GPU runs by recorded steps, which count nothing: the same rounds again, the third time on record.
    recorded = constructor(model, kind, device, nodes=instances.num_nodes + 1)
    for _ in range(3):
        begun = time.perf_counter()
        for number in range(rounds):
            one_round(number, recorded)
    return counter, rounds, time.perf_counter() - begun


def run_speed(
    problems: list[str],
    nodes: list[int] | None,
    batches: list[int] | None,
    device: str | None = None,
    seconds: float = 5.0,
    path: Path | None = None,
    watch: Callable[[Speed], None] = lambda speed: None,
    nearest: int | None = None,
) -> list[Speed]:
    """Every size with every batch; what the file has already is not measured again."""
    where = find_device(device)
    found = {speed.key: speed for speed in read_speeds(path)} if path is not None and path.exists() else {}
    ceiling = 0.0
    speeds = []
    for problem in problems:
        model = load_model(shipped_weights(problem), where)
        weights, words = fingerprint(model), device_words(where)
        for size in sorted(nodes or NODES[where.type]):
            for batch in sorted(batches or BATCHES[where.type]):
                for mode in modes(size, nearest or PROBLEMS[problem].in_view):
                    known = found.get((problem, size, batch, mode, words, weights))
                    if known is None:
                        ceiling = ceiling or matmul_ceiling(where)
                        known = measure(model, problem, size, batch, mode, seconds, ceiling)
                        if path is not None:
                            append_lines(path, [known.line()])
                    speeds.append(known)
                    watch(known)
    return speeds


def read_speeds(path: Path) -> list[Speed]:
    return to_speeds(read_lines(path))


def to_speeds(lines: Iterable[dict[str, Any]]) -> list[Speed]:
    fields = Speed.__dataclass_fields__
    chosen = (line for line in lines if line["bench"] == "speed")
    return [Speed(**{name: value for name, value in line.items() if name in fields}) for line in chosen]


def table(speeds: list[Speed]) -> str:
    columns = ["problem", "nodes", "batch", "mode", "latency s", "instances/s", "tokens/s", "% of ceiling", "GiB", "on"]
    rows = []
    for speed in speeds:
        head = [speed.problem, speed.nodes, speed.batch, speed.mode]
        if speed.error:
            rows.append([*head, speed.error, *[NOTHING] * 4, speed.device])
            continue
        memory = NOTHING if speed.memory is None else f"{speed.memory:.2f}"
        share = 100 * speed.flops / speed.seconds / speed.ceiling
        rates = [f"{speed.seconds:.4g}", f"{speed.batch / speed.seconds:.4g}", f"{speed.tokens / speed.seconds:,.0f}"]
        rows.append([*head, *rates, f"{share:.1f}", memory, speed.device])
    return markdown(columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of construction and RRC.")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--nodes", nargs="+", type=int)
    parser.add_argument("--batch", nargs="+", type=int)
    parser.add_argument("--nearest", type=int, help="nodes in view, beside all; by default as many as a search has")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="for each row, about; RRC on a GPU takes up to four times as long"
    )
    parser.add_argument("--device")
    parser.add_argument("--output", type=Path, help="a .jsonl file to append to; goes on where it stopped")
    given = parser.parse_args()
    try:
        speeds = run_speed(
            given.problems,
            given.nodes,
            given.batch,
            given.device,
            given.seconds,
            given.output,
            lambda speed: print(speed.line(), flush=True),
            given.nearest,
        )
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    print(table(speeds))


if __name__ == "__main__":
    main()
