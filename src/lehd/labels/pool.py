"""Label seeded instances with a solver on many cores, shard by shard.

    python -m lehd.labels.pool x_type_cvrp FOLDER --shards 0 200 --seconds 0.4

Every finished shard is a file of its own, written atomically; run the command again and it goes on where it stopped.
`--merge FILE` joins all shards in the folder into one label file (layout: lehd.data.dataset). `lehd label` is the same
with a progress bar.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lehd.data.dataset import RECIPES, SHARD, draw_shard, problem_of
from lehd.errors import LehdError
from lehd.labels.shards import Shard, merge, shard_path
from lehd.labels.solvers import KINDS, Solver, Task, make_solver
from lehd.labels.workers import Failure, solve_all

PATIENCE = 20  # a solver is given up after so many times its time, and
GRACE = 120.0  # so many seconds


@dataclass
class Progress:
    """How far a run has come; `failures` says why the last instances without a label have none."""

    shards: int
    total_shards: int
    instances: int
    failed: int
    seconds: float
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        missing = f", {self.failed} without a label" if self.failed else ""
        return f"{self.shards}/{self.total_shards} shards, {self.rate:.1f} instances/s{missing}"

    @property
    def rate(self) -> float:
        return self.instances / max(self.seconds, 1e-9)


def label(
    recipe: str,
    customers: int,
    shards: range,
    folder: Path,
    solver: Solver,
    processes: int | None = None,
    budget: float = float("inf"),
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Label the shards that the folder does not hold yet; start no further shard after `budget` seconds.

    An instance on which the solver fails, crashes or hangs is marked as not solved, and the shard written without it.
    """
    if recipe not in RECIPES:
        raise LehdError(f"unknown recipe {recipe!r}; known: {', '.join(RECIPES)}")
    if not 3 <= customers < 65_536:
        raise LehdError(f"{customers} customers: expected 3 to 65535")
    missing = [shard for shard in shards if not shard_path(folder, recipe, customers, shard).exists()]
    begun = time.perf_counter()
    progress = Progress(0, len(missing), 0, 0, 0.0)
    open_shards: dict[int, Shard] = {}

    def tasks() -> Iterator[tuple[tuple[int, int], Task]]:
        for number in missing:
            if time.perf_counter() - begun > budget:
                return
            shard = open_shards[number] = Shard(recipe, customers, number, draw_shard(recipe, customers, number))
            for row in range(SHARD):
                yield (number, row), shard.task(row)

    patience = PATIENCE * solver.seconds + GRACE
    for (number, row), result in solve_all(tasks(), solver, processes or usable_cores(), patience):
        shard = open_shards[number]
        shard.left -= 1
        progress.instances += 1
        if isinstance(result, Failure):
            progress.failed += 1
            progress.failures = (*progress.failures[-9:], f"shard {number}, instance {row}: {result.reason}")
        else:
            shard.put(row, result)
        if shard.left == 0:
            del open_shards[number]
            if not shard.solved.any():
                raise LehdError(f"no instance of shard {number} could be solved; {progress.failures[-1]}")
            shard.write(folder, solver)
            progress.shards += 1
        progress.seconds = time.perf_counter() - begun
        watch(progress)
    return progress


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    recipe: str,
    folder: Path,
    customers: int,
    shards: tuple[int, int],
    processes: int | None,
    solver: str | None,
    seconds: float | None,
    binary: Path | None,
    budget: float,
    target: Path | None,
    watch: Callable[[Progress], None],
) -> int | None:
    """What the commands do: label, then merge; the number of labels in the merged file."""
    if len(range(*shards)):
        made = make_solver(problem_of(recipe), solver, seconds, binary)
        label(recipe, customers, range(*shards), folder, made, processes, budget, watch)
    return None if target is None else merge(folder, recipe, customers, target)


def main() -> None:
    parser = argparse.ArgumentParser(description="Label seeded instances.")
    parser.add_argument("recipe", choices=sorted(RECIPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--customers", type=int, default=100, help="nodes to visit")
    parser.add_argument("--shards", type=int, nargs=2, metavar=("FIRST", "END"), default=(0, 0))
    parser.add_argument("--processes", type=int, help="all cores by default")
    parser.add_argument("--solver", choices=sorted(KINDS), help="fast-tsp for TSP and hgs for CVRP by default")
    parser.add_argument("--binary", type=Path, help="the program of lkh or concorde")
    parser.add_argument("--seconds", type=float, help="time for an instance; by default the solver's own")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="start no further shard after so many seconds"
    )
    parser.add_argument("--merge", type=Path, help="join all shards in the folder into this file")
    options = parser.parse_args()
    try:
        merged = run(
            options.recipe,
            options.folder,
            options.customers,
            options.shards,
            options.processes,
            options.solver,
            options.seconds,
            options.binary,
            options.budget,
            options.merge,
            PrintShards(),
        )
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    if merged is not None:
        print(f"{merged} labels in {options.merge}")


class PrintShards:
    """Prints a line for every finished shard, and why an instance has no label."""

    def __init__(self) -> None:
        self.shards = self.failed = 0

    def __call__(self, progress: Progress) -> None:
        if progress.failed > self.failed:
            self.failed = progress.failed
            print(f"no label: {progress.failures[-1]}", flush=True)
        if progress.shards > self.shards:
            self.shards = progress.shards
            print(progress, flush=True)


if __name__ == "__main__":
    main()
