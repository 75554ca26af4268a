"""Labels by a model: construct where there is no label yet, Random Re-Construct, and keep whichever is shorter.

    python -m lehd.labels.improve cvrp100.npz FOLDER --weights W.safetensors --iterations 200 --merge better.npz
    python -m lehd.labels.improve uniform_tsp FOLDER --shards 0 100 --weights W.safetensors --merge fresh.npz

The first improves the labels of a file, the second labels fresh instances of a recipe. Instances are worked on in
parts; every finished part is a file in the folder, and the same command goes on where it stopped. The merged file has
the same instances in the same order, and says of each label who made it. Needs torch, numpy and safetensors alone;
`lehd label --improve` is the same with a progress bar.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lehd.data.dataset import read_arrays, write_arrays
from lehd.data.label_file import LabelFile, fresh_instances, read_label_file
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.labels.parts import ITERATIONS, ImprovePart, Settings, part_id, part_unit
from lehd.model.checkpoint import fingerprint, load_model
from lehd.model.lehd import LEHD
from lehd.problems import of
from lehd.types import Solution
from lehd.words import count
from lehd.work.engines import add_engine_options, find_crew
from lehd.work.here import Here
from lehd.work.ledger import Folder, read_manifest
from lehd.work.run import run_units
from lehd.work.units import ONE_CORE, Engine, Failure, Needs, Unit

MANIFEST = "improve.json"
NODES_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 20}  # of all instances of a part together


@dataclass
class Progress:
    """How far a run has come, in this call; costs are those of all finished parts."""

    parts: int  # finished, also by calls before
    total_parts: int
    instances: int = 0  # with a label of this run
    total_instances: int = 0
    improved: int = 0
    before: float = 0.0  # sums of costs
    after: float = 0.0
    iteration: int = 0  # of the part that is being worked on
    iterations: int = 0
    seconds: float = 0.0  # of this call
    done_here: int = 0  # instances
    spent: float = 0.0  # seconds on all finished parts, also by calls before
    failures: tuple[str, ...] = ()  # parts that were set aside, and why

    @property
    def share(self) -> float:
        within = self.iteration / max(1, self.iterations)
        return min(1.0, (self.parts + within) / max(1, self.total_parts))

    @property
    def complete(self) -> bool:
        return self.parts == self.total_parts

    def add(self, before: NDArray[np.float64], after: NDArray[np.float64], seconds: float) -> None:
        self.parts += 1
        self.spent += seconds
        self.instances += len(after)
        self.improved += int((after < before).sum())
        self.before += float(before.sum())
        self.after += float(after.sum())

    def __str__(self) -> str:
        words = f"{self.parts}/{self.total_parts} parts"
        if self.instances:
            costs = f"mean cost {self.before / self.instances:.5g} -> {self.after / self.instances:.5g}"
            words += f", {self.improved} of {self.instances} shorter, {costs}"
        if self.done_here:
            words += f", {self.done_here / max(self.seconds, 1e-9):.1f} instances/s"
        if self.failures:
            words += f", {count(len(self.failures), 'part')} failed"
        return words


def maker(model: LEHD, settings: Settings) -> str:
    """What the label file calls this model."""
    return f"model {fingerprint(model)} RRC {settings.iterations}"


def improve(
    file: LabelFile,
    folder: Path,
    model: LEHD,
    device: torch.device,
    settings: Settings,
    budget: float = float("inf"),
    watch: Callable[[Progress], None] = lambda progress: None,
    engine: Engine | None = None,
    needs: Needs = ONE_CORE,
) -> Progress:
    """Work on the parts that the folder does not hold yet; begin no further part after `budget` seconds.

    Without an engine they are worked on in this process, one after the other, and `watch` hears of every iteration.
    """
    if not model.config.has(of(file.instances).model_sizes):
        raise LehdError(f"the weights are for another problem than the labels, a {of(file.instances).name}")
    if settings.iterations < 0 or (settings.batch is not None and settings.batch < 1):
        raise LehdError("expected 0 or more iterations and at least one instance in a part")
    begun = time.perf_counter()
    done = _open(file, folder, model, device, settings)
    batch = int(done.facts["batch"])
    total = -(-len(file) // batch)
    progress = Progress(0, total, total_instances=len(file), iterations=settings.iterations)
    missing = []
    for number in range(total):
        if part_id(number) in done:
            part = done.read(part_id(number))
            progress.add(part["before"], part["after"], float(part["seconds"]))
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

    job = ImprovePart(model, str(device), settings, step if engine is None else None)
    for unit, part in run_units(units(), job, engine or Here(), needs=needs, ledger=done, between=look):
        progress.iteration = 0
        progress.seconds = time.perf_counter() - begun
        if isinstance(part, Failure):
            progress.failures += (f"{unit.id}: {part.reason}",)
        else:
            progress.add(part["before"], part["after"], float(part["seconds"]))
            progress.done_here += len(part["after"])
        watch(progress)
    return progress


def collect(file: LabelFile, folder: Path) -> tuple[Solution, NDArray[np.bool_], NDArray[np.bool_]]:
    """All labels so far; which instances (M,) have one; which of them (M,) the model made."""
    nodes, via = file.solution.nodes.clone(), file.solution.via_depot.clone()
    labelled, by_model = file.labelled.copy(), np.zeros(len(file), bool)
    batch = read_manifest(folder / MANIFEST)["batch"]
    for number in range(-(-len(file) // batch)):
        if (path := folder / f"{part_id(number)}.npz").exists():
            part, rows = read_arrays(path), slice(number * batch, (number + 1) * batch)
            by_model[rows] = (part["after"] < part["before"]) | ~file.labelled[rows]
            labelled[rows] = True
            nodes[rows] = torch.as_tensor(part["nodes"].astype(np.int64))
            via[rows] = torch.as_tensor(np.unpackbits(part["via"], axis=1, count=via.shape[1]).astype(bool))
    solution = Solution(nodes, via)
    chosen = torch.as_tensor(labelled)
    of(file.instances).check(file.instances.rows(chosen), solution.rows(chosen))
    return solution, labelled, by_model


def run(
    source: str,
    folder: Path,
    weights: Path,
    customers: int,
    shards: tuple[int, int],
    settings: Settings,
    budget: float,
    target: Path | None,
    device: str | None,
    watch: Callable[[Progress], None],
    engine: Engine | None = None,
    needs: Needs = ONE_CORE,
) -> tuple[Progress, int]:
    """What the commands do: improve a file's labels, or label fresh instances; the number of labels in the target."""
    model = load_model(weights)
    if Path(source).is_file():
        if len(range(*shards)):
            raise LehdError("--shards are those of a recipe; the labels of a file are improved all together")
        file = read_label_file(Path(source))
    elif source.endswith((".npz", ".txt")):
        raise LehdError(f"{source}: no such label file")
    else:
        if not len(range(*shards)):
            raise LehdError("give --shards FIRST END: which instances of the recipe to label")
        file = fresh_instances(source, customers, range(*shards))
    if engine is not None and device is not None:
        raise LehdError("--device is for work in one process; --gpus says what a unit needs elsewhere")
    progress = improve(file, folder, model, device_of(engine, needs, device), settings, budget, watch, engine, needs)
    if target is None:
        return progress, 0
    return progress, write_merged(file, folder, model, settings, target)


