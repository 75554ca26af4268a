"""Test sets whose seeds are known, drawn again; and reference costs, from a solver that makes labels.

    python -m lehd.bench.make FOLDER --sets cvrp200 cvrp500 --solver hgs --seconds 10 --limit 128
    python -m lehd.bench.make FOLDER --from data/uniform --sets tsp200 tsp500 --solver lkh --binary ./LKH --seconds 60

The instances come out bit for bit as published; with --from they are those of files that are there, of which nothing
else is kept. References are another matter: they are what the solver finds in its time, and the file says so. Those
that were found before, such as those in the repository's folder labels (NAME-costs.npz), need no solver: --costs names
their folder. Without any, gaps cannot be measured with the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lehd.data.dataset import read_arrays, write_arrays
from lehd.errors import LehdError
from lehd.io.arrays import coordinate_instances
from lehd.labels.solvers import KINDS, Task, make_solver, patience
from lehd.work.local import Pool
from lehd.work.run import run_units
from lehd.work.units import Failure, Unit

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Recipe:
    problem: str
    count: int
    nodes: int  # to visit
    seed: int
    capacity: int | None = None

    def draw(self) -> Arrays:
        """As the paper's authors drew them."""
        random = np.random.RandomState(self.seed)
        if self.capacity is None:
            return {"coords": random.uniform(size=(self.count, self.nodes, 2))}
        depot = random.uniform(size=(self.count, 1, 2))
        customers = random.uniform(size=(self.count, self.nodes, 2))
        demands = random.randint(1, 10, size=(self.count, self.nodes))
        return {
            "coords": np.concatenate([depot, customers], 1),
            "demands": np.pad(demands, ((0, 0), (1, 0))).astype(np.int16),
            "capacity": np.full(self.count, self.capacity, np.int32),
        }


RECIPES = {
    "tsp20": Recipe("TSP", 10_000, 20, 1234),
    "tsp50": Recipe("TSP", 10_000, 50, 1234),
    "tsp100_s2023": Recipe("TSP", 1000, 100, 2023),
    "cvrp100_paper": Recipe("CVRP", 10_000, 100, 1234, 50),
    "cvrp200": Recipe("CVRP", 128, 200, 12345, 80),
    "cvrp500": Recipe("CVRP", 128, 500, 1234, 100),
    "cvrp1000": Recipe("CVRP", 128, 1000, 1234, 250),
}


def make_set(
    name: str,
    folder: Path,
    solver: str | None = None,
    seconds: float | None = None,
    limit: int | None = None,
    processes: int | None = None,
    binary: Path | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
    costs: Path | None = None,
    source: Path | None = None,
) -> Path:
    """Write FOLDER/NAME.npz with the first `limit` instances, drawn or from a file of the folder `source`; with
    references from the folder `costs` where they are known, else by the solver."""
    path = folder / f"{name}.npz"
    if path.exists():
        raise LehdError(f"{path}: exists already; move it away first")
    arrays = {key: array[:limit] for key, array in _instances(name, source).items()}
    known = _known_file(name, costs)
    if known is not None:
        arrays |= _known(known, limit, len(arrays["coords"]))
    elif solver is not None:
        arrays |= references(_problem(name, source), arrays, solver, seconds, processes, binary, watch)
    elif source is not None:
        raise LehdError(f"{source / path.name}: new references come from --solver, or are found in the folder --costs")
    write_arrays(path, arrays)
    return path


def choose_sets(
    names: list[str], solver: str | None = None, costs: Path | None = None, source: Path | None = None
) -> tuple[list[str], list[str]]:
    """The sets to make; and where none is named, those to leave out, because the solver is for another problem."""
    if names:
        return names, []
    every = list(RECIPES) if source is None else sorted(path.stem for path in source.glob("*.npz"))
    if not every:
        raise LehdError(f"{source}: no test sets (.npz) in it")
    kind = KINDS.get(solver or "")
    if kind is None:
        return every, []
    left_out = [n for n in every if _known_file(n, costs) is None and _problem(n, source) not in kind.problems]
    return [name for name in every if name not in left_out], left_out


