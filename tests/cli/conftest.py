"""A stand-in for the search, where only what surrounds it matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lehd.solver
from lehd import problems
from lehd.errors import LehdError
from lehd.types import Incumbent, Result
from tests.cli.command import BAKERY, HARBOUR


class Search:
    """Stands in for lehd.solver.solve: notes how it is called and returns a cheap start."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.interrupt_at = ""  # the name of the instance in whose search Ctrl-C is pressed

    def __call__(self, data, **options):
        self.calls.append({"data": data, **options})
        if options["device"] == "abacus":
            raise LehdError("there is no device 'abacus'")
        problem = problems.of(data)
        solution = options.get("start") or problem.cheap_start(data)
        cost = problem.cost(data, solution)[0].item()
        interrupted = data.names[0] == self.interrupt_at
        history = (Incumbent(0.0, 0, cost),)
        return Result(data, solution, cost, history, 0.5, 3, options["seed"], "none", interrupted, notes=("cheap",))


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Search:
    stand_in = Search()
    monkeypatch.setattr(lehd.solver, "solve", stand_in, raising=False)
    return stand_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "instances"
    folder.mkdir()
    for example in (HARBOUR, BAKERY):
        (folder / example.name).write_bytes(example.read_bytes())
    (folder / "notes.txt").write_text("not an instance")
    (folder / "points.CSV").write_text("x,y\n0,0\n0,3\n4,0\n")
    return folder
