"""Random Re-Construct: take a random partial solution, let the model construct it anew, keep it if strictly shorter."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lehd.decoding.construct import construct
from lehd.decoding.picture import faithful, redrawn
from lehd.decoding.replay import Replays
from lehd.decoding.stop import OutOfTime, Stop
from lehd.distance import strictly_shorter
from lehd.memory import Memory
from lehd.model.lehd import LEHD
from lehd.problems.base import Problem
from lehd.symmetry import turned_at_random
from lehd.types import Instances, Rollout, Solution

SHORTEST = 4  # shorter partial solutions have nothing to decide
STUCK = 30  # iterations in which nothing shorter was found
DETOUR = 0.3  # how much longer a part may be then on average: so many times the mean distance between two stops
FEW = 24  # lengths that come again soon: on a GPU what has been done before is done faster
ConstructPart = Callable[..., Rollout]  # of instances and state, with nearest= and stop=


def random_reconstruct(
    model: LEHD,
    problem: Problem,
    instances: Instances,
    solution: Solution,
    stop: Stop,
    rng: random.Random,
    longest: int | None = None,
    coverage: int = 0,
    nearest: int | None = None,
    on_iteration: Callable[[int, Solution], None] | None = None,
    memory: Memory | None = None,
    construct_part: ConstructPart | None = None,
    turn: bool = False,
    pieces: bool | None = None,
    detours: bool = False,
) -> Solution:
    """Improve the solutions of all instances until `stop`; none of them ever gets worse.

    Each iteration draws one length, uniform from 4 to the number of nodes or to `longest`, and for every instance a
    position and direction of its own. The paper reconstructs one partial solution of each instance at a time.
    With a `coverage` there are as many disjoint ones as have so many nodes together, up to the whole solution; each is
    kept or dropped on its own: with fixed ends they never meet. On a GPU these have one of a few lengths. Where one
    iteration does not reach the whole of a tour, the next one goes on where it ended. Parts that do not fit into the
    `memory` together are constructed in turn. Who constructs more than this can hand over what `constructor` gives,
    which remembers how to do things fast and has a `memory` of its own.

    What the model once got wrong it gets wrong again, unless it looks different: with `turn` every partial solution is
    shown turned or mirrored at random. Where positions do not show the distances, the model sees each in a picture of
    its own.

    With `pieces`, by default where there is a `coverage`, a new partial solution that is not better as a whole may be
    so in pieces, and one that is better worse in some: of old and new each piece is the shorter one.

    With `detours`, and a time limit, a search that is stuck takes over parts that are a little longer too, the less of
    it the less time is left. What is returned is the shortest solution there was.
    """
    size = solution.nodes.shape[1]
    upper = size if longest is None else min(longest, size)
    lower = min(SHORTEST, upper)
    generator = torch.Generator(instances.device)
    generator.manual_seed(rng.getrandbits(63))
    on_gpu = instances.device.type == "cuda"
    if construct_part is None:
        construct_part = constructor(model, problem, instances.device, memory, nodes=0 if coverage else upper + 1)
    lengths = few_lengths(lower, upper) if on_gpu and coverage else range(lower, upper + 1)
    redraw, pieces = not faithful(instances), coverage > 0 if pieces is None else pieces
    best = Best(problem, instances, solution, stop) if detours and stop.deadline is not None else None
    iteration = taken = covered = 0  # nodes of the last iteration, and since the solution was last drawn at random
    while not problem.trivial(instances) and not stop.done(iteration):
        length = rng.choice(lengths)
        count = max(1, min(coverage, size) // length)
        if covered and covered + count * length <= size:
            solution = problem.onward(instances, solution, taken, generator)
        else:
            solution, covered = problem.randomise(instances, solution, generator), 0
        taken = count * length if coverage else size
        covered += taken
        partial = problem.cut(instances, solution, length, count)
        if redraw:
            partial = replace(partial, instances=redrawn(partial.instances, generator))
        elif turn:
            partial = replace(partial, instances=turned_parts(partial.instances, generator))
        state = partial.state()
        try:
            rollout = construct_part(partial.instances, state, nearest=nearest, stop=stop)
        except OutOfTime:
            break
        measure = functools.partial(problem.objective_of_part, partial)
        old, constructed = measure(state.available, partial.via_depot), rollout
        if pieces:
            rollout = problem.best_of_both(partial, rollout)
        taken_over = strictly_shorter(measure(rollout.nodes, rollout.via_depot), old)
        if best is not None:
            longer, allowed = measure(constructed.nodes, constructed.via_depot), best.allowance(count, stop, generator)
            detour = ~taken_over & strictly_shorter(longer, old + allowed)
            rollout, taken_over = constructed.where(detour, rollout), taken_over | detour
        solution = problem.splice(solution, partial, rollout, taken_over)
        iteration += 1
        if best is not None:
            best.note(problem, instances, solution)
        if on_iteration is not None:
            on_iteration(iteration, solution)
    return solution if best is None else best.solution


class Best:
    """The shortest solutions of a search that goes by longer ones where it is stuck."""

    def __init__(self, problem: Problem, instances: Instances, solution: Solution, stop: Stop):
        self.solution, self.cost = solution, problem.cost(instances, solution)
        self.since = torch.zeros(len(instances), dtype=torch.long, device=instances.device)  # it was found: iterations
        self.distance = self.cost.double() / solution.nodes.shape[1]
        self.time = max(stop.time_left(), 1e-9)

    def allowance(self, count: int, stop: Stop, generator: torch.Generator) -> Tensor:
        """How much longer each of so many parts of every instance may be."""
        mean = DETOUR * self.distance * (max(stop.time_left(), 0.0) / self.time) * (self.since >= STUCK)
        return (mean[:, None] * mean.new_empty(len(mean), count).exponential_(generator=generator)).flatten()

    def note(self, problem: Problem, instances: Instances, solution: Solution) -> None:
        cost = problem.cost(instances, solution)
        better = strictly_shorter(cost, self.cost)
        self.solution, self.cost = solution.where(better, self.solution), torch.where(better, cost, self.cost)
        self.since = torch.where(better, 0, self.since + 1)


def constructor(
    model: LEHD, problem: Problem, device: torch.device, memory: Memory | None = None, nodes: int = 0
) -> ConstructPart:
    """Greedy construction; on a GPU by recorded steps, best if the largest number of `nodes` to come is known."""
    if device.type == "cuda":
        return Replays(model, problem, nodes=nodes, memory=memory).construct
    return functools.partial(construct, model, problem, memory=memory)


def turned_parts(parts: Instances, generator: torch.Generator) -> Instances:
    """The same, each turned or mirrored at random to the model's eyes; distances are measured where they were."""
    sites = parts.coords if parts.sites is None else parts.sites
    return replace(parts, coords=turned_at_random(parts.coords, generator), sites=sites)


def few_lengths(lower: int, upper: int) -> Sequence[int]:
    """Some of the lengths from lower to upper, evenly spread."""
    return sorted({lower + round((upper - lower) * place / (FEW - 1)) for place in range(FEW)})
