"""TSPLIB and CVRPLIB: every file of a folder, the gap to its best known cost, and the paper's table beside it.

    python -m lehd.bench.library tsplib FOLDER --rrc 0 --paper
    python -m lehd.bench.library cvrplib FOLDER --time-limit 10 --most-nodes 200 --output results.jsonl

FOLDER/optima.csv (name, n, optimum, in_paper70) lists the files FOLDER/NAME.tsp; FOLDER/best_known.csv (set, name,
n_customers, best_known, paper_reference, in_paper192) lists FOLDER/SET/NAME.vrp. Gaps are given in two conventions: by
the file's own distance rule against the best known cost; and the paper's, which for TSPLIB is the unrounded length
against the rounded optimum, and for CVRPLIB the cost against the paper's own references.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from statistics import mean

from lehd import distance, problems
from lehd.errors import LehdError
from lehd.io import read
from lehd.solver import solve
from lehd.types import Result

BINS = ((100, "<100"), (200, "100-200"), (500, "200-500"), (1000, "500-1k"), (10**9, ">1k"))


@dataclass(frozen=True)
class Case:
    path: Path
    group: str
    nodes: int
    best_known: float
    paper_reference: float | None  # None: not in the paper


def tsplib_cases(folder: Path) -> Iterator[Case]:
    for row in _table(folder / "optima.csv"):
        if row["name"] == "linhp318":  # has fixed edges
            continue
        nodes, optimum = int(row["n"]), float(row["optimum"])
        group = next(name for limit, name in BINS if nodes < limit or limit == BINS[-1][0])
        paper = optimum if row["in_paper70"] == "1" else None
        yield Case(folder / f"{row['name']}.tsp", group, nodes, optimum, paper)


def cvrplib_cases(folder: Path) -> Iterator[Case]:
    for row in _table(folder / "best_known.csv"):
        path = folder / row["set"] / f"{row['name']}.vrp"
        paper = float(row["paper_reference"]) if row["in_paper192"] == "1" else None
        yield Case(path, row["set"], int(row["n_customers"]), float(row["best_known"]), paper)


CASES = {"tsplib": tsplib_cases, "cvrplib": cvrplib_cases}


def measure(case: Case, **options: object) -> dict[str, object]:
    """Solve one file; its record."""
    result = solve(read(case.path), **options)  # type: ignore[arg-type]
    assert isinstance(result, Result)
    record: dict[str, object] = {
        "instance": case.path.stem,
        "group": case.group,
        "nodes": case.nodes,
        "cost": result.cost,
        "best_known": case.best_known,
        "gap": 100 * (result.cost / case.best_known - 1),
        "iterations": result.iterations,
        "seconds": round(result.seconds, 2),
        "seed": result.seed,
        "weights": result.model,
    }
    if case.paper_reference is not None:
        plain = replace(result.instance, rule=distance.EUCLIDEAN) if result.problem == "TSP" else result.instance
        cost = problems.of(plain).cost(plain, result.solution)[0].item()
        record["paper_gap"] = 100 * (cost / case.paper_reference - 1)
    return record


def summary(library: str, records: list[dict[str, object]]) -> str:
    """A Markdown table: mean gaps of each group, in both conventions, beside what the paper printed."""
    published = tomllib.loads(resources.files("lehd.bench").joinpath("published.toml").read_text())["library"]
    columns = [
        "group",
        "files",
        "gap",
        "paper's files",
        "gap as in the paper",
        *(f"paper: {c}" for c in published["columns"]),
    ]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for group, printed in published[library].items():
        inside = [record for record in records if group in (record["group"], "all")]
        shared = [record["paper_gap"] for record in inside if "paper_gap" in record]
        if inside:
            gaps = [mean(record["gap"] for record in inside), mean(shared) if shared else None]  # type: ignore[type-var]
            cells = ["-" if gap is None else f"{gap:.3f}" for gap in gaps]
            lines.append(
                f"| {group} | {len(inside)} | {cells[0]} | {len(shared)} | {cells[1]} | "
                + " | ".join(map(str, printed))
                + " |"
            )
    return "\n".join(lines)


def _table(path: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(path.read_text().splitlines()))
    except OSError as error:
        raise LehdError(f"{path}: {error.strerror}") from None


def main() -> None:
    try:
        run()
    except LehdError as error:
        sys.exit(f"lehd: {error}")


def run() -> None:
    parser = argparse.ArgumentParser(description="Measure gaps on benchmark files.")
    parser.add_argument("library", choices=sorted(CASES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rrc", type=int, help="iterations; 0 is construction alone")
    parser.add_argument("--time-limit", type=float, help="seconds for each file")
    parser.add_argument("--most-nodes", type=int, default=10**9)
    parser.add_argument("--paper", action="store_true", help="only the files the paper has")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--output", type=Path, help="a file for one JSON line per instance, appended to")
    options = parser.parse_args()
    records = []
    for case in CASES[options.library](options.folder):
        if case.nodes > options.most_nodes or (options.paper and case.paper_reference is None):
            continue
        record = measure(
            case, rrc=options.rrc, time_limit=options.time_limit, model=options.weights, device=options.device
        )
        records.append(record)
        print(json.dumps(record), flush=True)
        if options.output:
            with options.output.open("a") as file:
                file.write(json.dumps(record) + "\n")
    print(summary(options.library, records))


if __name__ == "__main__":
    main()
