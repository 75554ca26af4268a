"""solve(): the one front door for the command line, benchmarks and everything else."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch

from lehd import problems
from lehd.decoding.rrc import SHORTEST
from lehd.decoding.stop import Stop
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.memory import memory_of
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.model.lehd import LEHD
from lehd.model.native import hurried
from lehd.model.precision import cpu_has_half, in_half
from lehd.plan import VIEWS, Options
from lehd.problems.base import Problem
from lehd.search import Progress, Search
from lehd.types import Instances, Result, Solution

__all__ = ["Progress", "solve"]

DEFAULT_SECONDS = 10.0
SMALL = 1024  # nodes of all rows together: below, a second CPU thread costs more than it gains
LEAST = {"rrc": 0, "beam": 1, "sample": 1, "longest": SHORTEST, "nearest": 2, "seed": 0}
TOKENS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 23}  # nodes of all rows together; larger batches are solved in turn
# What is left of a time limit for answering: for each result, and, no more than a quarter, for a GPU to end its steps.
SECONDS_PER_RESULT, ENDING = 4e-5, {"cpu": 0.0, "cuda": 0.05}


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
    parallel: bool | None = None,
    nearest: int | None = None,
    views: str | None = None,
    turn: bool | None = None,
    half: bool | None = None,
    memory: float | None = None,
    model: LEHD | str | Path | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
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
    parallel    reconstruct as many disjoint partial solutions at once as fit; by default with a time limit only
    nearest     show the model so many near nodes instead of all; by default, unless `rrc` says how long to search, 126
                (TSP; some of them far away) or 100 (CVRP) where that is better (large instances) or saves needed time
    views       let the first construction look at the instance in eight ways, turned and mirrored: "average" decides by
                the mean of what the model says, "best" keeps the shortest of eight solutions
    turn        show the model every partial solution turned or mirrored at random; by default with a time limit only
    half        multiply in half precision; by default on a GPU, and with a time limit on a CPU that is faster so
    memory      GiB that the process may hold; what does not fit together is done in turn
    model       weights: a file, or a loaded model; by default those the package ships
    seed        the same seed and number of iterations give the same result on the same device
    device      "cpu", "cuda", …; by default a GPU if there is one
    progress    called with a `Progress` after every step of the first construction, then after every iteration from 0
    stop        asked at every step; once it says True, the search ends

    An interrupt from the keyboard, or a `stop`, ends the search, not the call: the result says `interrupted`.
    """
    begun = time.perf_counter()
    instances, batch = _instances(data, matrix, demands, capacity, vehicles)
    problem = problems.of(instances)
    numbers = {"rrc": rrc, "beam": beam, "sample": sample, "longest": longest, "nearest": nearest, "seed": seed}
    rrc, beam, sample, longest, nearest, whole_seed = (_whole(name, value) for name, value in numbers.items())
    if beam is not None and sample is not None:
        raise LehdError("give beam or sample, not both")
    if whole_seed is None:
        raise LehdError("seed = None: expected a whole number from 0")
    time_limit, memory = _positive("time_limit", time_limit, "seconds"), _positive("memory", memory, "GiB")
    if views is not None and views not in VIEWS:
        raise LehdError(f"views = {views!r}: expected {' or '.join(VIEWS)}")
    if time_limit is None and rrc is None:
        time_limit = DEFAULT_SECONDS
    options = Options(beam, sample, longest, parallel, nearest, views, turn)
    where = find_device(device)
    network, name = _model(model, problem, where)
    given = None if start is None else _start(problem, instances, start)

    if half is None:
        half = where.type == "cuda" or (time_limit is not None and cpu_has_half())
    room = memory_of(memory, where, half)
    tokens = instances.num_nodes * options.width
    at_once = instances_at_once(where.type, tokens)
    parts = [slice(first, first + at_once) for first in range(0, len(instances), at_once)]
    rng = random.Random(whole_seed)
    ending = None
    if time_limit is not None:
        leaving = SECONDS_PER_RESULT * len(instances) + min(ENDING[where.type], time_limit / 4)
        ending = begun + time_limit - leaving
    results: list[Result] = []
    for number, part in enumerate(parts):
        until = None if ending is None else begun + (ending - begun) * (number + 1) / len(parts)
        rule, stopped = Stop(rrc, until, stop), bool(results) and results[-1].interrupted
        if stopped:  # by the user: the rest get a solution, but no search
            rule = Stop(0, begun)
        search = Search(problem, instances.rows(part), network, where, rule, options, rng, begun, progress, room)
        with _threads(where, len(search.given) * tokens), in_half(half), hurried(time_limit is not None):
            search.run(None if given is None else given.rows(part), stopped)
        results += search.results(whole_seed, name)
    return results if batch else results[0]


