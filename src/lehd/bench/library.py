"""TSPLIB and CVRPLIB: every file of a folder, small ones first, and the paper's table beside it.

    python -m lehd.bench.library tsplib FOLDER --rrc 50 1000 --paper --output results.jsonl
    python -m lehd.bench.library cvrplib FOLDER --time-limit 10 --most-nodes 200

FOLDER/optima.csv (name, n, optimum, in_paper70) lists the files FOLDER/NAME.tsp; FOLDER/best_known.csv (set, name,
n_customers, best_known, paper_reference, in_paper192) lists FOLDER/SET/NAME.vrp. Gaps are given in two conventions: by
the file's own distance rule against the best known cost; and the paper's, which for TSPLIB is the unrounded length
against the rounded optimum, and for CVRPLIB the cost against the paper's own references.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from lehd.bench.published import paper_tables
from lehd.bench.sets import Options, SetRun, TestSet
from lehd.bench.store import Record, Store
from lehd.bench.summary import over_seeds
from lehd.bench.text import markdown, percent
from lehd.bench.watch import Watch
from lehd.decoding.stop import Stop, max_runtime
from lehd.errors import LehdError
from lehd.io import read
from lehd.problems.base import in_unit_box

BINS = ((100, "<100"), (200, "100-200"), (500, "200-500"), (1000, "500-1k"), (10**9, ">1k"))
SHOWN = ("pr2392", "X-n1001-k43")  # the paper's figures
EVERYTHING = "all"


@dataclass(frozen=True)
class Case:
    library: str
    path: Path
    group: str
    nodes: int
    best_known: float
    paper_reference: float | None  # None: not in the paper

    @property
    def problem(self) -> str:
        return "TSP" if self.library == "tsplib" else "CVRP"


def tsplib_cases(folder: Path) -> Iterator[Case]:
    for row in _table(folder / "optima.csv"):
        if row["name"] == "linhp318":  # has fixed edges
            continue
        nodes, optimum = int(row["n"]), float(row["optimum"])
        group = next(name for limit, name in BINS if nodes < limit or limit == BINS[-1][0])
        paper = optimum if row["in_paper70"] == "1" else None
        yield Case("tsplib", folder / f"{row['name']}.tsp", group, nodes, optimum, paper)


def cvrplib_cases(folder: Path) -> Iterator[Case]:
    for row in _table(folder / "best_known.csv"):
        path = folder / row["set"] / f"{row['name']}.vrp"
        paper = float(row["paper_reference"]) if row["in_paper192"] == "1" else None
        yield Case("cvrplib", path, row["set"], int(row["n_customers"]), float(row["best_known"]), paper)


CASES = {"tsplib": tsplib_cases, "cvrplib": cvrplib_cases}


def find_cases(
    library: str, folder: Path, most_nodes: int | None = None, paper: bool = False, names: list[str] | None = None
) -> list[Case]:
    """The files to measure, small ones first."""
    cases = [case for case in CASES[library](folder) if most_nodes is None or case.nodes <= most_nodes]
    if paper:
        cases = [case for case in cases if case.paper_reference is not None]
    if names:
        missing = set(names) - {case.path.stem for case in cases}
        if missing:
            raise LehdError(f"{folder}: no file {', '.join(sorted(missing))} of this size in the list")
        cases = [case for case in cases if case.path.stem in names]
    return sorted(cases, key=lambda case: (case.nodes, case.path.stem))


def run_library(
    cases: list[Case], options: Options, store: Store, watch: Watch, time_limit: float | None = None
) -> list[Record]:
    """Greedy and RRC on every file, or the search under a time limit; all records."""
    records: list[Record] = []
    for case in cases:
        if options.stop.out_of_time():
            break
        run = SetRun(set_of(case), options, store, watch)
        records += run.run() if time_limit is None else run.search([time_limit])
    return records


def set_of(case: Case) -> TestSet:
    instance = in_unit_box(read(case.path))
    return TestSet(case.library, case.group, instance, [case.path.stem], [case.best_known], case.paper_reference)


def summary(library: str, records: list[Record]) -> str:
    """A Markdown table for every budget: mean gaps of each group, in both conventions, beside the paper's columns."""
    runs: dict[tuple[int, str, str, str], list[Record]] = {}
    for record in records:
        if record.bench == library:
            runs.setdefault((record.order, record.budget, record.device, record.weights), []).append(record)
    parts = [
        f"lehd {budget}, {device}, weights {weights or 'unknown'}:\n\n{_groups_table(library, run)}"
        for (_, budget, device, weights), run in sorted(runs.items())
    ]
    return "\n\n".join(parts)


def _groups_table(library: str, records: list[Record]) -> str:
    published = paper_tables()[library]
    columns = ["group", "files", "gap %", "paper's files", "gap % as in the paper", "s per file"]
    rows = []
    records = over_seeds(records)
    for group, cells in published.rows.items():
        inside = [record for record in records if group in (record.set, EVERYTHING)]
        if inside:
            gaps = [record.gap for record in inside if record.gap is not None]
            shared = [record.paper_gap for record in inside if record.paper_gap is not None]
            seconds = mean(record.seconds for record in inside)
            measured = [group, len(inside), percent(gaps), f"{len(shared)} of {cells[0]}", percent(shared)]
            rows.append([*measured, f"{seconds:.2f}", *cells[1:]])
    return markdown([*columns, *(f"paper: {name}" for name in published.columns[1:])], rows)


def _table(path: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(path.read_text().splitlines()))
    except OSError as error:
        raise LehdError(f"{path}: {error.strerror}") from None


class PrintRecords(Watch):
    def measured(self, records: list[Record]) -> None:
        print("\n".join(record.line() for record in records), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure gaps on benchmark files.")
    parser.add_argument("library", choices=sorted(CASES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rrc", type=int, nargs="*", default=[], help="iterations at which to look; greedy always is")
    parser.add_argument("--time-limit", type=float, help="seconds for each file, in place of --rrc")
    parser.add_argument("--most-nodes", type=int)
    parser.add_argument("--paper", action="store_true", help="only the files the paper has")
    parser.add_argument("--names", nargs="+", help="only these files")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--stop-after", type=float, metavar="S", help="leave the rest for another time after S seconds")
    parser.add_argument("--output", type=Path, help="a .jsonl file for a line per instance; goes on where it stopped")
    parser.add_argument("--solutions", type=Path, help=f"a folder for the solutions of {' and '.join(SHOWN)}")
    given = parser.parse_args()
    stop = Stop() if given.stop_after is None else max_runtime(given.stop_after)
    options = Options(
        budgets=tuple(given.rrc),
        weights=given.weights,
        device=given.device,
        seed=given.seed,
        solutions=given.solutions,
        show=SHOWN,
        stop=stop,
    )
    try:
        cases = find_cases(given.library, given.folder, given.most_nodes, given.paper, given.names)
        records = run_library(cases, options, Store(given.output), PrintRecords(), given.time_limit)
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    print(summary(given.library, records))


if __name__ == "__main__":
    main()
