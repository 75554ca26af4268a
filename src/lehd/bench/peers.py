"""lehd beside the solvers a user would pick instead: the same instances, machine and wall-clock time.

    python -m lehd.bench.peers DATA --sets tsp100_s2023 cvrp200 --limit 10 --files a280 X-n101-k25 --seconds 1 10

DATA holds the folders uniform, tsplib and cvrplib. Every solver gets each instance alone, one after the other, with one
core; so does lehd, but for a GPU where there is one. With --throughput the instances of a set are solved all together:
the others take as many at a time as there are --cores, lehd all at once with so many threads, and both have the time
the others need.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lehd import __version__, problems
from lehd.bench.items import Item, find_items
from lehd.bench.machine import cpu_time, device_words
from lehd.bench.peers_table import BENCH, TOGETHER, peers_table
from lehd.bench.rivals import RIVALS, Routes, Work
from lehd.bench.sets import refuse_stopped
from lehd.bench.store import LEHD, Record, Store, in_seconds
from lehd.bench.summary import summarise
from lehd.bench.watch import PrintLines, Watch
from lehd.device import find_device
from lehd.distance import EUCLIDEAN
from lehd.errors import LehdError
from lehd.labels.solvers import Task, check_routes, find_program
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.solver import solve
from lehd.types import Instances, Result
from lehd.words import count
from lehd.work.here import Here
from lehd.work.local import Pool
from lehd.work.run import run_units
from lehd.work.units import Engine, Failure, Unit

SECONDS = (1.0, 10.0, 60.0)
GRACE = 60.0  # seconds after which a solver that does not end is given up


@dataclass(frozen=True)
class Options:
    seconds: tuple[float, ...] = SECONDS  # for each instance
    solvers: tuple[str, ...] = (LEHD, *RIVALS)
    binaries: dict[str, Path] = field(default_factory=dict)  # programs of LKH and Concorde
    weights: dict[str, Path] = field(default_factory=dict)  # by problem; the shipped ones elsewhere
    device: str | None = None
    seed: int = 0
    cores: int = 1  # in throughput mode: instances of the others at a time, threads of lehd on a CPU
    throughput: bool = False

    @property
    def cores_used(self) -> int:
        """Of each solver: an instance alone gets one."""
        return self.cores if self.throughput else 1


class Race:
    """All solvers on all items, with every budget."""

    def __init__(self, items: list[Item], options: Options, store: Store, watch: Watch, engine: Engine | None = None):
        """With an engine several instances are solved at a time, each on a CPU core of its own."""
        self.items, self.options, self.store, self.watch, self.engine = items, options, store, watch, engine
        if engine is not None and (options.throughput or options.device not in (None, "cpu")):
            raise LehdError("--throughput and GPUs are for one machine and process")
        self.device = find_device(options.device if engine is None else "cpu")
        self.missing: dict[str, str] = {}  # solvers that cannot run, and why
        unknown = set(options.solvers) - {LEHD, *RIVALS}
        if unknown:
            raise LehdError(f"no solver {', '.join(sorted(unknown))}; there are {', '.join((LEHD, *RIVALS))}")

    def run(self) -> list[Record]:
        records: list[Record] = []
        for seconds in self.options.seconds:
            for name in self.options.solvers:
                for group in self._sets():
                    records += self._measure(name, group, seconds)
        return records

    def _sets(self) -> list[list[Item]]:
        """Items of one set together, small ones first, within a set too."""
        groups: dict[tuple[str, str], list[Item]] = {}
        for item in sorted(self.items, key=lambda item: item.instance.num_nodes):
            groups.setdefault((item.problem, item.set), []).append(item)
        return list(groups.values())

    def _measure(self, name: str, group: list[Item], seconds: float) -> list[Record]:
        problem = group[0].problem
        if name != LEHD and (problem not in RIVALS[name].problems or not self._there(name)):
            return []
        weights = self._weights(problem) if name == LEHD else None
        empty = [self._record(name, item, seconds, weights) for item in group]
        todo = [(item, record) for item, record in zip(group, empty, strict=True) if record not in self.store]
        run = self._lehd if name == LEHD else self._rival
        for record in run(name, todo, seconds) if todo else ():
            self.store.add([record])
            self.watch.measured([record])
        done = [self.store.found[record.key] for record in empty]
        for summary in summarise(done):
            self.watch.complete(summary)
        return done

    def _there(self, name: str) -> bool:
        rival = RIVALS[name]
        if rival.package is None:
            there = name in self.options.binaries
            reason = f"no program given ({rival.distribution} PATH)"
        else:
            there, reason = rival.version() is not None, f"not installed (pip install {rival.distribution})"
        if not there:
            self.missing[name] = reason
        return there

    def _weights(self, problem: str) -> Path:
        return self.options.weights.get(problem) or shipped_weights(problem)

    def _record(self, name: str, item: Item, seconds: float, weights: Path | None) -> Record:
        on_gpu = name == LEHD and self.device.type == "cuda"
        return Record(
            bench=BENCH,
            set=item.set,
            instance=item.name,
            problem=item.problem,
            nodes=item.instance.num_nodes - problems.of(item.instance).first_node,
            method=name,
            budget=in_seconds(seconds) + (f" {TOGETHER}" if self.options.throughput else ""),
            seed=self.options.seed,
            device=device_words(self.device) if on_gpu else f"cpu, {count(self.options.cores_used, 'core')}",
            weights=fingerprint(load_model(weights)) if weights else "",
            version=__version__ if name == LEHD else RIVALS[name].version() or "unknown",
            reference=item.reference,
        )

    # ---- lehd

    def _lehd(self, name: str, todo: list[tuple[Item, Record]], seconds: float) -> Iterator[Record]:
        model = load_model(self._weights(todo[0][0].problem))
        job = Lehd({"model": model, "seed": self.options.seed, "device": str(self.device)}, seconds)
        with _threads(self.options.cores_used):
            if self.options.throughput:
                yield from self._lehd_together(todo, seconds, job.warm(todo[0][0].instance))
                return
            units = (self._unit(name, place, item, item.instance, seconds) for place, (item, _) in enumerate(todo))
            engine, patience = self.engine or Here(), 3 * seconds + GRACE
            for unit, result in run_units(units, job, engine, attempts=1, patience=patience):
                _, record = todo[int(unit.id)]
                if isinstance(result, Failure):
                    yield replace(record, error=result.reason, seconds=seconds)
                else:
                    yield replace(record, **result)

    def _unit(self, name: str, place: int, item: Item, content: Any, seconds: float) -> Unit:
        self.watch.working(f"{name}, {item.name}, {seconds:g} s")
        return Unit(str(place), content)

    def _lehd_together(
        self, todo: list[tuple[Item, Record]], seconds: float, settings: dict[str, Any]
    ) -> Iterator[Record]:
        sizes = {item.instance.num_nodes for item, _ in todo}
        if len(sizes) > 1:
            raise LehdError(f"{todo[0][0].set}: throughput needs instances of one size")
        self.watch.working(f"lehd, {todo[0][0].set}, {len(todo)} instances at once")
        limit = seconds * -(-len(todo) // self.options.cores)
        whole = _together([item.instance for item, _ in todo])
        before = cpu_time()
        results: Any = solve(whole, time_limit=limit, **settings)
        results = [results] if isinstance(results, Result) else results
        refuse_stopped(results)
        seconds, cpu = max(result.seconds for result in results), cpu_time() - before
        share, cpu_share = seconds / len(todo), cpu / len(todo)
        for result, (_, record) in zip(results, todo, strict=True):
            spent = replace(record, seconds=share, cpu_seconds=cpu_share, batch=len(todo))
            yield replace(spent, cost=result.cost, iterations=result.iterations)

    # ---- the others

    def _rival(self, name: str, todo: list[tuple[Item, Record]], seconds: float) -> Iterator[Record]:
        processes = self.options.cores_used
        units = (
            self._unit(name, place, item, self._work(name, item, seconds), seconds)
            for place, (item, _) in enumerate(todo)
        )
        engine, patience = self.engine or Pool(processes), 3 * seconds + GRACE
        for unit, result in run_units(units, Rivalling(name), engine, attempts=1, patience=patience):
            item, record = todo[int(unit.id)]
            if isinstance(result, Failure):
                yield replace(record, error=result.reason, seconds=seconds)
                continue
            routes, spent, cpu = result
            problem = problems.of(item.instance)
            solution = problem.solution(item.instance, routes[0] if record.problem == "TSP" else routes)
            cost = problem.cost(item.instance, solution)[0].item()
            batch = min(processes, len(todo))
            yield replace(record, cost=cost, seconds=spent / batch, cpu_seconds=cpu, batch=batch)

    def _work(self, name: str, item: Item, seconds: float) -> Work:
        instance = item.instance
        size = instance.num_nodes
        nodes = torch.arange(size)
        distances = instance.distance(nodes.repeat_interleave(size)[None], nodes.repeat(size)[None])
        sites = instance.coords if instance.sites is None else instance.sites
        demands, capacity = instance.demands, instance.capacity
        return Work(
            coords=sites[0].double().numpy(),
            distances=distances.view(size, size).double().numpy(),
            rounded=not distances.is_floating_point(),
            plain=instance.rule == EUCLIDEAN,
            demands=None if demands is None else demands[0].numpy().astype(np.int64),
            capacity=None if capacity is None else int(capacity[0]),
            seconds=seconds,
            seed=self.options.seed,
            binary=self.options.binaries.get(name),
        )


class Lehd:
    """The job of lehd: solve, and look at the clock."""

    def __init__(self, settings: dict[str, Any], seconds: float):
        self.settings, self.seconds, self.cold = settings, seconds, True

    def warm(self, instance: Instances) -> dict[str, Any]:
        """The first call in a process pays for initialisation. Returns the settings."""
        if self.cold:
            solve(instance, rrc=1, **self.settings)
            self.cold = False
        return self.settings

    def __call__(self, instance: Instances) -> dict[str, Any]:
        self.warm(instance)
        before = cpu_time()
        result: Any = solve(instance, time_limit=self.seconds, **self.settings)
        refuse_stopped([result])
        spent = {"seconds": result.seconds, "cpu_seconds": cpu_time() - before}
        return {"cost": result.cost, "iterations": result.iterations, **spent}


@dataclass(frozen=True)
class Rivalling:
    """The job of another solver: solve, look at the clock, check."""

    name: str

    def __call__(self, work: Work) -> tuple[Routes, float, float]:
        """Routes, seconds by the clock and seconds on CPU cores."""
        rival = RIVALS[self.name]
        if rival.package is not None:
            import_module(rival.package)  # not part of the time
        begun, before = time.perf_counter(), cpu_time()
        routes = rival.solve(work)
        spent, cpu = time.perf_counter() - begun, cpu_time() - before
        check_routes(Task(work.coords, work.demands, work.capacity), routes)  # type: ignore[arg-type]
        return routes, spent, cpu


def _together(instances: list[Instances]) -> Instances:
    """Instances of one size as a batch."""

    def join(name: str) -> torch.Tensor | None:
        parts = [getattr(each, name) for each in instances]
        return None if parts[0] is None else torch.cat(parts)

    first = instances[0]
    tensors = {name: join(name) for name in ("coords", "sites", "matrix", "demands", "capacity", "vehicles")}
    return replace(first, names=(), node_names=(), **tensors)  # type: ignore[arg-type]


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare lehd with other solvers.")
    parser.add_argument("data", type=Path, help="the folder of uniform, tsplib and cvrplib")
    parser.add_argument("--sets", nargs="*", default=[], help="uniform test sets")
    parser.add_argument("--limit", type=int, default=10, help="only the first so many instances of a set")
    parser.add_argument("--files", nargs="*", default=[], help="benchmark files")
    parser.add_argument("--seconds", nargs="+", type=float, default=list(SECONDS))
    parser.add_argument("--solvers", nargs="+", default=[LEHD, *RIVALS])
    parser.add_argument("--throughput", action="store_true", help="the instances of a set all together")
    parser.add_argument("--cores", type=int, default=1, help="with --throughput: for each solver")
    parser.add_argument("--lkh", type=Path, help="your LKH program")
    parser.add_argument("--concorde", type=Path, help="your Concorde program")
    parser.add_argument("--tsp-weights", type=Path)
    parser.add_argument("--cvrp-weights", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="a .jsonl file for a line per instance; goes on where it stopped")
    given = parser.parse_args()
    weights = {"TSP": given.tsp_weights, "CVRP": given.cvrp_weights}
    binaries = {"LKH": given.lkh, "Concorde": given.concorde}
    options = Options(
        seconds=tuple(given.seconds),
        solvers=tuple(given.solvers),
        binaries={name: find_program(name, path, f"--{name.lower()} FILE") for name, path in binaries.items() if path},
        weights={problem: path for problem, path in weights.items() if path},
        device=given.device,
        seed=given.seed,
        cores=given.cores,
        throughput=given.throughput,
    )
    try:
        items = find_items(given.data, given.sets, given.limit, given.files)
        race = Race(items, options, Store(given.output), PrintLines())
        records = race.run()
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    print(peers_table(records, race.missing))


if __name__ == "__main__":
    main()