def instances_at_once(device: str, tokens: int) -> int:
    """How many instances are worked on together, with so many nodes in all rows of each."""
    return max(1, TOKENS_AT_ONCE[device] // tokens)


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


def _instances(data: Any, matrix: Any, demands: Any, capacity: Any, vehicles: Any) -> tuple[Instances, bool]:
    """What is to be solved, and whether it is a batch."""
    from lehd.io.arrays import as_numbers, checked, coordinate_instances, matrix_instances

    if isinstance(data, Instances):
        if any(extra is not None for extra in (matrix, demands, capacity)):
            raise LehdError("instances already have their distances and demands: give an array to set them here")
        return checked(data, vehicles), len(data) != 1
    if matrix is not None:
        return matrix_instances(matrix, demands, capacity, vehicles, coords=data), False
    if data is None:
        raise LehdError("nothing to solve: give instances, positions or a distance matrix")
    if isinstance(data, str | Path):
        raise LehdError(f"solve() takes data, not a file name: lehd.solve(lehd.read({str(data)!r}))")
    coords = as_numbers(data, "coordinates")
    return coordinate_instances(coords, demands, capacity, vehicles), coords.ndim == 3


def _whole(name: str, value: Any) -> int | None:
    least = LEAST[name]
    if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < least):
        raise LehdError(f"{name} = {value}: expected a whole number from {least}")
    return None if value is None else int(value)


def _positive(name: str, value: Any, unit: str) -> float | None:
    if value is not None and (
        not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf
    ):
        raise LehdError(f"{name} = {value}: expected a positive number of {unit}")
    return None if value is None else float(value)


def _model(model: LEHD | str | Path | None, problem: Problem, device: torch.device) -> tuple[LEHD, str]:
    if isinstance(model, LEHD):
        network, label, source = deepcopy(model), "model", "model"  # the caller's stays where it is, and as it is
    elif model is None:
        return _shipped(problem.name, device)
    elif isinstance(model, str | Path) and str(model):
        network, label, source = load_model(model), Path(model).stem, str(model)
    else:
        raise LehdError(f"model: expected a file of weights or a loaded model, found {type(model).__name__}")
    if not network.config.has(problem.model_sizes):
        raise LehdError(f"{source} was not made for a {problem.name}")
    return network.to(device).eval(), f"{label}@{fingerprint(network)}"


@cache
def _shipped(problem: str, device: torch.device) -> tuple[LEHD, str]:
    """Loaded once in a process: where many small instances are solved it would take as long as they do."""
    path = shipped_weights(problem)
    network = load_model(path)
    return network.to(device).eval(), f"{path.stem}@{fingerprint(network)}"


def _start(problem: Problem, instances: Instances, start: Any) -> Solution:
    if isinstance(start, Result):
        start = start.solution
    if not isinstance(start, Solution):
        if len(instances) != 1:
            raise LehdError("the start of a batch is a Solution with a row for each instance")
        return problem.solution(instances, start)
    if not all(isinstance(tensor, torch.Tensor) for tensor in (start.nodes, start.via_depot)):
        raise LehdError("a Solution holds tensors: nodes of whole numbers, and flags via_depot")
    if start.nodes.is_floating_point() or start.nodes.is_complex():
        raise LehdError("the nodes of a Solution are whole numbers")
    given = Solution(start.nodes.cpu().long(), start.via_depot.cpu().bool())
    problem.check(instances, given)
    return given
