"""Which of several models is better: on seeded instances that no training and no benchmark has seen.

    python -m lehd.bench.unseen CVRP shipped runs/24/weights.safetensors --sets uniform-100 x_type_cvrp-200 --rrc 20

Every model constructs the same instances, all nodes in view, and goes on with the same draws by so many iterations of
RRC as under a time limit: many parts at once, turned, kept piece by piece. A difference is that of mean costs, in per
cent of the first model's, ± its standard error over the instances. With --output every model and set gets a line.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from lehd.bench import speed
from lehd.bench.store import GREEDY, append_lines
from lehd.bench.text import markdown
from lehd.data.dataset import RECIPES, SHARD, check_recipe, draw_shard, problem_of
from lehd.decoding.rrc import constructor, random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.io.arrays import coordinate_instances
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from lehd.problems.base import Problem, unit_box
from lehd.types import Instances, Solution

UNIFORM, SHIPPED = "uniform", "shipped"
FIRST_SHARD = 1_000_000  # labels are of shards with smaller numbers
SETS = {
    "TSP": [*(f"{UNIFORM}-{nodes}" for nodes in (100, 200, 500, 1000)), "shapes_tsp-100", "shapes_tsp-500"],
    "CVRP": [
        *(f"{UNIFORM}-{nodes}" for nodes in (100, 200, 500, 1000)),
        *("varied_cvrp-100", "varied_cvrp-300", "x_type_cvrp-100", "x_type_cvrp-300", "x_type_cvrp-600"),
    ],
}


@dataclass(frozen=True)
class Measured:
    """The costs of one model on one set, after greedy construction or so many iterations of RRC."""

    set: str
    model: str  # its file
    weights: str  # their hash
    method: str
    costs: tuple[float, ...]  # of each instance


def draw(problem: str, name: str, count: int) -> Instances:
    """`count` instances of a set: uniform ones of the paper's kind, or of a recipe of labels."""
    kind, _, size = name.rpartition("-")
    if not size.isdecimal() or kind not in (UNIFORM, *RECIPES):
        raise LehdError(f"{name}: expected uniform-N or one of {', '.join(RECIPES)} with -N, such as x_type_cvrp-200")
    nodes = int(size)
    if kind == UNIFORM:
        found = speed.draw(problem, nodes, count)
    else:
        if problem_of(kind) != problem:
            raise LehdError(f"{name}: no {problem} instances")
        shards = range(FIRST_SHARD, FIRST_SHARD - (-count // SHARD))
        check_recipe(kind, nodes, shards)
        drawn = [draw_shard(kind, nodes, shard) for shard in shards]
        coords, *others = (np.concatenate(arrays)[:count] for arrays in zip(*drawn, strict=True))
        demands, capacity = others or (None, None)
        found = coordinate_instances(coords, demands, capacity)
    return replace(found, coords=unit_box(found.coords), sites=found.coords)


@torch.no_grad()
def solve_set(
    model: LEHD, problem: Problem, instances: Instances, iterations: Sequence[int], longest: int
) -> dict[str, torch.Tensor]:
    """Costs (B,) after greedy construction, and after each number of iterations."""
    state = problem.initial_state(instances)
    construct = constructor(model, problem, instances.device, nodes=instances.num_nodes + 1)
    first = problem.complete(state, construct(instances, state))
    problem.check(instances, first)
    costs = {GREEDY: problem.cost(instances, first)}
    if not iterations:
        return costs

    def note(iteration: int, solution: Solution) -> None:
        if iteration in iterations:
            problem.check(instances, solution)
            costs[f"RRC {iteration}"] = problem.cost(instances, solution)

    random_reconstruct(
        model, problem, instances, first, max_iterations(max(iterations)), random.Random(0), longest=longest,
        coverage=instances.num_nodes, on_iteration=note, turn=True,
    )  # fmt: skip
    return costs


def measure(
    problem: str,
    weights: Sequence[str],
    sets: Sequence[str] | None = None,
    count: int = 128,
    iterations: Sequence[int] = (),
    longest: int = 100,
    device: str | None = None,
    watch: Callable[[Measured], None] = lambda measured: None,
) -> list[Measured]:
    """All models, given by their files or as `shipped`, on all sets."""
    kind, where = PROBLEMS[problem], find_device(device)
    models = [load_model(shipped_weights(problem) if path == SHIPPED else path, where).eval() for path in weights]
    for path, model in zip(weights, models, strict=True):
        if not model.config.has(kind.model_sizes):
            raise LehdError(f"{path}: weights for another problem than {problem}")
    found = []
    for name in sets or SETS[problem]:
        instances = draw(problem, name, count).to(where)
        for path, model in zip(weights, models, strict=True):
            for method, costs in solve_set(model, kind, instances, iterations, longest).items():
                found.append(Measured(name, path, fingerprint(model), method, tuple(costs.double().tolist())))
                watch(found[-1])
    return found


def difference(first: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Of mean costs, in per cent of the first, and its standard error over the instances."""
    one, two = np.array(first), np.array(other)
    apart = 100 * (two - one) / one.mean()
    error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
    return float(apart.mean()), float(error)


def table(found: Sequence[Measured]) -> str:
    """A row for each set and method: the first model's mean cost, and by how much each of the others differs."""
    models = list(dict.fromkeys(each.model for each in found))
    rows: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for each in found:
        rows.setdefault((each.set, each.method), []).append(each.costs)
    cells = [
        [*place, f"{np.mean(first):.6g}", *("{:+.3f} ± {:.3f}".format(*difference(first, other)) for other in others)]
        for place, (first, *others) in rows.items()
    ]
    return markdown(["set", "method", models[0], *(f"{model}, %" for model in models[1:])], cells)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=list(PROBLEMS))
    parser.add_argument("weights", nargs="+", help=f"files; {SHIPPED}: the weights of the package")
    parser.add_argument("--sets", nargs="+", help="kind-nodes, such as uniform-100 or x_type_cvrp-300")
    parser.add_argument("--instances", type=int, default=128, help="of each set")
    parser.add_argument("--rrc", nargs="*", type=int, default=[], help="iterations after which to look")
    parser.add_argument("--longest", type=int, default=100, help="part that RRC constructs again")
    parser.add_argument("--device")
    parser.add_argument("--output", type=Path, help="a .jsonl file to append to")
    given = parser.parse_args(arguments)

    def watch(measured: Measured) -> None:
        print(measured.set, measured.model, measured.method, f"{np.mean(measured.costs):.6g}", flush=True)
        if given.output is not None:
            append_lines(given.output, [json.dumps({"bench": "unseen", **asdict(measured)})])

    try:
        if given.instances < 1 or min(given.rrc, default=1) < 1:
            raise LehdError("--instances and --rrc take numbers from 1")
        names = dict.fromkeys(given.weights)
        found = measure(
            given.problem, list(names), given.sets, given.instances, given.rrc, given.longest, given.device, watch
        )
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    print(table(found))


if __name__ == "__main__":
    main()
