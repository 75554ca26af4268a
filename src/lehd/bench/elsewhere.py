"""Benches on other processes and machines: sets are cut into units, and the records come back to one file.

A unit is a batch of a set, or a file. Its records say on what device they were measured; what is there already is not
measured again, on whatever device it was. A unit that was stopped begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from lehd.bench.library import Case, set_of
from lehd.bench.sets import Options, SetRun, TestSet
from lehd.bench.store import LEHD as OURS
from lehd.bench.store import Record, Store, in_seconds
from lehd.bench.summary import summarise
from lehd.bench.uniform import load_set
from lehd.bench.watch import Watch
from lehd.decoding.stop import Stop
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from lehd.solver import instances_at_once
from lehd.words import count
from lehd.work.run import run_units
from lehd.work.units import Engine, Failure, Job, Needs, Unit

Place = tuple[object, ...]  # a record's key but for the device


@dataclass(frozen=True)
class MeasureSet:
    """The job for a batch of a set, or for a file: greedy construction and RRC, or the search under a time limit."""

    options: Options
    models: dict[str, LEHD]  # by problem
    seconds: float | None = None

    def __call__(self, batch: TestSet) -> list[Record]:
        run = SetRun(batch, self.options, Store(), Watch(), self.models[batch.problem])
        return run.run() if self.seconds is None else run.search([self.seconds])


class Elsewhere:
    """One run of a bench."""

    def __init__(self, options: Options, store: Store, watch: Watch, engine: Engine, needs: Needs):
        self.given, self.store, self.watch, self.engine, self.needs = options, store, watch, engine, needs
        # What a worker is told; when to stop is the driver's to say.
        self.options = replace(options, device=needs.device, solutions=None, stop=Stop())
        self.models = {name: load_model(options.weights or shipped_weights(name)) for name in PROBLEMS}
        self.weights = {name: fingerprint(model) for name, model in self.models.items()}
        self.before = {_place(record) for record in store.records if not record.error}
        self.wanted: set[Place] = set()

    def uniform(self, paths: Iterable[Path]) -> list[Record]:
        """As run_uniform: greedy construction and RRC on all sets."""
        sets = (load_set(path, self.options.limit) for path in paths)
        return self._run(self._batches(sets), MeasureSet(self.options, self.models))

    def library(self, cases: Iterable[Case], seconds: float | None = None) -> list[Record]:
        """As run_library: greedy construction and RRC, or the search under a time limit, on every file."""
        return self._run(self._batches(map(set_of, cases), seconds), MeasureSet(self.options, self.models, seconds))

    def _batches(self, sets: Iterable[TestSet], seconds: float | None = None) -> Iterator[Unit]:
        budgets = [self.options.budget(iteration) for iteration in {0, *self.options.budgets}]
        for test_set in sets:
            size = self.options.batch or instances_at_once(self.needs.device, test_set.instances.num_nodes)
            whole = len(test_set.instances)
            for first in range(0, whole, size):
                rows = range(first, min(first + size, whole))
                place = (test_set.bench, test_set.name)
                names = [test_set.names[row] for row in rows]
                wanted = budgets if seconds is None else [in_seconds(seconds)]
                if self._missing(*place, test_set.problem, names, wanted):
                    yield Unit("/".join([*place, names[0]]), test_set.rows(rows))

    def _missing(self, bench: str, name: str, problem: str, instances: list[str], budgets: list[str]) -> bool:
        """Whether the store lacks something of a unit; and that it is wanted."""
        places = {
            (bench, name, instance, problem, OURS, budget, self.given.seed, self.weights[problem])
            for instance in instances
            for budget in budgets
        }
        self.wanted |= places
        return not places <= self.before

    def _run(self, units: Iterable[Unit], job: Job) -> list[Record]:
        units = takewhile(lambda unit: not self.given.stop.out_of_time(), units)
        done = 0

        def look() -> None:
            self.watch.working(f"{count(done, 'unit')} measured, working on further ones")

        for unit, records in run_units(units, job, self.engine, needs=self.needs, between=look):
            done += 1
            if isinstance(records, Failure):
                self.watch.failed(unit.id, records.reason)
            else:
                self.store.add(records)
                self.watch.measured(records)
        found = [record for record in self.store.records if _place(record) in self.wanted]
        for summary in summarise(found):
            self.watch.complete(summary)
        return found


def _place(record: Record) -> Place:
    return record.key[:-1]
