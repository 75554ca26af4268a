"""From what a user gives as data to labels: files that have none are labelled first, by a solver or by the model.

Each new label is a file of its own in the run's folder, so that a run that was stopped does not make it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from lehd.data.dataset import Labelled, plain_solution, read_arrays, reading
from lehd.data.foreign import write_plain
from lehd.data.own_files import ProblemFile, find_files, read_labels, read_problem
from lehd.errors import LehdError
from lehd.labels.solvers import DEFAULT, KINDS, Solver, Task, make_solver, patience
from lehd.problems import of
from lehd.training.config import AUTO
from lehd.types import Instances, Solution
from lehd.work.local import Pool
from lehd.work.run import run_units
from lehd.work.units import Failure, Unit

FOLDER = "labels"
MODEL = "model"
MOST_SECONDS = 60.0  # for an instance, unless the user says otherwise


@dataclass(frozen=True)
class Labelling:
    """How files without a solution get one."""

    by: str = AUTO  # a solver, "model", or "auto": the problem's usual solver where it is installed and fits
    seconds: float | None = None  # for an instance, by a solver; by default more for larger ones
    iterations: int = 100  # of RRC, by the model
    weights: Path | None = None  # of the model; by default those the package ships
    device: str | None = None


@dataclass(frozen=True)
class Made:
    """How far the labels are, made or read."""

    done: int
    total: int
    last: str  # the file that was labelled last, and by whom; or what is being read


Watch = Callable[[Made], None]


def own_labels(paths: Sequence[Path], folder: Path, how: Labelling, watch: Watch | None = None) -> list[Labelled]:
    """The labels of a user's files, in their order: of label files as they are, one for each problem file."""
    label_files, problem_files = find_files(paths)
    found = [read_labels(path) for path in label_files]
    problems = [read_problem(path) for path in problem_files]
    solutions = {file.path: file.solution for file in problems if file.solution is not None}
    todo = []
    for file in problems:
        if file.path in solutions:
            continue
        if (path := _label_path(folder, file)).exists():
            solutions[file.path] = _kept(path, file.instances)
        else:
            todo.append(file)
    for number, (file, new, maker) in enumerate(_label(todo, how), 1):
        solutions[file.path] = new
        write_plain(file.labelled(new), _label_path(folder, file))
        if watch is not None:
            watch(Made(number, len(todo), f"{file.path.name} by {maker}"))
    found += [file.labelled(solutions[file.path]) for file in problems]
    names = {of(part.instances).name for part in found}
    if len(names) > 1:
        raise LehdError(f"the data are of several problems, {' and '.join(sorted(names))}: train a model for each")
    return found


def _label_path(folder: Path, file: ProblemFile) -> Path:
    return folder / FOLDER / f"{file.key}.npz"


def _kept(path: Path, instances: Instances) -> Solution:
    """A label that was made before. Demands may be fractions here, unlike those of label files."""
    arrays = read_arrays(path)
    with reading(path):
        solution = plain_solution(arrays)
        of(instances).check(instances, solution)
    return solution


def _label(files: list[ProblemFile], how: Labelling) -> Iterator[tuple[ProblemFile, Solution, str]]:
    """Solutions as they are found, and who found them."""
    solvers = {file.path: _solver(file, how) for file in files}
    by_name = {str(file.path): file for file in files}
    units = [
        Unit(str(file.path), (solver, _task(file))) for file in files if (solver := solvers[file.path]) is not None
    ]
    left = [file for file in files if solvers[file.path] is None]
    longest = max((patience(solver) for solver in solvers.values() if solver is not None), default=0.0)
    for unit, routes in run_units(units, _call, Pool(), attempts=1, patience=longest):
        file = by_name[unit.id]
        if isinstance(routes, Failure):
            if how.by != AUTO:
                raise LehdError(f"{file.path}: no label ({routes.reason})")
            left.append(file)
            continue
        solver, problem = solvers[file.path], of(file.instances)
        visits = routes[0] if problem.name == "TSP" else routes
        yield file, problem.solution(file.instances, visits), "" if solver is None else solver.name
    for file in left:
        yield file, _by_model(file, how), "the model"


def _solver(file: ProblemFile, how: Labelling) -> Solver | None:
    """Who labels a file; None: the model."""
    if how.by == MODEL:
        return None
    instances = file.instances
    name, nodes = of(instances).name, instances.num_nodes
    planar = instances.matrix is None and not instances.rule.geographic
    whole = instances.demands is None or not instances.demands.is_floating_point()
    kind = KINDS.get(DEFAULT[name] if how.by == AUTO else how.by)
    if how.by == AUTO and not (planar and whole and kind and kind.package and find_spec(kind.package)):
        return None
    if not planar or not whole:
        raise LehdError(f'{file.path}: {how.by} takes positions in the plane and whole demands; labels_by = "{MODEL}"')
    seconds = how.seconds
    if seconds is None and kind is not None:
        seconds = min(MOST_SECONDS, kind.seconds * max(1.0, nodes / 100) ** 2)
    return make_solver(name, None if how.by == AUTO else how.by, seconds)


def _task(file: ProblemFile) -> Task:
    instances = file.instances
    coords = instances.coords[0].float().numpy()
    if instances.demands is None or instances.capacity is None:
        return Task(coords)
    return Task(coords, instances.demands[0].numpy(), int(instances.capacity[0]))


def _call(pair: tuple[Solver, Task]) -> list[list[int]]:
    solver, task = pair
    return solver(task)


def _by_model(file: ProblemFile, how: Labelling) -> Solution:
    from lehd.solver import solve

    result = solve(file.instances, rrc=how.iterations, model=how.weights, device=how.device)
    solution: Solution = result.solution
    return Solution(solution.nodes.to(torch.long), solution.via_depot)
