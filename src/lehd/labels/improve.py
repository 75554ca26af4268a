"""Better labels for the instances of a file: by a model (Random Re-Construct) or by a solver, the shorter one is kept.

    python -m lehd.labels.improve cvrp100.npz FOLDER --weights W.safetensors --iterations 200 --merge better.npz
    python -m lehd.labels.improve tsp100.npz FOLDER --solver fast-tsp --seconds 0.05 --merge better.npz
    python -m lehd.labels.improve uniform_tsp FOLDER --shards 0 100 --weights W.safetensors --merge fresh.npz

The last labels fresh instances of a recipe with the model; with a solver that is lehd.labels.pool's work. Instances are
worked on in parts; every finished part is a file in the folder, and the same command goes on where it stopped. The
merged file has the same instances in the same order, and says of each label who made it. Needs torch, numpy and
safetensors alone, or these and the solver; `lehd label` is the same with a progress bar.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from lehd.data.dataset import Arrays
from lehd.data.label_file import LabelFile, fresh_instances, names_a_file, read_label_file
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.labels.makers import Maker, by_model, by_solver
from lehd.labels.part_folder import merge_parts, open_folder
from lehd.labels.parts import ITERATIONS, ImprovePart, Settings, TakenApart, part_id, part_unit
from lehd.labels.shards import announce_merge
from lehd.labels.solvers import KINDS, make_solver
from lehd.model.checkpoint import load_model
from lehd.problems import of
from lehd.types import Solution
from lehd.words import count
from lehd.work.engines import LOCAL, add_engine_options, find_crew, find_engine
from lehd.work.here import Here
from lehd.work.run import run_units
from lehd.work.units import ONE_CORE, Engine, Failure, Needs, Unit

TOLD = 10  # so many failures in words


@dataclass
class Progress:
    """How far a run has come, in this call; costs are those of all finished parts."""

    parts: int  # finished, also by calls before
    total_parts: int
    instances: int = 0  # of finished parts, with a label before and after
    total_instances: int = 0
    improved: int = 0  # of these
    before: float = 0.0  # sums of their costs
    after: float = 0.0
    new: int = 0  # instances that had no label and got one from a solver
    unsolved: int = 0  # instances on which a solver failed
    iteration: int = 0  # of the part that is being worked on
    iterations: int = 0
    seconds: float = 0.0  # of this call
    done_here: int = 0  # instances
    spent: float = 0.0  # seconds on all finished parts, also by calls before
    failures: tuple[str, ...] = ()  # parts that were set aside, and why
    reasons: tuple[str, ...] = ()  # why the last instances were not solved

    @property
    def share(self) -> float:
        within = self.iteration / max(1, self.iterations)
        return min(1.0, (self.parts + within) / max(1, self.total_parts))

    @property
    def complete(self) -> bool:
        return self.parts == self.total_parts

    def add(self, part: Arrays, first: int) -> None:
        """Count a finished part, whose first instance has this number."""
        before, after = part["before"], part["after"]
        had, has = np.isfinite(before), np.isfinite(after)
        self.parts += 1
        self.spent += float(part["seconds"])
        self.instances += int(had.sum())
        self.improved += int((after < before)[had].sum())
        self.before += float(before[had].sum())
        self.after += float(after[had].sum())
        self.new += int((has & ~had).sum())
        for row, reason in enumerate(part.get("reasons", ())):
            if reason:
                self.unsolved += 1
                self.reasons = (*self.reasons, f"instance {first + row}: {reason}")[-TOLD:]

    def __str__(self) -> str:
        words = f"{self.parts}/{self.total_parts} parts"
        if self.instances:
            costs = f"mean cost {self.before / self.instances:.5g} -> {self.after / self.instances:.5g}"
            words += f", {self.improved} of {self.instances} shorter, {costs}"
        if self.new:
            words += f", {count(self.new, 'new label')}"
        if self.unsolved:
            words += f", {self.unsolved} not solved"
        if self.done_here:
            words += f", {self.done_here / max(self.seconds, 1e-9):.1f} instances/s"
        if self.failures:
            words += f", {count(len(self.failures), 'part')} failed"
        return words

    def troubles(self) -> list[str]:
        """What the user should know at the end."""
        lines = [f"not solved: {reason}" for reason in self.reasons]
        lines += [f"failed: {failure}" for failure in self.failures[:TOLD]]
        if not self.complete:
            lines.append(f"{count(self.total_parts - self.parts, 'part')} left: the same command goes on")
        return lines


def improve(
    maker: Maker,
    file: LabelFile,
    folder: Path,
    budget: float = float("inf"),
    watch: Callable[[Progress], None] = lambda progress: None,
    engine: Engine | None = None,
    needs: Needs = ONE_CORE,
) -> Progress:
    """Work on the parts that the folder does not hold yet; begin no further part after `budget` seconds.

    Without an engine they are worked on in this process, one after the other, and `watch` hears of every iteration of
    a model.
    """
    begun = time.perf_counter()
    done = open_folder(folder, file, maker)
    batch = int(done.facts["batch"])
    total = -(-len(file) // batch)
    progress = Progress(0, total, total_instances=len(file), iterations=maker.iterations)
    missing = []
    for number in range(total):
        if part_id(number) in done:
            progress.add(done.read(part_id(number)), number * batch)
        else:
            missing.append(number)
    watch(progress)

    def units() -> Iterator[Unit]:
        for number in missing:
            if time.perf_counter() - begun > budget:
                return
            yield part_unit(file, number, batch)

    def look() -> None:
        progress.seconds = time.perf_counter() - begun
        watch(progress)

    def step(iteration: int, _: Solution) -> None:
        progress.iteration = iteration
        look()

    job, limit, apart = maker.job, maker.patience(batch), TakenApart()
    if engine is None and isinstance(job, ImprovePart):
        job = replace(job, on_iteration=step)
    split = apart.split if maker.one_by_one else lambda unit: []
    results = run_units(units(), job, engine or Here(), needs=needs, patience=limit, split=split, between=look)
    for unit, result in results:
        if (part := apart.join(unit, result)) is None:
            continue
        number = unit.content.number
        progress.iteration = 0
        if isinstance(part, Failure):
            progress.failures += (f"{part_id(number)}: {part.reason}",)
        else:
            done.add(part_id(number), part)
            progress.add(part, number * batch)
            progress.done_here += len(part["after"])
        look()
    return progress


@dataclass(frozen=True)
class Wish:
    """What a command line asks for; with weights, a model does it."""

    source: str  # a label file, for a model also a recipe
    folder: Path
    weights: Path | None = None
    solver: str | None = None  # by default the usual one of the problem
    binary: Path | None = None
    seconds: float | None = None
    customers: int = 100  # of a recipe
    shards: tuple[int, int] = (0, 0)
    iterations: int | None = None
    parallel: bool = False
    batch: int | None = None
    seed: int = 0
    device: str | None = None
    processes: int | None = None
    cluster: str = LOCAL
    gpus: float = 0.0
    budget: float = float("inf")
    merge: Path | None = None


def run(wish: Wish, watch: Callable[[Progress], None]) -> tuple[Progress, int]:
    """What the commands do; the number of labels in the merged file."""
    engine: Engine | None
    if wish.weights is None:
        if wish.parallel or wish.seed or wish.device is not None or wish.gpus:
            raise LehdError("--parallel, --seed, --device and --gpus are for models; a solver takes none of them")
        if not names_a_file(wish.source):
            raise LehdError(f"{wish.source}: no label file; `python -m lehd.labels.pool` labels recipes by a solver")
        engine, needs = find_engine(wish.cluster, wish.processes), ONE_CORE
        file = _read(wish)
        solver = make_solver(of(file.instances).name, wish.solver, wish.seconds, wish.binary, wish.iterations)
        maker = by_solver(file, solver, wish.batch)
    else:
        if any(option is not None for option in (wish.solver, wish.binary, wish.seconds)):
            raise LehdError("--solver, --binary and --seconds are for solvers; a model takes none of them")
        engine, needs = find_crew(wish.cluster, wish.processes, wish.gpus)
        if engine is not None and wish.device is not None:
            raise LehdError("--device is for work in one process; --gpus says what a unit needs elsewhere")
        model, file = load_model(wish.weights), _read(wish)
        rounds = ITERATIONS if wish.iterations is None else wish.iterations
        settings = Settings(rounds, wish.parallel, wish.batch, wish.seed)
        maker = by_model(file, model, device_of(engine, needs, wish.device), settings)
    progress = improve(maker, file, wish.folder, wish.budget, watch, engine, needs)
    if progress.failures and not progress.parts:
        raise LehdError(f"no part could be worked on; {progress.failures[-1]}")
    if wish.merge is None:
        return progress, 0
    announce_merge(wish.merge)
    return progress, merge_parts(wish.folder, file, maker.name, wish.merge)


def _read(wish: Wish) -> LabelFile:
    shards = range(*wish.shards)
    if not names_a_file(wish.source):
        if not len(shards):
            raise LehdError("give --shards FIRST END: which instances of the recipe to label")
        return fresh_instances(wish.source, wish.customers, shards)
    if len(shards):
        raise LehdError("--shards are those of a recipe; the labels of a file are improved all together")
    if not Path(wish.source).is_file():
        raise LehdError(f"{wish.source}: no such label file")
    return read_label_file(Path(wish.source))


def device_of(engine: Engine | None, needs: Needs, device: str | None) -> torch.device:
    """Where a model works on parts. What workers elsewhere have is theirs to find out."""
    return find_device(device) if engine is None else torch.device(needs.device)


class PrintParts:
    """Prints a line for every finished part, and now and then how far the next one is."""

    def __init__(self, every: float = 30.0) -> None:
        self.parts, self.every, self.next = -1, every, every

    def __call__(self, progress: Progress) -> None:
        if progress.parts > self.parts:
            self.parts = progress.parts
            print(progress, flush=True)
        elif progress.seconds > self.next:
            within = f", iteration {progress.iteration}/{progress.iterations}" if progress.iterations else ""
            print(f"{100 * progress.share:.1f} %{within}", flush=True)
        else:
            return
        self.next = progress.seconds + self.every


def main() -> None:
    parser = argparse.ArgumentParser(description="Better labels for the instances of a file, by a model or a solver.")
    parser.add_argument("source", help="a file of labels or instances; with --weights also a recipe of fresh instances")
    parser.add_argument("folder", type=Path, help="where each finished part becomes a file")
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--weights", type=Path, help="those of the model")
    who.add_argument("--solver", choices=sorted(KINDS))
    parser.add_argument("--binary", type=Path, help="the program of lkh or concorde")
    parser.add_argument("--seconds", type=float, help="a solver's time for an instance; by default its own")
    parser.add_argument("--customers", type=int, default=100, help="nodes to visit, with a recipe")
    parser.add_argument("--shards", type=int, nargs=2, metavar=("FIRST", "END"), default=(0, 0), help="with a recipe")
    parser.add_argument("--iterations", type=int, help="of Random Re-Construct; of hgs without progress")
    parser.add_argument("--parallel", action="store_true", help="many disjoint partial solutions at once, by a model")
    parser.add_argument("--batch", type=int, help="instances in a part")
    parser.add_argument("--seed", type=int, default=0, help="of a model")
    parser.add_argument("--device", help="of a model")
    add_engine_options(parser, gpus=True)
    parser.add_argument("--budget", type=float, default=float("inf"), help="start no part after so many seconds")
    parser.add_argument("--merge", type=Path, help="write all labels so far to this file")
    wish = Wish(**vars(parser.parse_args()))
    try:
        progress, labels = run(wish, PrintParts())
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    if wish.merge is not None:
        print(f"{labels} labels in {wish.merge}")
    for line in progress.troubles():
        print(line)


if __name__ == "__main__":
    main()
