"""A user's own files as training data: label files, and problem files with or without a solution beside them.

A solution is a file of the same name in the same folder: berlin52.tour or berlin52.opt.tour beside berlin52.tsp,
A-n32-k5.sol beside A-n32-k5.vrp, or a .json that lehd wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lehd.data.dataset import Labelled, concatenate, load_labels
from lehd.errors import LehdError
from lehd.io import KEYWORD_ENDINGS, TABLE_ENDINGS, read
from lehd.io.solution import read_solution
from lehd.problems import of
from lehd.problems.base import unit_box
from lehd.types import Instances, Solution

PROBLEMS = tuple(sorted(KEYWORD_ENDINGS | TABLE_ENDINGS))
LABELS = (".npz", ".txt")
SOLUTIONS = (".sol", ".tour", ".opt.tour", ".json")
FEWEST = {"TSP": 5, "CVRP": 2}  # nodes to visit: with fewer there is nothing to learn


@dataclass(frozen=True)
class ProblemFile:
    path: Path
    instances: Instances  # a single one
    solution: Solution | None

    @property
    def key(self) -> str:
        """Name and content: what a label made for this file is called."""
        return f"{self.path.stem}-{hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]}"

    def labelled(self, solution: Solution) -> Labelled:
        """As training data: positions in the unit square, and nothing else of the distances."""
        return Labelled(training_instances(self.instances), solution)


def find_files(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Label files and problem files; a folder stands for those in it."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.iterdir())
            found = [file for file in inside if file.suffix.lower() in (*PROBLEMS, ".npz") and file.is_file()]
            if not found:
                endings = ", ".join((*PROBLEMS, ".npz"))
                raise LehdError(f"{path}: no label files and no problems in this folder; expected one of {endings}")
            files += found
        elif not path.is_file():
            raise LehdError(f"{path}: no such file or folder")
        elif path.suffix.lower() not in (*PROBLEMS, *LABELS):
            raise LehdError(f"{path}: neither labels ({', '.join(LABELS)}) nor a problem ({', '.join(PROBLEMS)})")
        else:
            files.append(path)
    labels = [file for file in files if file.suffix.lower() in LABELS]
    return labels, [file for file in files if file not in labels]


def read_problem(path: Path) -> ProblemFile:
    """A problem that can be trained on, and its solution where there is one."""
    instances = read(path)
    problem = of(instances)
    if not instances.symmetric:
        raise LehdError(f"{path}: distances differ by direction; a model learns from positions, which cannot show that")
    visits = instances.num_nodes - problem.first_node
    if visits < FEWEST[problem.name]:
        raise LehdError(f"{path}: {visits} nodes to visit; expected at least {FEWEST[problem.name]} to learn from")
    beside = [file for ending in SOLUTIONS if (file := path.with_name(path.stem + ending)).is_file()]
    return ProblemFile(path, instances, read_solution(beside[0], instances) if beside else None)


def read_labels(path: Path) -> Labelled:
    labelled = load_labels(path)
    instances = labelled.instances
    visits, name = instances.num_nodes - of(instances).first_node, of(instances).name
    if visits < FEWEST[name]:
        raise LehdError(f"{path}: {visits} nodes to visit; expected at least {FEWEST[name]} to learn from")
    return labelled


def training_instances(instances: Instances) -> Instances:
    """What the model sees of them, alike for all rules of distance."""
    return Instances(unit_box(instances.coords).float(), demands=instances.demands, capacity=instances.capacity)


def by_size(parts: Sequence[Labelled]) -> list[Labelled]:
    """Labels of one size together."""
    groups: dict[int, list[Labelled]] = {}
    for part in parts:
        groups.setdefault(part.instances.num_nodes, []).append(part)
    return [concatenate(group) for group in groups.values()]
