"""The small test sets of the paper's appendix: 10,000 instances from one seed each, with references by fast-tsp.

    python -m lehd.training.test_sets FOLDER --sets tsp20 tsp50 --costs labels

Up to 20 nodes fast-tsp is exact. Files have the layout of lehd.bench.uniform. References that were found before, such
as those in the repository's folder labels (NAME-costs.npz), need no solver.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from lehd.bench.make import Recipe, references
from lehd.data.dataset import read_arrays, write_arrays
from lehd.errors import LehdError

SETS = {"tsp20": Recipe("TSP", 10_000, 20, 1234), "tsp50": Recipe("TSP", 10_000, 50, 1234)}
SECONDS = 0.03  # for an instance


def make_test_set(
    name: str,
    folder: Path,
    limit: int | None = None,
    processes: int | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
    costs: Path | None = None,
) -> Path:
    """FOLDER/NAME.npz, unless it is there already; with references from the folder `costs` where they are known."""
    path = folder / f"{name}.npz"
    if path.exists():
        return path
    if name not in SETS:
        raise LehdError(f"{path}: no such test set, and no seed to draw it from; known: {', '.join(SETS)}")
    recipe = SETS[name]
    arrays = {key: array[:limit] for key, array in recipe.draw().items()}
    known = None if costs is None else costs / f"{name}-costs.npz"
    if known is not None and known.exists():
        found = {key: array[:limit] if array.ndim else array for key, array in read_arrays(known).items()}
        if len(found.get("ref_cost", ())) != len(arrays["coords"]):
            raise LehdError(f"{known}: expected an array ref_cost with a number for each instance")
    else:
        found = references(recipe.problem, arrays, "fast-tsp", SECONDS, processes, watch=watch)
    write_arrays(path, arrays | found)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw test sets from their seeds and label them with fast-tsp.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--costs", type=Path, help="folder of references that were found before, NAME-costs.npz")
    parser.add_argument("--limit", type=int, help="only the first so many instances")
    parser.add_argument("--processes", type=int, help="all cores by default")
    options = parser.parse_args()

    def show(done: int, total: int) -> None:
        if done % 500 == 0:
            print(f"{done} of {total}", flush=True)

    try:
        for name in options.sets:
            print(make_test_set(name, options.folder, options.limit, options.processes, show, options.costs))
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
