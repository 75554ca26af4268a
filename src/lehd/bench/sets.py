"""Instances of one size, measured together: greedy construction and RRC, every budget a point of one run.

A test set of generated instances is one such set, a benchmark file is a set of one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from lehd import distance, problems
from lehd.bench.curve import SEGMENT, Point, run_curve
from lehd.bench.machine import device_words
from lehd.bench.resume import Progress as Resumed
from lehd.bench.store import LEHD, Record, Store, in_seconds, rrc
from lehd.bench.summary import summarise
from lehd.bench.watch import Watch
from lehd.decoding.compilation import wait_for_kernels
from lehd.decoding.stop import Stop
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.io.write import write_result
from lehd.memory import in_turns
from lehd.model import lehd as network
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.solver import LEAST, Progress, instances_at_once, solve
from lehd.types import Instances, Result, Solution
from lehd.words import count


@dataclass(frozen=True)
class TestSet:
    bench: str
    name: str
    instances: Instances
    names: Sequence[str]  # of the instances
    reference: Sequence[float]
    paper_reference: float | None = None  # of a benchmark file that the paper has

    @property
    def problem(self) -> str:
        return problems.of(self.instances).name

    @property
    def nodes(self) -> int:
        """To visit, in each instance."""
        return self.instances.num_nodes - problems.of(self.instances).first_node

    def rows(self, rows: range) -> TestSet:
        """Some of its instances."""
        part = slice(rows.start, rows.stop)
        return replace(
            self, instances=self.instances.rows(part), names=self.names[part], reference=self.reference[part]
        )


@dataclass(frozen=True)
class Options:
    budgets: tuple[int, ...] = ()  # RRC iterations at which to look; greedy construction always is
    weights: Path | None = None
    limit: int | None = None  # only the first so many instances of a set
    device: str | None = None
    seed: int = 0
    batch: int | None = None  # instances at once; by default what should fit
    turn: bool = False  # parts are shown turned or mirrored at random; the paper: as they are
    nearest: int | None = None  # how many nodes the model sees; the paper: all
    solutions: Path | None = None  # a folder for the solutions of the instances …
    show: tuple[str, ...] = ()  # … of these names
    stop: Stop = field(default_factory=Stop)  # when to leave the rest for another time

    def __post_init__(self) -> None:
        if self.nearest is not None and self.nearest < LEAST["nearest"]:
            raise LehdError(f"{self.nearest} nearest nodes: at least {LEAST['nearest']} have to be in view")

    def budget(self, iteration: int) -> str:
        """What so many iterations with these options are called."""
        return rrc(iteration, self.turn, self.nearest)


def refuse_stopped(results: Sequence[Result]) -> None:
    """A search that the user stopped ends well, but less than what was asked for is no measurement."""
    if any(result.interrupted for result in results):
        raise KeyboardInterrupt


class SetRun:
    """One set, batch by batch."""

    def __init__(
        self, test_set: TestSet, options: Options, store: Store, watch: Watch, model: network.LEHD | None = None
    ):
        self.set, self.options, self.store, self.watch = test_set, options, store, watch
        self.problem = problems.of(test_set.instances)
        self.device = find_device(options.device)
        model = load_model(options.weights or shipped_weights(self.problem.name)) if model is None else model
        self.model = model.to(self.device)
        if not self.model.config.has(self.problem.model_sizes):
            raise LehdError(f"{options.weights} was not made for a {self.problem.name}")
        self.weights = fingerprint(self.model)
        self.words = device_words(self.device)
        self.budgets = sorted({0, *options.budgets})
        self.told: set[str] = set()

    def record(self, row: int, budget: str, **measured: object) -> Record:
        return Record(
            bench=self.set.bench,
            set=self.set.name,
            instance=self.set.names[row],
            problem=self.set.problem,
            nodes=self.set.nodes,
            method=LEHD,
            budget=budget,
            seed=self.options.seed,
            device=self.words,
            weights=self.weights,
            reference=float(self.set.reference[row]),
            paper_reference=self.set.paper_reference,
            **measured,  # type: ignore[arg-type]
        )

    def run(self) -> list[Record]:
        """Measure what the store does not have, return all. Out of memory, half as many instances go on at once."""
        self._tell_complete()
        rows = range(len(self.set.instances))
        todo = [row for row in rows if self._missing([row])]
        batch = self.options.batch or self._at_once()

        def work(part: slice) -> None:
            if not self.options.stop.out_of_time():
                self._run_rows(todo[part])

        def halved(size: int) -> None:
            self.watch.working(f"{self.set.name}: out of memory, now {size} instances at once")

        in_turns(len(todo), batch, work, halved)
        return self.records()

    def search(self, seconds: Sequence[float], start: float = 0.0, keep: bool = False) -> list[Record]:
        """As `solve` does with a time limit, the longest of these, for all instances at once; the others are points of
        the same run. Nothing that the store has is measured again.

        With a `start` it goes on where a search of so many seconds ended, whose time counts: one that was to `keep`
        its solutions.
        """
        longest = max(seconds)
        if min(seconds) <= start:
            raise LehdError(f"{min(seconds):g} s are over after {start:g}: time limits count what went before, too")
        budgets = {each: in_seconds(each, longest, start) for each in sorted(seconds)}
        size, together = len(self.set.instances), self._at_once()
        if (len(budgets) > 1 or start) and size > together:
            raise LehdError(
                f"{self.set.name}: several time limits, or a start, need all instances at once, here at most {together}"
            )
        wanted = [self.record(row, budget).key for row in range(size) for budget in budgets.values()]
        found = [self.store.found[key] for key in wanted if key in self.store.found]
        if found and (len(found) < len(wanted) or any(record.batch != size for record in found)):
            raise LehdError(
                f"{self.store.path}: has a search of {self.set.name} with other instances or limits: take another file"
            )
        if not found and not self.options.stop.out_of_time():
            begin = self._ended(start)
            what = self.set.names[0] if size == 1 else f"{self.set.name}: {size} instances"
            # Another part of a search needs draws of its own: it would try again what has been tried.
            seed = random.Random(f"{self.options.seed} {start}").getrandbits(31) if start else self.options.seed

            self.watch.working(f"{what}: the device gets ready")
            wait_for_kernels(self.model, self.problem, self.set.instances.to(self.device))

            def tick(progress: Progress) -> None:
                self.watch.working(f"{what}, {start + progress.seconds:.0f} of {longest:g} seconds")

            solved = solve(
                self.set.instances,
                time_limit=longest - start,
                model=self.model,
                seed=seed,
                device=self.device,
                progress=tick,
                start=None if begin is None else begin.solution,
            )
            results = solved if isinstance(solved, list) else [solved]
            refuse_stopped(results)
            self._note_search(results, budgets, begin, keep)
        return self._stored(budgets.values())

    def _resumed(self, names: Sequence[str], *kind: str) -> Resumed:
        """Where the solutions of a run, of these instances and of some kind, are kept."""
        facts = (self.set.bench, self.set.name, self.weights, self.options.seed, self.words, list(names), *kind)
        return Resumed(self.store.path, facts)

    def _ended(self, seconds: float) -> Point | None:
        """What the search of so many seconds ended with, the only one in the store; None for none at all."""
        if not seconds:
            return None
        name = in_seconds(seconds)
        first = {record.budget: record for record in self.store.found.values() if self._is_first(record)}
        budgets = [budget for budget in first if budget.partition(" after ")[0] == name]
        if len(budgets) != 1:
            many = "more than one search" if budgets else "no search"
            where = self.store.path or "without --output"
            raise LehdError(f"{where}: {many} of {self.set.name} with {name} to start from")
        before, now = first[budgets[0]].batch, len(self.set.instances)
        if before != now:
            raise LehdError(
                f"{self.store.path}: the search with {name} had {count(before, 'instance')}, here are {now}"
            )
        point = self._resumed(self.set.names, budgets[0]).load(torch.device("cpu"))
        if point is None:
            raise LehdError(f"{self.store.path}: the solutions of {self.set.name} after {name} are gone")
        return point

    def _is_first(self, record: Record) -> bool:
        """Whether it is of the first instance, measured as now."""
        return record.cost is not None and record.key == self.record(0, record.budget).key

    def _at_once(self) -> int:
        """Instances that are worked on together."""
        return instances_at_once(self.device.type, self.set.instances.num_nodes)

    def _note_search(self, results: list[Result], budgets: dict[float, str], begin: Point | None, keep: bool) -> None:
        records = []
        before, done = (0.0, 0) if begin is None else (begin.seconds, begin.iteration)
        whole = before + max(result.seconds for result in results)
        for seconds, budget in budgets.items():
            for row, result in enumerate(results):
                measured: dict[str, object] = {"error": "no solution yet"}
                reached = [each for each in result.history if before + each.seconds <= seconds]
                if seconds == max(budgets):
                    paper = self._paper_costs(result.instance, result.solution)[0]
                    measured = {"cost": result.cost, "paper_cost": paper, "iterations": done + result.iterations}
                    self._save_solution(row, result, budget)
                elif reached:
                    measured = {"cost": reached[-1].cost, "iterations": done + reached[-1].iteration}
                spent = min(seconds, whole) / len(results)
                records.append(self.record(row, budget, seconds=spent, batch=len(results), **measured))
        self.store.add(records)
        if keep:
            nodes = torch.cat([each.solution.nodes for each in results])
            via_depot = torch.cat([each.solution.via_depot for each in results])
            iterations = done + max(each.iterations for each in results)
            ended = Point(iterations, max(budgets), Solution(nodes, via_depot))
            self._resumed(self.set.names, budgets[max(budgets)]).save(ended)
        self.watch.measured(records)
        for summary in summarise(records):
            self.watch.complete(summary)

    def _missing(self, rows: list[int]) -> list[int]:
        """The numbers of iterations at which some row has not been measured."""
        name = self.options.budget
        return [each for each in self.budgets if any(self.record(row, name(each)) not in self.store for row in rows)]

    def records(self) -> list[Record]:
        """What the store has of greedy construction and RRC."""
        return self._stored(map(self.options.budget, self.budgets))

    def _stored(self, budgets: Iterable[str]) -> list[Record]:
        keys = (self.record(row, budget).key for budget in budgets for row in range(len(self.set.instances)))
        return [self.store.found[key] for key in keys if key in self.store.found]

    def _run_rows(self, rows: list[int]) -> None:
        options = self.options
        instances = self.set.instances.rows(torch.tensor(rows)).to(self.device)
        names = [self.set.names[row] for row in rows]
        kind = [*(["turned"] if options.turn else []), *([f"{options.nearest} nearest"] if options.nearest else [])]
        progress = self._resumed(names, *kind)
        begin = progress.load(self.device)
        if begin is not None and self._missing(rows)[0] <= begin.iteration:
            begin = None  # the results are gone that were there when it came so far
        last = self.budgets[-1]
        what = names[0] if len(rows) == 1 else f"{self.set.name}: {len(rows)} instances"

        def tick(iteration: int) -> None:
            self.watch.working(f"{what}, iteration {iteration} of {last}")

        tick(0 if begin is None else begin.iteration)
        how = (options.seed, begin, options.turn, options.nearest, tick)
        for point in run_curve(self.model, self.problem, instances, self.budgets, *how):
            if point.iteration in self.budgets:
                self._note(rows, instances, point)
            if point.iteration % SEGMENT == 0:
                progress.save(point)
            if options.stop.out_of_time():
                return

    def _note(self, rows: list[int], instances: Instances, point: Point) -> None:
        self.problem.check(instances, point.solution)
        costs = self.problem.cost(instances, point.solution).tolist()
        paper = self._paper_costs(instances, point.solution)
        measured = {"iterations": point.iteration, "seconds": point.seconds / len(rows), "batch": len(rows)}
        budget = self.options.budget(point.iteration)
        records = [
            self.record(row, budget, cost=cost, paper_cost=other, **measured)
            for row, cost, other in zip(rows, costs, paper, strict=True)
        ]
        for place, (row, cost) in enumerate(zip(rows, costs, strict=True)):
            if not self._shown(row):
                continue
            instance = self.set.instances.rows(slice(row, row + 1))
            solution = point.solution.rows(slice(place, place + 1)).to("cpu")
            facts = (point.seconds, point.iteration, self.options.seed, self.weights)
            self._save_solution(row, Result(instance, solution, cost, (), *facts), budget)
        self.store.add(records)
        self.watch.measured(records)
        self._tell_complete()

    def _paper_costs(self, instances: Instances, solution: Solution) -> list[float] | list[None]:
        """The paper counts the tours of TSPLIB unrounded."""
        if self.set.paper_reference is None or self.set.problem != "TSP":
            return [None] * len(instances)
        plain = replace(instances, rule=distance.EUCLIDEAN)
        costs: list[float] = self.problem.cost(plain, solution).tolist()
        return costs

    def _shown(self, row: int) -> bool:
        return self.options.solutions is not None and self.set.names[row] in self.options.show

    def _save_solution(self, row: int, result: Result, budget: str) -> None:
        if self.options.solutions is not None and self._shown(row):
            name, ending = self.set.names[row], "tour" if self.set.problem == "TSP" else "sol"
            named = replace(result, instance=replace(result.instance, names=(name,)))
            write_result(named, self.options.solutions / f"{name}.{budget}.{ending}")

    def _tell_complete(self) -> None:
        for summary in summarise(self.records()):
            if summary.instances == len(self.set.instances) and summary.budget not in self.told:
                self.told.add(summary.budget)
                self.watch.complete(summary)
