"""The paper's uniform test sets: greedy construction and plain RRC, gap and time at several points of one run.

    python -m lehd.bench.uniform FOLDER --sets tsp100_s2023 cvrp200 --rrc 50 100 --limit 128 --output results.jsonl

A set is FOLDER/NAME.npz with coords, for CVRP demands and capacity, and reference costs. The gap is the ratio of mean
costs, in per cent; costs are unrounded Euclidean. With --time-limit 60 300 all instances of a set are searched at once,
as `solve` does it, for 300 seconds together; what they were after 60 is a point of the same run. With --output every
instance gets a line, and the same command goes on where it stopped; --start 300 --time-limit 900 goes on with a search
that has ended. `lehd bench uniform` is the same with a live table and the paper's rows.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lehd.bench.sets import Options, SetRun, TestSet
from lehd.bench.store import Record, Store
from lehd.bench.watch import PrintLines, Watch
from lehd.decoding.stop import Stop, max_runtime
from lehd.errors import LehdError
from lehd.io.arrays import coordinate_instances

BENCH = "uniform"
REFERENCES = ("opt_cost", "lkh_cost", "ref_cost")  # the first that a set has


def load_set(path: Path, limit: int | None = None) -> TestSet:
    """The instances of a test set and the costs its gaps are measured against."""
    try:
        with np.load(path) as file:
            arrays = {name: file[name][:limit] for name in file.files if file[name].ndim}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise LehdError(f"{path}: {error}") from None
    references = [arrays[name] for name in REFERENCES if name in arrays]
    if "coords" not in arrays or not references:
        raise LehdError(f"{path}: expected the arrays coords and one of {', '.join(REFERENCES)}")
    instances = coordinate_instances(arrays["coords"], arrays.get("demands"), arrays.get("capacity"))
    names = [str(row) for row in range(len(instances))]
    return TestSet(BENCH, path.stem, instances, names, references[0].tolist())


def find_sets(folder: Path, names: list[str] | None = None) -> list[Path]:
    """The files of the sets, all of a folder if none is named, small instances first."""
    paths = [folder / f"{name}.npz" for name in names] if names else sorted(folder.glob("*.npz"))
    if not paths:
        raise LehdError(f"{folder}: no test sets (.npz) in it")

    def size(path: Path) -> tuple[int, str]:
        test_set = load_set(path, 1)
        return test_set.nodes, test_set.problem

    return sorted(paths, key=size)


def run_uniform(
    paths: list[Path],
    options: Options,
    store: Store,
    watch: Watch,
    time_limits: Sequence[float] = (),
    start: float = 0.0,
) -> list[Record]:
    """Every set in turn, by greedy construction and RRC or with time limits; all records of them, those of earlier runs
    among them. A search may `start` where one of so many seconds ended."""
    if time_limits and (options.batch is not None or options.turn or options.nearest is not None):
        raise LehdError("--batch, --turn and --nearest are for --rrc; with --time-limit lehd decides")
    if start and not time_limits:
        raise LehdError("--start is where a search with a --time-limit goes on; RRC goes on by itself")
    records: list[Record] = []
    for path in paths:
        run = SetRun(load_set(path, options.limit), options, store, watch)
        records += run.search(time_limits, start, keep=True) if time_limits else run.run()
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure gaps on uniform test sets.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", help="all of the folder by default")
    parser.add_argument("--rrc", nargs="*", type=int, default=[], help="iterations at which to report")
    parser.add_argument("--time-limit", nargs="*", type=float, default=[], help="seconds for a set, in place of --rrc")
    parser.add_argument("--start", type=float, default=0.0, help="go on where the search of so many seconds ended")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--limit", type=int, help="only the first so many instances")
    parser.add_argument("--batch", type=int, help="instances at once; by default what should fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--turn", action="store_true", help="show the model every part turned or mirrored at random")
    parser.add_argument("--nearest", type=int, metavar="K", help="show the model only K near nodes")
    parser.add_argument("--stop-after", type=float, metavar="S", help="leave the rest for another time after S seconds")
    parser.add_argument("--output", type=Path, help="a .jsonl file for a line per instance; goes on where it stopped")
    given = parser.parse_args()
    stop = Stop() if given.stop_after is None else max_runtime(given.stop_after)
    how = (given.weights, given.limit, given.device, given.seed, given.batch, given.turn, given.nearest)
    try:
        options = Options(tuple(given.rrc), *how, stop=stop)
        paths = find_sets(given.folder, given.sets)
        run_uniform(paths, options, Store(given.output), PrintLines(), given.time_limit, given.start)
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
