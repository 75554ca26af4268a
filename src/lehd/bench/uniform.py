"""The paper's uniform test sets: greedy construction and plain RRC, gap and time at several points of one run.

    python -m lehd.bench.uniform FOLDER --sets tsp100_s2023 cvrp200 --rrc 50 100 --limit 128 --output results.jsonl

A set is FOLDER/NAME.npz with coords, for CVRP demands and capacity, and reference costs. The gap is the ratio of mean
costs, in per cent; costs are unrounded Euclidean. With --output every instance gets a line, and the same command goes
on where it stopped. `lehd bench uniform` is the same with a live table and the paper's rows.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lehd import problems
from lehd.bench.curve import Point, run_curve
from lehd.bench.machine import device_words
from lehd.bench.resume import Progress
from lehd.bench.store import LEHD, Record, Store, rrc
from lehd.bench.summary import summarise
from lehd.bench.watch import PrintLines, Watch
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.io.arrays import coordinate_instances
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.solver import TOKENS_AT_ONCE
from lehd.types import Instances

BENCH = "uniform"
REFERENCES = ("opt_cost", "lkh_cost", "ref_cost")  # the first that a set has
BUDGETS = (50, 100, 300, 500, 1000)  # the paper's


@dataclass(frozen=True)
class TestSet:
    name: str
    instances: Instances
    reference: np.ndarray

    @property
    def problem(self) -> str:
        return problems.of(self.instances).name

    @property
    def nodes(self) -> int:
        """To visit, in each instance."""
        return self.instances.num_nodes - problems.of(self.instances).first_node


@dataclass(frozen=True)
class Options:
    budgets: tuple[int, ...] = ()  # RRC iterations at which to look
    weights: Path | None = None
    limit: int | None = None  # only the first so many instances
    device: str | None = None
    seed: int = 0
    batch: int | None = None  # instances at once; by default what should fit


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
    return TestSet(path.stem, instances, references[0])


def find_sets(folder: Path, names: list[str] | None = None) -> list[Path]:
    """The files of the sets, all of a folder if none is named, small instances first."""
    paths = [folder / f"{name}.npz" for name in names] if names else sorted(folder.glob("*.npz"))
    if not paths:
        raise LehdError(f"{folder}: no test sets (.npz) in it")

    def size(path: Path) -> tuple[str, int]:
        test_set = load_set(path, 1)
        return test_set.problem, test_set.nodes

    return sorted(paths, key=size)


class SetRun:
    """One test set, batch by batch."""

    def __init__(self, test_set: TestSet, options: Options, store: Store, watch: Watch):
        self.set, self.options, self.store, self.watch = test_set, options, store, watch
        self.problem = problems.of(test_set.instances)
        self.device = find_device(options.device)
        self.model = load_model(options.weights or shipped_weights(self.problem.name), self.device)
        self.weights = fingerprint(self.model)
        self.words = device_words(self.device)
        self.budgets = sorted({0, *options.budgets})
        self.told: set[str] = set()

    def record(self, row: int, iteration: int, **measured: object) -> Record:
        return Record(
            bench=BENCH,
            set=self.set.name,
            instance=str(row),
            problem=self.set.problem,
            nodes=self.set.nodes,
            method=LEHD,
            budget=rrc(iteration),
            seed=self.options.seed,
            device=self.words,
            weights=self.weights,
            reference=float(self.set.reference[row]),
            iterations=iteration,
            **measured,  # type: ignore[arg-type]
        )

    def run(self) -> None:
        """Measure what the store does not have; out of memory, go on with half as many instances at once."""
        self._tell_complete()
        rows = range(len(self.set.instances))
        todo = [row for row in rows if any(self.record(row, each) not in self.store for each in self.budgets)]
        batch = self.options.batch or max(1, TOKENS_AT_ONCE[self.device.type] // self.set.instances.num_nodes)
        while todo:
            try:
                self._run_rows(todo[:batch])
            except torch.OutOfMemoryError:
                if batch == 1:
                    raise LehdError(f"{self.set.name}: the memory does not hold a single instance") from None
                batch = (min(batch, len(todo)) + 1) // 2
                self.watch.working(f"{self.set.name}: out of memory, now {batch} instances at once")
                torch.cuda.empty_cache()
                continue
            todo = todo[batch:]

    def _run_rows(self, rows: list[int]) -> None:
        progress = Progress(self.store.path, (self.set.name, self.weights, self.options.seed, self.words, rows))
        instances = self.set.instances.rows(torch.tensor(rows)).to(self.device)
        begin = progress.load(self.device)
        last = self.budgets[-1]

        def tick(iteration: int) -> None:
            self.watch.working(f"{self.set.name}: {len(rows)} instances, iteration {iteration} of {last}")

        tick(0 if begin is None else begin.iteration)
        for point in run_curve(
            self.model, self.problem, instances, self.budgets, self.options.seed, begin=begin, tick=tick
        ):
            if point.iteration in self.budgets:
                self._note(rows, instances, point)
            if point.iteration < last:
                progress.save(point)
        progress.forget()

    def _note(self, rows: list[int], instances: Instances, point: Point) -> None:
        self.problem.check(instances, point.solution)
        costs = self.problem.cost(instances, point.solution).double().tolist()
        seconds = point.seconds / len(rows)
        records = [
            self.record(row, point.iteration, cost=cost, seconds=seconds, batch=len(rows))
            for row, cost in zip(rows, costs, strict=True)
        ]
        self.store.add(records)
        self.watch.measured(records)
        self._tell_complete()

    def records(self) -> list[Record]:
        """What the store has of this run."""
        keys = (self.record(row, iteration).key for iteration in self.budgets for row in range(len(self.set.instances)))
        return [self.store.found[key] for key in keys if key in self.store.found]

    def _tell_complete(self) -> None:
        for summary in summarise(self.records()):
            if summary.instances == len(self.set.instances) and summary.budget not in self.told:
                self.told.add(summary.budget)
                self.watch.complete(summary)


def run_uniform(paths: list[Path], options: Options, store: Store, watch: Watch) -> list[Record]:
    """Every set in turn; all records of them, those of earlier runs among them."""
    records: list[Record] = []
    for path in paths:
        run = SetRun(load_set(path, options.limit), options, store, watch)
        run.run()
        records += run.records()
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure gaps on uniform test sets.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", help="all of the folder by default")
    parser.add_argument("--rrc", nargs="*", type=int, default=[], help="iterations at which to report")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--limit", type=int, help="only the first so many instances")
    parser.add_argument("--batch", type=int, help="instances at once; by default what should fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--output", type=Path, help="a .jsonl file for a line per instance; goes on where it stopped")
    given = parser.parse_args()
    options = Options(tuple(given.rrc), given.weights, given.limit, given.device, given.seed, given.batch)
    try:
        run_uniform(find_sets(given.folder, given.sets), options, Store(given.output), PrintLines())
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
