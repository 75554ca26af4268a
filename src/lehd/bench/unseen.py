"""Which of several models is better: on seeded instances that no training and no benchmark has seen.

    python -m lehd.bench.unseen CVRP shipped runs/24/weights.safetensors --sets uniform-100 x_type_cvrp-300 --rrc 20

Every model constructs the same instances, all nodes in view, and goes on with the same draws by so many iterations of
RRC: many parts of up to 100 nodes at once, turned, kept piece by piece. A difference is that of mean costs, in per cent
of the first model's, ± its standard error over the instances. With --output every model and set gets a line.
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

from lehd.bench.speed import CAPACITIES
from lehd.bench.store import append_lines, rrc
from lehd.bench.text import markdown
from lehd.data.dataset import RECIPES, SHARD, check_recipe, problem_of
from lehd.data.label_file import fresh_instances
from lehd.decoding.rrc import SHORTEST, constructor, random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.memory import Memory
from lehd.model.checkpoint import fingerprint, load_for
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from lehd.problems.base import Problem, in_unit_box
from lehd.types import Instances, Solution

PAPER = "uniform"  # CVRPs with the paper's capacity for their size, beside the recipes of labels
FIRST_SHARD = 1_000_000  # labels are of shards with smaller numbers
USUAL_LENGTH = 100  # of the parts that RRC constructs again, at most
SETS = {
    "TSP": [*(f"uniform_tsp-{nodes}" for nodes in (100, 200, 500, 1000)), "shapes_tsp-100", "shapes_tsp-500"],
    "CVRP": [
        *(f"{PAPER}-{nodes}" for nodes in CAPACITIES),
        *("varied_cvrp-100", "varied_cvrp-300", "x_type_cvrp-100", "x_type_cvrp-300", "x_type_cvrp-600"),
    ],
}


@dataclass(frozen=True)
class Measured:
    """The costs of one model on one set, after greedy construction or so many iterations of RRC."""

    set: str
    model: str  # the file of its weights, or `shipped`
    weights: str  # hash of the weights
    method: str
    costs: tuple[float, ...]  # of each instance


def draw(problem: str, name: str, count: int) -> Instances:
    """The first `count` instances of a set, which is called after what is drawn and the number of nodes to visit."""
    kind, _, size = name.rpartition("-")
    if not size.isdecimal() or kind not in (PAPER, *RECIPES):
        raise LehdError(f"{name}: expected {PAPER}-N or one of {', '.join(RECIPES)} with -N, such as x_type_cvrp-200")
    nodes, shards = int(size), range(FIRST_SHARD, FIRST_SHARD - (-count // SHARD))
    recipe = "uniform_cvrp" if kind == PAPER else kind
    check_recipe(recipe, nodes, shards)
    if problem_of(recipe) != problem:
        raise LehdError(f"{name}: no {problem} instances")
    found = fresh_instances(recipe, nodes, shards).instances.rows(slice(count))
    if kind == PAPER and found.capacity is not None:
        found = replace(found, capacity=torch.full_like(found.capacity, CAPACITIES.get(nodes, 50)))
    return in_unit_box(found)


@torch.no_grad()
def solve_set(
    model: LEHD, problem: Problem, instances: Instances, iterations: Sequence[int], longest: int
) -> dict[str, torch.Tensor]:
    """Costs (B,) after greedy construction, and after each number of iterations."""
    state, memory = problem.initial_state(instances), Memory()
    construct = constructor(model, problem, instances.device, memory, nodes=instances.num_nodes + 1)
    first = problem.complete(state, construct(instances, state))
    costs: dict[str, torch.Tensor] = {}

    def note(iteration: int, solution: Solution) -> None:
        if iteration == 0 or iteration in iterations:
            problem.check(instances, solution)
            costs[rrc(iteration)] = problem.cost(instances, solution).double()

    note(0, first)
    random_reconstruct(
        model, problem, instances, first, max_iterations(max(iterations, default=0)), random.Random(0),
        longest=longest, coverage=instances.num_nodes, on_iteration=note, memory=memory, turn=True,
    )  # fmt: skip
    return costs


def measure(
    problem: str,
    weights: Sequence[str],
    sets: Sequence[str] | None = None,
    count: int = 128,
    iterations: Sequence[int] = (),
    longest: int = USUAL_LENGTH,
    device: str | None = None,
    watch: Callable[[Measured], None] = lambda measured: None,
) -> list[Measured]:
    """All models, given by their files or as `shipped`, on all sets."""
    if count < 1 or min(iterations, default=1) < 1 or longest < SHORTEST:
        raise LehdError(f"instances and iterations are counted from 1, the longest part has {SHORTEST} nodes at least")
    kind, where = PROBLEMS[problem], find_device(device)
    models = {path: load_for(problem, kind.model_sizes, Path(path), where) for path in weights}
    hashes = {path: fingerprint(model) for path, model in models.items()}
    drawn = {name: draw(problem, name, count) for name in sets or SETS[problem]}
    found = []
    for name, given in drawn.items():
        instances: Instances = given.to(where)
        for path, model in models.items():
            for method, costs in solve_set(model, kind, instances, iterations, longest).items():
                found.append(Measured(name, path, hashes[path], method, tuple(costs.tolist())))
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
    parser.add_argument("weights", nargs="+", help="files; shipped: the weights of the package")
    parser.add_argument("--sets", nargs="+", help="what is drawn and how large, such as x_type_cvrp-300")
    parser.add_argument("--instances", type=int, default=128, help="of each set")
    parser.add_argument("--rrc", nargs="*", type=int, default=[], help="iterations after which to look")
    parser.add_argument("--longest", type=int, default=USUAL_LENGTH, help="part that RRC constructs again")
    parser.add_argument("--device")
    parser.add_argument("--output", type=Path, help="a .jsonl file to append to")
    given = parser.parse_args(arguments)

    def watch(measured: Measured) -> None:
        print(measured.set, measured.model, measured.method, f"{np.mean(measured.costs):.6g}", flush=True)
        if given.output is not None:
            append_lines(given.output, [json.dumps({"bench": "unseen", **asdict(measured)})])

    try:
        found = measure(
            given.problem, given.weights, given.sets, given.instances, given.rrc, given.longest, given.device, watch
        )
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    print(table(found))


if __name__ == "__main__":
    main()