def _instances(name: str, source: Path | None) -> Arrays:
    if source is not None:
        return _stored(source / f"{name}.npz")
    if name not in RECIPES:
        raise LehdError(f"no seed is known of {name}, only of {', '.join(RECIPES)}; --from FOLDER takes its file")
    return RECIPES[name].draw()


def _stored(path: Path) -> Arrays:
    """The instances of a test set, whatever else is in it."""
    found = read_arrays(path)
    if "coords" not in found:
        raise LehdError(f"{path}: expected an array coords")
    instances = coordinate_instances(found["coords"], found.get("demands"), found.get("capacity"), name=str(path))
    if instances.demands is not None and instances.demands.is_floating_point():
        raise LehdError(f"{path}: label solvers count in whole numbers, demands and capacity are not")
    tensors = {name: getattr(instances, name) for name in ("coords", "demands", "capacity")}
    return {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None}


def _problem(name: str, source: Path | None) -> str:
    if source is None:
        return RECIPES[name].problem
    return "CVRP" if "demands" in read_arrays(source / f"{name}.npz") else "TSP"


def _known_file(name: str, costs: Path | None) -> Path | None:
    path = None if costs is None else costs / f"{name}-costs.npz"
    return path if path is not None and path.exists() else None


def _known(path: Path, limit: int | None, total: int) -> Arrays:
    found = {key: array[:limit] if array.ndim else array for key, array in read_arrays(path).items()}
    if len(found.get("ref_cost", ())) != total:
        raise LehdError(f"{path}: expected an array ref_cost with a number for each instance")
    return found


def references(
    problem: str,
    arrays: Arrays,
    solver: str,
    seconds: float | None = None,
    processes: int | None = None,
    binary: Path | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Arrays:
    """What a solver finds for each instance: ref_cost, and where it came from."""
    made = make_solver(problem, solver, seconds, binary)
    coords, total = arrays["coords"], len(arrays["coords"])

    def task(row: int) -> Task:
        if "demands" not in arrays:
            return Task(coords[row])
        return Task(coords[row], arrays["demands"][row].astype(np.int64), int(arrays["capacity"][row]))

    cost = np.zeros(total)
    units = (Unit(str(row), task(row)) for row in range(total))
    found = run_units(units, made, Pool(processes), attempts=1, patience=patience(made))
    for done, (unit, routes) in enumerate(found, 1):
        row = int(unit.id)
        if isinstance(routes, Failure):
            raise LehdError(f"{solver} has no reference for instance {row}: {routes.reason}")
        stops = [[*route, route[0]] if problem == "TSP" else [0, *route, 0] for route in routes]
        cost[row] = sum(np.linalg.norm(np.diff(coords[row][each], axis=0), axis=1).sum() for each in stops)
        watch(done, total)
    return {"ref_cost": cost, "ref_source": np.array(f"{made.name}, {made.seconds:g} s each")}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw test sets from their seeds, or give those of files references.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", default=[], help="by default all that can be drawn, or all of --from")
    parser.add_argument("--from", dest="source", type=Path, help="folder of test sets that get new references")
    parser.add_argument("--solver", help="for the references: fast-tsp, hgs, ortools, lkh or concorde")
    parser.add_argument("--seconds", type=float, help="for each instance; by default the solver's own")
    parser.add_argument("--binary", type=Path, help="the program of lkh or concorde")
    parser.add_argument("--costs", type=Path, help="folder of references that were found before, NAME-costs.npz")
    parser.add_argument("--processes", type=int, help="all cores by default")
    parser.add_argument("--limit", type=int, help="only the first so many instances")
    given = parser.parse_args()
    try:
        names, left_out = choose_sets(given.sets, given.solver, given.costs, given.source)
        for name in left_out:
            print(f"{name}: left out, not a problem that {given.solver} solves", flush=True)
        for name in names:
            work = (given.solver, given.seconds, given.limit, given.processes, given.binary)
            print(make_set(name, given.folder, *work, _print, given.costs, given.source), flush=True)
    except LehdError as error:
        sys.exit(f"lehd: {error}")


def _print(done: int, total: int) -> None:
    if done % 100 == 0:
        print(f"{done} of {total}", flush=True)


if __name__ == "__main__":
    main()
