"""solve(): the one front door for the command line, benchmarks and everything else.

Read, construct, reconstruct until the stop, check, answer. Whatever happens on the way, there is a feasible solution
from the first moment on.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lehd import problems
from lehd.decoding.construct import best_rows, construct
from lehd.decoding.rrc import SHORTEST, random_reconstruct, strictly_shorter
from lehd.decoding.select import GREEDY, Beam, Sample, Select
from lehd.decoding.speed import Speed, measure_speed
from lehd.decoding.stop import OutOfTime, Stop
from lehd.errors import LehdError
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.model.lehd import LEHD
from lehd.problems.base import Problem, unit_box
from lehd.types import Incumbent, Instances, Result, Rollout, Solution

DEFAULT_SECONDS = 10.0
CONSTRUCTION_SHARE = 0.8  # of the time left: a first construction that would take more is not begun
ITERATION_SHARE = 0.1  # of the time left: no partial solution is so long that its reconstruction takes more
SMALL = 1024  # nodes of all rows together: below, a second CPU thread costs more than it gains
TOKENS_AT_ONCE = {"cpu": 1 << 19, "cuda": 1 << 23}  # nodes of all rows together; larger batches are solved in turn


@dataclass(frozen=True)
class Progress:
    """Where a search stands. Costs are means where a batch is solved."""

    phase: str  # "construct" or "reconstruct"
    done: int  # construction steps so far, or iterations so far
    total: int | None  # of them in all; None where a time limit decides
    cost: float | None  # of the incumbent
    gain: float | None  # how much shorter it is than the first solution, as a fraction
    seconds: float  # since the call
    solution: Solution | None  # the incumbent


def solve(
    data: Any = None,
    *,
    matrix: Any = None,
    demands: Any = None,
    capacity: Any = None,
    vehicles: Any = None,
    time_limit: float | None = None,
    rrc: int | None = None,
    beam: int | None = None,
    sample: int | None = None,
    start: Solution | Sequence[int] | Sequence[Sequence[int]] | None = None,
    longest: int | None = None,
    model: LEHD | str | Path | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Any:
    """Solve a TSP or a CVRP and return a `Result`; a batch gives a list of them.

    data        `Instances` (as `lehd.read` gives them) or positions: an array (n, 2), or (B, n, 2) for a batch
    matrix      distances (n, n), symmetric or not, in place of `data` or beside it (which then only guides the model)
    demands     of every node, with 0 for the depot in row 0: makes it a CVRP, with `capacity`
    vehicles    the largest number of routes
    time_limit  seconds from this call on, shared by a batch
    rrc         iterations of Random Re-Construct; 0 is construction alone. With neither limit: 10 seconds
    beam        width of a beam search for the first construction; the default is greedy
    sample      draw so many first constructions and keep the best
    start       a solution to improve: a Solution, a tour from 0, or routes of customers 1..n
    longest     the longest partial solution that is reconstructed; by default all nodes, or what the time allows
    model       weights: a file, or a loaded model; by default those the package ships
    seed        the same seed and number of iterations give the same result on the same device
    device      "cpu", "cuda", …; by default a GPU if there is one
    progress    called with a `Progress` after every step and iteration

    An interrupt from the keyboard ends the search, not the call: the result says `interrupted`.
    """
    begun = time.perf_counter()
    instances = _instances(data, matrix, demands, capacity, vehicles)
    problem = problems.of(instances)
    _check_options(time_limit=time_limit, rrc=rrc, beam=beam, sample=sample, longest=longest, seed=seed)
    if time_limit is None and rrc is None:
        time_limit = DEFAULT_SECONDS
    where = _device(device)
    network, name = _model(model, problem, where)
    given = None if start is None else _start(problem, instances, start)

    width = beam or sample or 1
    at_once = max(1, TOKENS_AT_ONCE.get(where.type, 1 << 19) // (instances.num_nodes * width))
    parts = [slice(first, first + at_once) for first in range(0, len(instances), at_once)]
    rng = random.Random(seed)
    results: list[Result] = []
    for number, part in enumerate(parts):
        deadline = None if time_limit is None else begun + time_limit * (number + 1) / len(parts)
        search = _Search(
            problem=problem,
            instances=instances.rows(part),
            model=network,
            device=where,
            stop=Stop(rrc, deadline),
            rng=rng,
            begun=begun,
            progress=progress,
        )
        with _threads(where, len(search.given) * instances.num_nodes * width):
            search.run(None if given is None else given.rows(part), beam, sample, longest)
        results += search.results(seed, name)
    batch = len(instances) != 1 or (data is not None and not isinstance(data, Instances) and _dimensions(data) == 3)
    return results if batch else results[0]


class _Search:
    """One search over instances that fit into memory together."""

    def __init__(
        self,
        problem: Problem,
        instances: Instances,
        model: LEHD,
        device: torch.device,
        stop: Stop,
        rng: random.Random,
        begun: float,
        progress: Callable[[Progress], None] | None,
    ):
        self.problem, self.given, self.model, self.stop, self.rng = problem, instances, model, stop, rng
        self.begun, self.report = begun, progress
        sites = instances.coords if instances.sites is None else instances.sites
        # The model sees the plane scaled to the unit square; distances are measured where they were given.
        self.instances: Instances = replace(instances, coords=unit_box(instances.coords), sites=sites).to(device)
        self.solution = problem.cheap_start(self.instances)
        self.cost = problem.cost(self.instances, self.solution).cpu()
        self.history: list[list[Incumbent]] = [[] for _ in range(len(instances))]
        self.first_cost: float | None = None
        self.iteration = 0
        self.interrupted = False

    def run(self, start: Solution | None, beam: int | None, sample: int | None, longest: int | None) -> None:
        try:
            speed = None
            if self.stop.deadline is not None and not self.problem.trivial(self.instances):
                speed = measure_speed(self.model, self.problem, self.instances, self.stop)
            self._first_solution(start, self._select(beam, sample), speed)
            random_reconstruct(
                self.model,
                self.problem,
                self.instances,
                self.solution,
                self.stop,
                self.rng,
                self._longest(longest, speed),
                self._on_iteration,
            )
        except KeyboardInterrupt:
            self.interrupted = True
        if self.first_cost is None:
            self._keep(self.solution)
        self.seconds = time.perf_counter() - self.begun

    def _select(self, beam: int | None, sample: int | None) -> Select:
        if sample is not None:
            generator = torch.Generator(self.instances.device).manual_seed(self.rng.getrandbits(63))
            return Sample(sample, generator)
        return GREEDY if beam is None else Beam(beam)

    def _first_solution(self, start: Solution | None, select: Select, speed: Speed | None) -> None:
        """The given start, or what the model constructs; the cheap start if there is no time for that."""
        if start is not None:
            self._keep(start.to(self.instances.device))
            return
        customers = self.instances.num_nodes - self.problem.first_node
        if speed is not None:
            needed = speed.seconds(len(self.instances) * select.width, customers)
            if needed > CONSTRUCTION_SHARE * self.stop.time_left():
                self._keep(self.solution)
                return
        draws = [self.rng.randrange(self.instances.num_nodes) for _ in range(len(self.instances))]
        state = self.problem.initial_state(self.instances, torch.tensor(draws, device=self.instances.device))
        try:
            rollout = construct(
                self.model, self.problem, self.instances, state, select, self.stop, self._on_step(customers)
            )
        except OutOfTime:
            self._keep(self.solution)
            return
        best = best_rows(self.problem, self.instances, state, rollout, select.width)
        chosen = Rollout(rollout.nodes[best], rollout.via_depot[best], rollout.log_probability[best])
        self._keep(self._within_fleet(self.problem.complete(state, chosen)))

    def _within_fleet(self, constructed: Solution) -> Solution:
        """The cheap start where it keeps a fleet limit that the construction breaks."""
        if self.instances.vehicles is None:
            return constructed
        objective = [
            self.problem.objective(self.instances, *self.problem.path(each)) for each in (self.solution, constructed)
        ]
        return self.solution.where(objective[0] < objective[1], constructed)

    def _longest(self, longest: int | None, speed: Speed | None) -> int | None:
        """The longest partial solution that can be reconstructed in a small part of the time left."""
        if longest is not None or speed is None:
            return longest
        return max(SHORTEST, speed.longest(len(self.instances), ITERATION_SHARE * self.stop.time_left()))

    # ---- keeping the incumbent

    def _keep(self, solution: Solution) -> None:
        """Take over the first solution, and from then on what is strictly shorter than the incumbent."""
        cost = self.problem.cost(self.instances, solution).cpu()
        first = self.first_cost is None
        if first:
            self.first_cost = float(cost.double().mean())
            self.solution, self.cost, improved = solution, cost, list(range(len(cost)))
        else:
            shorter = self._better(solution, cost)
            self.solution = solution.where(shorter.to(solution.nodes.device), self.solution)
            self.cost, improved = torch.where(shorter, cost, self.cost), shorter.nonzero()[:, 0].tolist()
        seconds = time.perf_counter() - self.begun
        for row in improved:
            self.history[row].append(Incumbent(seconds, self.iteration, self.cost[row].item()))

    def _better(self, solution: Solution, cost: Tensor) -> Tensor:
        old, new = (self.problem.routes_too_many(self.instances, each) for each in (self.solution, solution))
        shorter = strictly_shorter(cost, self.cost)
        if old is None or new is None:
            return shorter
        return (new < old).cpu() | ((new == old).cpu() & shorter)

    def _on_iteration(self, iteration: int, solution: Solution) -> None:
        self.iteration = iteration
        self._keep(solution)
        self._tell("reconstruct", iteration, self.stop.iterations)

    def _on_step(self, steps: int) -> Callable[[int], None] | None:
        return None if self.report is None else lambda step: self._tell("construct", step, steps)

    def _tell(self, phase: str, done: int, total: int | None) -> None:
        if self.report is None:
            return
        cost = gain = None
        if self.first_cost is not None:
            cost = float(self.cost.double().mean())
            gain = 1 - cost / self.first_cost if self.first_cost else 0.0
        solution = None if self.first_cost is None else self.solution
        self.report(Progress(phase, done, total, cost, gain, time.perf_counter() - self.begun, solution))

    def results(self, seed: int, model: str) -> list[Result]:
        """The incumbents, each checked against the instance as it was given."""
        solution = self.solution.to("cpu")
        self.problem.check(self.given, solution)
        costs = self.problem.cost(self.given, solution).tolist()
        too_many = self.problem.routes_too_many(self.given, solution)
        excess = [0] * len(costs) if too_many is None else too_many.tolist()
        return [
            Result(
                instance=self.given.rows(slice(row, row + 1)),
                solution=solution.rows(slice(row, row + 1)),
                cost=cost,
                history=tuple(self.history[row]),
                seconds=self.seconds,
                iterations=self.iteration,
                seed=seed,
                model=model,
                interrupted=self.interrupted,
                notes=(f"the fleet limit was not met: {excess[row]} routes too many",) if excess[row] else (),
            )
            for row, cost in enumerate(costs)
        ]


@contextmanager
def _threads(device: torch.device, tokens: int) -> Iterator[None]:
    """One CPU thread for small work: more of them would mostly wait for each other, and on a busy machine for long."""
    before = torch.get_num_threads()
    if device.type == "cpu" and tokens < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---- what came in


def _instances(data: Any, matrix: Any, demands: Any, capacity: Any, vehicles: Any) -> Instances:
    from lehd.io.arrays import coordinate_instances, matrix_instances

    if isinstance(data, Instances):
        if any(extra is not None for extra in (matrix, demands, capacity)):
            raise LehdError("instances already have their distances and demands: give an array to set them here")
        if vehicles is None:
            return data
        if data.demands is None:
            raise LehdError("vehicles are for a CVRP: these instances have no demands")
        count = torch.as_tensor(vehicles).expand(len(data)).clone()
        if count.is_floating_point() or count.min() < 1:
            raise LehdError("vehicles must be a whole number from 1")
        return replace(data, vehicles=count.long())
    if matrix is not None:
        return matrix_instances(matrix, demands, capacity, vehicles, coords=data)
    if data is None:
        raise LehdError("nothing to solve: give instances, positions or a distance matrix")
    if isinstance(data, str | Path):
        raise LehdError(f"solve() takes data, not a file name: lehd.solve(lehd.read({str(data)!r}))")
    return coordinate_instances(data, demands, capacity, vehicles)


def _dimensions(data: Any) -> int:
    return len(data.shape) if hasattr(data, "shape") else len(torch.as_tensor(data).shape)


def _check_options(
    *,
    time_limit: float | None,
    rrc: int | None,
    beam: int | None,
    sample: int | None,
    longest: int | None,
    seed: int,
) -> None:
    if time_limit is not None and not (isinstance(time_limit, int | float) and 0 < time_limit < math.inf):
        raise LehdError(f"time_limit = {time_limit}: expected a positive number of seconds")
    least = {
        "rrc": (rrc, 0),
        "beam": (beam, 1),
        "sample": (sample, 1),
        "longest": (longest, SHORTEST),
        "seed": (seed, 0),
    }
    for name, (value, minimum) in least.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < minimum):
            raise LehdError(f"{name} = {value}: expected a whole number from {minimum}")
    if beam is not None and sample is not None:
        raise LehdError("give beam or sample, not both")


def _device(device: str | torch.device | None) -> torch.device:
    try:
        where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise LehdError(f"device {device}: {str(error).splitlines()[0]}") from None
    return where


def _model(model: LEHD | str | Path | None, problem: Problem, device: torch.device) -> tuple[LEHD, str]:
    path = None if isinstance(model, LEHD) else Path(model or shipped_weights(problem.name))
    network = model if isinstance(model, LEHD) else load_model(path or "")
    sizes = ("num_features", "num_resources", "actions_per_node")
    if any(getattr(network.config, size) != getattr(problem, size) for size in sizes):
        raise LehdError(f"{path or 'the model'} was not made for a {problem.name}")
    return network.to(device).eval(), f"{path.stem if path else 'model'}@{fingerprint(network)}"


def _start(problem: Problem, instances: Instances, start: Any) -> Solution:
    if not isinstance(start, Solution):
        if len(instances) != 1:
            raise LehdError("the start of a batch is a Solution with a row for each instance")
        return problem.solution(instances, start)
    problem.check(instances, start.to("cpu"))
    return start
