"""The solvers that make labels, by name. For training data alone: `solve` never calls them.

Workers import this module, and need no torch for it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lehd.errors import LehdError
from lehd.labels import binaries, fast_tsp, hgs, ortools
from lehd.work.units import Failure, attempt


class Task(NamedTuple):
    """One instance; without demands it is a TSP."""

    coords: NDArray[np.float32]
    demands: NDArray[np.int64] | None = None
    capacity: int | None = None


class Batch(NamedTuple):
    """Some instances of a shard or part, to be solved one after the other: the content of a unit."""

    shard: int  # or part
    rows: range
    tasks: list[Task]


class Kind(NamedTuple):
    problems: tuple[str, ...]
    seconds: float  # for an instance, where the user does not say
    package: str | None  # what must be installed; None: a program whose path the user gives
    hint: str


KINDS = {
    "fast-tsp": Kind(("TSP",), 0.02, "fast_tsp", "pip install lehd[labels]"),
    "hgs": Kind(("CVRP",), 0.4, "hygese", "pip install lehd[labels]"),
    "ortools": Kind(("TSP", "CVRP"), 3.0, "ortools", "pip install lehd[ortools]"),
    "lkh": Kind(("TSP",), 1.0, None, "--binary PATH"),
    "concorde": Kind(("TSP",), 60.0, None, "--binary PATH"),
}
DEFAULT = {"TSP": "fast-tsp", "CVRP": "hgs"}
PATIENCE = 20  # a solver is given up after so many times its time, and
GRACE = 120.0  # so many seconds
NO_LIMIT = 3600.0  # seconds for an instance, after which a solver that counts iterations is given up


@dataclass(frozen=True)
class Solver:
    """Solves one instance; raises whatever goes wrong."""

    name: str
    seconds: float  # for an instance; where iterations are counted, a guess
    binary: Path | None = None
    iterations: int | None = None  # the end after so many without progress, in place of a time: repeatable

    def __call__(self, task: Task) -> list[list[int]]:
        """Routes of customers 1..n; a TSP's tour is the only route."""
        coords, demands, capacity = task
        match self.name:
            case "fast-tsp":
                routes = [fast_tsp.solve_tsp(coords, self.seconds)]
            case "hgs":
                assert demands is not None
                assert capacity is not None
                routes = hgs.solve_cvrp(coords, demands, capacity, self.seconds, self.iterations)
            case "ortools":
                routes = ortools.solve_routes(coords, demands, capacity, self.seconds)
            case _:
                assert self.binary is not None
                run = binaries.lkh_tour if self.name == "lkh" else binaries.concorde_tour
                routes = [run(self.binary, binaries.tsplib_text(coords), self.seconds)]
        check_routes(task, routes)
        return routes


@dataclass(frozen=True)
class SolveEach:
    """The job: routes for every instance of a batch. That a solver finds none is an answer, and not tried again."""

    solver: Solver

    def __call__(self, batch: Batch) -> list[list[list[int]] | Failure] | Failure:
        answers = [attempt(self.solver, task) for task in batch.tasks]
        # That the solver is not installed here says nothing about an instance.
        return next((answer for answer in answers if isinstance(answer, Failure) and answer.fatal), answers)


def make_solver(
    problem: str,
    name: str | None = None,
    seconds: float | None = None,
    binary: Path | None = None,
    iterations: int | None = None,
) -> Solver:
    """The solver of that name, or the problem's own, once it is known to be there."""
    name = name or DEFAULT[problem]
    if name not in KINDS:
        raise LehdError(f"no label solver {name!r}; there are {', '.join(KINDS)}")
    kind = KINDS[name]
    if problem not in kind.problems:
        fitting = ", ".join(other for other, each in KINDS.items() if problem in each.problems)
        raise LehdError(f"{name} makes no {problem} labels; {fitting} do")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise LehdError(f"{seconds} seconds for an instance: expected a positive number")
    if iterations is not None and (name != "hgs" or seconds is not None or iterations < 1):
        raise LehdError("--iterations N is for hgs, in place of --seconds, and at least 1")
    if kind.package is None:
        binary = find_program(name, binary, kind.hint)
    elif binary is not None:
        raise LehdError(f"--binary is for lkh and concorde; {name} is a Python package")
    elif find_spec(kind.package) is None:
        raise LehdError(f"{name} is not installed: {kind.hint}")
    return Solver(name, kind.seconds if seconds is None else seconds, binary, iterations)


def find_program(name: str, given: Path | None, option: str) -> Path:
    """The user's program, in this folder or on the search path: of ./LKH, a Path keeps no more than LKH."""
    place = None if given is None else os.path.expanduser(given)
    found = None if place is None else shutil.which(os.path.abspath(place)) or shutil.which(place)
    if found is None:
        raise LehdError(f"{name} needs a program of yours that can be run: {option} (given: {given})")
    return Path(found).resolve()  # it is started in other folders


def limit_of(solver: Solver) -> dict[str, float]:
    """When it ends, as manifests say it."""
    return {"seconds": solver.seconds} if solver.iterations is None else {"iterations": solver.iterations}


def patience(solver: Solver, instances: int = 1) -> float:
    """Seconds after which whoever works on so many instances is given up."""
    each = PATIENCE * solver.seconds if solver.iterations is None else NO_LIMIT
    return each * instances + GRACE


def check_routes(task: Task, routes: list[list[int]]) -> None:
    """Raise unless every node is visited once and no vehicle overloaded."""
    first = 0 if task.demands is None else 1
    if sorted(node for route in routes for node in route) != list(range(first, len(task.coords))):
        raise RuntimeError("the solver's answer does not visit every node once")
    demands, capacity = task.demands, task.capacity
    if demands is not None and any(int(demands[route].sum()) > (capacity or 0) for route in routes):
        raise RuntimeError("the solver's answer overloads a vehicle")