def device_of(engine: Engine | None, needs: Needs, device: str | None) -> torch.device:
    """Where parts are worked on. What workers elsewhere have is theirs to find out."""
    return find_device(device) if engine is None else torch.device(needs.device)


def write_merged(file: LabelFile, folder: Path, model: LEHD, settings: Settings, target: Path) -> int:
    """A label file of what there is so far; the number of its labels."""
    solution, labelled, by_model = collect(file, folder)
    write_arrays(target, file.with_labels(solution, labelled, maker(model, settings), by_model))
    return int(labelled.sum())


def _open(file: LabelFile, folder: Path, model: LEHD, device: torch.device, settings: Settings) -> Folder:
    """The folder's parts must be those of the same labels, model and settings."""
    digest = hashlib.sha256()
    for name, array in sorted(file.arrays.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    facts = {
        "model": fingerprint(model),
        "labels": digest.hexdigest()[:12],
        "iterations": settings.iterations,
        "parallel": settings.parallel,
        "seed": settings.seed,
    }
    if settings.batch is not None:
        return Folder(folder, MANIFEST, facts | {"batch": settings.batch})
    return Folder(folder, MANIFEST, facts, {"batch": max(1, NODES_AT_ONCE[device.type] // file.instances.num_nodes)})


class PrintParts:
    """Prints a line for every finished part, and now and then how far the next one is."""

    def __init__(self, every: float = 30.0) -> None:
        self.parts, self.every, self.next = -1, every, every

    def __call__(self, progress: Progress) -> None:
        if progress.parts > self.parts:
            self.parts = progress.parts
            print(progress, flush=True)
        elif progress.seconds > self.next:
            print(f"{100 * progress.share:.1f} %, iteration {progress.iteration}/{progress.iterations}", flush=True)
        else:
            return
        self.next = progress.seconds + self.every


def main() -> None:
    parser = argparse.ArgumentParser(description="Make labels with a model, or improve those of a file.")
    parser.add_argument("source", help="a label file to improve, or a recipe of fresh instances")
    parser.add_argument("folder", type=Path, help="where each finished part becomes a file")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--customers", type=int, default=100, help="nodes to visit, with a recipe")
    parser.add_argument("--shards", type=int, nargs=2, metavar=("FIRST", "END"), default=(0, 0), help="with a recipe")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of Random Re-Construct")
    parser.add_argument("--parallel", action="store_true", help="many disjoint partial solutions at once")
    parser.add_argument("--batch", type=int, help="instances worked on together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    add_engine_options(parser, gpus=True)
    parser.add_argument("--budget", type=float, default=float("inf"), help="start no part after so many seconds")
    parser.add_argument("--merge", type=Path, help="write all labels so far to this file")
    options = parser.parse_args()
    settings = Settings(options.iterations, options.parallel, options.batch, options.seed)
    try:
        progress, labels = run(
            options.source,
            options.folder,
            options.weights,
            options.customers,
            tuple(options.shards),
            settings,
            options.budget,
            options.merge,
            options.device,
            PrintParts(),
            *find_crew(options.cluster, options.processes, options.gpus),
        )
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    if options.merge is not None:
        print(f"{labels} labels in {options.merge}")
    for failure in progress.failures:
        print(f"failed: {failure}")
    if not progress.complete:
        print(f"{progress.total_parts - progress.parts} parts left: the same command goes on")


if __name__ == "__main__":
    main()
