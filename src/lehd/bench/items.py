"""Single instances to compare solvers on, from test sets and benchmark files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lehd import problems
from lehd.bench.library import Case, find_cases
from lehd.bench.uniform import load_set
from lehd.errors import LehdError
from lehd.io import read
from lehd.types import Instances


@dataclass(frozen=True)
class Item:
    """An instance of some set, and its reference."""

    set: str
    name: str
    instance: Instances
    reference: float | None

    @property
    def problem(self) -> str:
        return problems.of(self.instance).name


def find_items(data: Path, sets: list[str], limit: int | None, files: list[str]) -> list[Item]:
    items = [item for name in sets for item in uniform_items(data / "uniform" / f"{name}.npz", limit)]
    items += file_items(data, files) if files else []
    if not items:
        raise LehdError("nothing to solve: give --sets, --files or both")
    return items


def uniform_items(path: Path, limit: int | None) -> list[Item]:
    test_set = load_set(path, limit)
    rows = range(len(test_set.names))
    return [
        Item(test_set.name, test_set.names[row], test_set.instances.rows(slice(row, row + 1)), test_set.reference[row])
        for row in rows
    ]


def file_items(data: Path, names: list[str]) -> list[Item]:
    """Benchmark files by name, from either library."""
    cases: dict[str, Case] = {}
    for library in ("tsplib", "cvrplib"):
        if (data / library).is_dir():
            cases |= {case.path.stem: case for case in find_cases(library, data / library)}
    missing = [name for name in names if name not in cases]
    if missing:
        raise LehdError(f"{data}: neither tsplib nor cvrplib lists {', '.join(missing)}")
    return [
        Item("TSPLIB" if case.library == "tsplib" else f"CVRPLIB {case.group}", name, read(case.path), case.best_known)
        for name, case in ((name, cases[name]) for name in names)
    ]
