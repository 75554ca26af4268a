"""Label seeded instances with a solver on many cores, shard by shard.

    python -m lehd.labels.pool x_type_cvrp FOLDER --shards 0 200 --seconds 0.4

Every finished shard is a file of its own, written atomically; run the command again and it goes on where it stopped.
`--merge FILE` joins all shards in the folder into one label file (layout: lehd.data.dataset). `lehd label` is the same
with a progress bar.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lehd.data.dataset import RECIPES, SHARD, check_recipe, draw_shard, problem_of
from lehd.errors import LehdError
from lehd.labels.shards import Shard, merge, shard_id
from lehd.labels.solvers import KINDS, SolveEach, Solver, limit_of, make_solver, patience
from lehd.work.engines import add_engine_options, find_engine
from lehd.work.ledger import Folder
from lehd.work.run import run_units
from lehd.work.units import Engine, Failure, Unit

UNIT_SECONDS = 2.0  # of work in a unit: long beside the way to a worker, short beside a user's patience


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
    engine: Engine,
    budget: float = float("inf"),
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Label the shards that the folder does not hold yet; start no further shard after `budget` seconds.

    An instance on which the solver fails, crashes or hangs is marked as not solved, and the shard written without it.
    """
    check_recipe(recipe, customers, shards)
    done = Folder(folder, f"{recipe}-{customers}.json", {"solver": solver.name, **limit_of(solver)})
    missing = [number for number in shards if shard_id(recipe, customers, number) not in done]
    begun = time.perf_counter()
    progress = Progress(0, len(missing), 0, 0, 0.0)
    open_shards: dict[int, Shard] = {}
    batch = min(SHARD, max(1, round(UNIT_SECONDS / solver.seconds)))

    def units() -> Iterator[Unit]:
        for number in missing:
            if time.perf_counter() - begun > budget:
                return
            open_shards[number] = Shard(recipe, customers, number, draw_shard(recipe, customers, number))
            yield from open_shards[number].units(batch)

    def split(unit: Unit) -> list[Unit]:
        shard = open_shards[unit.content.shard]
        return [] if len(unit.content.rows) == 1 else [shard.unit(range(row, row + 1)) for row in unit.content.rows]

    job, limit = SolveEach(solver), patience(solver, batch)
    for unit, result in run_units(units(), job, engine, patience=limit, split=split):
        number, rows, _ = unit.content
        shard = open_shards[number]
        for row, answer in zip(rows, [result] if isinstance(result, Failure) else result, strict=True):
            shard.left -= 1
            progress.instances += 1
            if isinstance(answer, Failure):
                progress.failed += 1
                progress.failures = (*progress.failures[-9:], f"shard {number}, instance {row}: {answer.reason}")
            else:
                shard.put(row, answer)
            if shard.left == 0:
                del open_shards[number]
                if not shard.solved.any():
                    raise LehdError(f"no instance of shard {number} could be solved; {progress.failures[-1]}")
                done.add(shard.id, shard.arrays(solver))
                progress.shards += 1
            progress.seconds = time.perf_counter() - begun
            watch(progress)
    return progress


def run(
    recipe: str,
    folder: Path,
    customers: int,
    shards: tuple[int, int],
    engine: Engine,
    solver: str | None,
    seconds: float | None,
    iterations: int | None,
    binary: Path | None,
    budget: float,
    target: Path | None,
    watch: Callable[[Progress], None],
) -> int | None:
    """What the commands do: label, then merge; the number of labels in the merged file."""
    if len(range(*shards)):
        made = make_solver(problem_of(recipe), solver, seconds, binary, iterations)
        label(recipe, customers, range(*shards), folder, made, engine, budget, watch)
    return None if target is None else merge(folder, recipe, customers, target)


def main() -> None:
    parser = argparse.ArgumentParser(description="Label seeded instances.")
    parser.add_argument("recipe", choices=sorted(RECIPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--customers", type=int, default=100, help="nodes to visit")
    parser.add_argument("--shards", type=int, nargs=2, metavar=("FIRST", "END"), default=(0, 0))
    parser.add_argument("--solver", choices=sorted(KINDS), help="fast-tsp for TSP and hgs for CVRP by default")
    parser.add_argument("--binary", type=Path, help="the program of lkh or concorde")
    parser.add_argument("--seconds", type=float, help="time for an instance; by default the solver's own")
    parser.add_argument("--iterations", type=int, help="of hgs without progress, in place of a time: repeatable")
    add_engine_options(parser)
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
            find_engine(options.cluster, options.processes),
            options.solver,
            options.seconds,
            options.iterations,
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
