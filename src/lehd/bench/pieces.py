"""What Random Re-Construct gains by keeping new parts piece by piece, beside keeping them as a whole or not at all.

    python -m lehd.bench.pieces --problem TSP --nodes 1000 --instances 2 --iterations 20 --nearest 100

Seeded instances, TSPs uniform and CVRPs X-type, and an iteration reaches the whole of a solution. The same parts, put
into the same solutions, are judged both ways; then a search of its own goes by wholes alone, from the same first
solution.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lehd.bench.text import markdown
from lehd.data.generate import uniform_tsp, x_type_cvrp
from lehd.decoding.construct import construct
from lehd.decoding.rrc import random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.device import find_device
from lehd.io.arrays import coordinate_instances
from lehd.model.checkpoint import load_model, shipped_weights
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from lehd.problems.base import Problem, in_unit_box
from lehd.types import Instances, PartialSolution, Rollout, Solution

ROWS = 4  # of the table: so many equal stretches of the search


@dataclass
class Gains:
    """By how much parts that were constructed anew are shorter."""

    whole: float = 0.0
    pieces: float = 0.0


def watched(problem: Problem, gains: Gains) -> Problem:
    """The same problem, which takes down what each way to keep parts gains."""

    class Watched(type(problem)):  # type: ignore[misc]
        def best_of_both(self, partial: PartialSolution, rollout: Rollout) -> Rollout:
            best: Rollout = super().best_of_both(partial, rollout)

            def cost(nodes: Tensor, via_depot: Tensor) -> Tensor:
                found: Tensor = self.objective_of_part(partial, nodes, via_depot)
                return found.double().where(partial.offset >= 0, 0.0)

            label = cost(partial.path[:, 1:-1], partial.via_depot)
            gains.whole += (label - cost(rollout.nodes, rollout.via_depot)).clamp(min=0).sum().item()
            gains.pieces += (label - cost(best.nodes, best.via_depot)).clamp(min=0).sum().item()
            return best

    made: Problem = Watched()
    return made


def draw(problem: str, nodes: int, count: int) -> Instances:
    rng = np.random.default_rng([nodes, count])
    if problem == "TSP":
        found = coordinate_instances(uniform_tsp(rng, count, nodes))
    else:
        drawn = x_type_cvrp(rng, count, nodes)
        found = coordinate_instances(drawn.coords, drawn.demands, drawn.capacity)
    return in_unit_box(found)


def compare(
    model: LEHD, name: str, nodes: int, count: int, iterations: int, longest: int | None, nearest: int | None
) -> str:
    """A table: stretches of the search by pieces, what each way gains in them, and costs of both searches."""
    device = next(model.parameters()).device
    problem, instances = PROBLEMS[name], draw(name, nodes, count).to(device)
    state = problem.initial_state(instances)
    view = problem.in_view if nodes > 2 * problem.in_view else None
    begin = problem.complete(state, construct(model, problem, instances, state, nearest=view))
    first = problem.cost(instances, begin).double()
    ends = [iterations * (row + 1) // ROWS for row in range(ROWS)]

    def search(kind: Problem, pieces: bool, at_end: dict[int, tuple[str, ...]], gains: Gains) -> None:
        def note(iteration: int, solution: Solution) -> None:
            if iteration in ends:
                change = 100 * (problem.cost(instances, solution).double() / first - 1).mean().item()
                shares = [100 * each / first.sum().item() for each in (gains.whole, gains.pieces)]
                at_end[iteration] = (f"{change:.3f}", *(f"{share:.3f}" for share in shares))
                gains.whole = gains.pieces = 0.0

        random_reconstruct(
            model, kind, instances, begin, max_iterations(iterations), random.Random(0),
            longest=longest, coverage=nodes, nearest=nearest, on_iteration=note, turn=True, pieces=pieces,
        )  # fmt: skip

    by_pieces: dict[int, tuple[str, ...]] = {}
    by_wholes: dict[int, tuple[str, ...]] = {}
    gains = Gains()
    search(watched(problem, gains), True, by_pieces, gains)
    search(problem, False, by_wholes, Gains())
    columns = ["iterations", "gain of wholes, %", "gain of pieces, %", "search by pieces, %", "search by wholes, %"]
    rows = [[end, *by_pieces[end][1:], by_pieces[end][0], by_wholes[end][0]] for end in dict.fromkeys(ends) if end]
    return markdown(columns, rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", choices=list(PROBLEMS), default="TSP")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--longest", type=int, help="part of a solution; by default all of it")
    parser.add_argument("--nearest", type=int, help="nodes in view; by default all")
    parser.add_argument("--weights", help="by default those of the package")
    parser.add_argument("--device")
    given = parser.parse_args(arguments)
    model = load_model(given.weights or shipped_weights(given.problem)).to(find_device(given.device)).eval()
    with torch.no_grad():
        print(
            compare(model, given.problem, given.nodes, given.instances, given.iterations, given.longest, given.nearest)
        )


if __name__ == "__main__":
    main()
