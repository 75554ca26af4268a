"""What the benches measure: one JSON line for each instance, method and budget, in a file that grows line by line.

A run that was stopped goes on with the lines its file does not have yet. The file may be compressed (.jsonl.gz) once it
is finished. Nothing published is ever written here: those numbers live in published.toml.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lehd import __version__
from lehd.errors import LehdError, writing

Key = tuple[object, ...]
LEHD = "lehd"
GREEDY = "greedy"
TURNED = " turned"
BUDGET = re.compile(  # of lehd
    rf"({GREEDY}|RRC \d+({TURNED})?)(, \d+ nearest)?|[\d.]+( of [\d.]+)? s( after [\d.]+ s)?"
)


def rrc(iterations: int, turned: bool = False, nearest: int | None = None) -> str:
    """What the budget of so many RRC iterations is called; none is greedy construction. Other than in the paper parts
    may be shown turned, and the model may see the nearest nodes alone."""
    name = f"RRC {iterations}{TURNED if turned else ''}" if iterations else GREEDY
    return name if nearest is None else f"{name}, {nearest} nearest"


def in_seconds(seconds: float, limit: float | None = None, start: float = 0.0) -> str:
    """What a time limit is called; or a point on the way of a search that has a longer one. A search that went on from
    the end of another says so: it has planned for the rest of the time alone."""
    name = f"{seconds:g} s" if limit in (None, seconds) else f"{seconds:g} of {limit:g} s"
    return f"{name} after {start:g} s" if start else name


def order(budget: str) -> int:
    """How large a budget is, to sort by: greedy, then iterations, plain and turned, these again with the nearest in
    view, then seconds."""
    name, _, nearest = budget.partition(", ")
    kind, _, number = name.partition(" ")
    if kind not in ("RRC", GREEDY):
        return 10**9 + round(float(kind))
    turned = 10**8 if number.endswith(TURNED) else 0
    return int(number.removesuffix(TURNED) or 0) + turned + (2 * 10**8 if nearest else 0)


@dataclass(frozen=True)
class Record:
    """One instance, solved once."""

    bench: str  # uniform, tsplib, cvrplib or peers
    set: str  # the test set, the size bin of TSPLIB, the set of CVRPLIB
    instance: str
    problem: str  # TSP or CVRP
    nodes: int  # to visit
    method: str  # lehd, or the name of another solver
    budget: str  # greedy, "RRC 100", "RRC 100 turned", "greedy, 50 nearest", "10 s", "10 of 60 s", "90 s after 60 s"
    seed: int
    device: str
    cost: float | None = None  # None: the solver failed, see `error`
    reference: float | None = None  # None: not known
    seconds: float = 0.0  # wall-clock time; where several instances are solved at once, their time divided by them
    cpu_seconds: float | None = None  # of all its cores, where looked at: on a busy machine less than the clock says
    weights: str = ""  # hash of the weights; other solvers have none
    batch: int = 1  # instances solved at once
    iterations: int | None = None
    paper_cost: float | None = None  # what the paper would count, where that is something else …
    paper_reference: float | None = None  # … and what it measures against; None: not an instance of the paper
    error: str = ""
    version: str = __version__

    @property
    def gap(self) -> float | None:
        """Per cent above the reference."""
        return _gap(self.cost, self.reference)

    @property
    def paper_gap(self) -> float | None:
        """The same in the paper's convention."""
        return _gap(self.cost if self.paper_cost is None else self.paper_cost, self.paper_reference)

    @property
    def key(self) -> Key:
        """What makes it the same measurement."""
        work = (self.bench, self.set, self.instance, self.problem)
        return (*work, self.method, self.budget, self.seed, self.weights, self.device)

    @property
    def run(self) -> Key:
        """What it shares with other instances and seeds that it can be averaged with."""
        return (self.bench, self.set, self.problem, self.method, self.budget, self.weights, self.device)

    @property
    def order(self) -> int:
        return order(self.budget)

    def line(self) -> str:
        shown = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        gaps = {"gap": self.gap, "paper_gap": self.paper_gap}
        return json.dumps(shown | {name: round(gap, 6) for name, gap in gaps.items() if gap is not None})


OTHERS = ("speed", "train", "unseen")  # benches whose lines are not about instances
FIELDS = {each.name for each in fields(Record)}


def _gap(cost: float | None, reference: float | None) -> float | None:
    return None if cost is None or not reference else 100 * (cost / reference - 1)


class Store:
    """The records of a file, each measurement once; without a path they are kept in memory alone."""

    def __init__(self, path: Path | None = None):
        self.path = path
        self.found: dict[Key, Record] = {}
        if path is None:
            return
        if path.suffix == ".gz":
            raise LehdError(f"{path}: results are appended to a plain .jsonl file; compress it when it is finished")
        if path.exists():
            drop_half_line(path)
            self._keep(read_records(path))

    def __contains__(self, record: Record) -> bool:
        """Whether this has been measured; what failed may be tried again."""
        found = self.found.get(record.key)
        return found is not None and not found.error

    @property
    def records(self) -> list[Record]:
        return list(self.found.values())

    def add(self, records: Iterable[Record]) -> None:
        """Append what is not there yet. Once this returns, a power cut does not lose it."""
        new = [record for record in records if record not in self]
        self._keep(new)
        if self.path is not None and new:
            append_lines(self.path, (record.line() for record in new))

    def _keep(self, records: Iterable[Record]) -> None:
        self.found |= {record.key: record for record in records}


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Lines at the end of a file, safe on the disk when this returns."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a .jsonl or .jsonl.gz file, whatever bench wrote them."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = data.decode("utf-8").splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise LehdError(f"{path}: not a readable file of results ({error})") from None
    return [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def read_records(path: Path) -> list[Record]:
    """The records among the lines of a file."""
    return to_records(read_lines(path), path)


def to_records(lines: Iterable[dict[str, Any]], path: Path) -> list[Record]:
    records = []
    for line in lines:
        if line["bench"] not in OTHERS:
            try:
                records.append(Record(**{name: value for name, value in line.items() if name in FIELDS}))
            except TypeError as error:
                raise LehdError(f"{path}: a line is not a result of lehd bench ({error})") from None
    return records


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, dict) or "bench" not in values:
        raise LehdError(f"{path}, line {number}: not a result of lehd bench")
    return values


def drop_half_line(path: Path) -> None:
    """A run that was killed while it wrote leaves half a line."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
