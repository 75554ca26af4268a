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
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lehd.data.dataset import read_arrays, write_arrays
from lehd.data.label_file import LabelFile, fresh_instances, read_label_file
from lehd.decoding.construct import construct
from lehd.decoding.rrc import random_reconstruct, strictly_shorter
from lehd.decoding.stop import max_iterations
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.model.checkpoint import fingerprint, load_model, write_atomically
from lehd.model.lehd import LEHD
from lehd.problems import of
from lehd.problems.base import unit_box
from lehd.types import Instances, Solution

MANIFEST = "improve.json"
NODES_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 20}  # of all instances of a part together
ITERATIONS = 100


@dataclass(frozen=True)
class Settings:
    iterations: int = ITERATIONS
    parallel: bool = False  # as many disjoint partial solutions at once as fit; the paper: one
    batch: int | None = None  # instances in a part; chosen if None
    seed: int = 0


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
) -> Progress:
    """Work on the parts that the folder does not hold yet; begin no further part after `budget` seconds."""
    if not model.config.has(of(file.instances).model_sizes):
        raise LehdError(f"the weights are for another problem than the labels, a {of(file.instances).name}")
    if settings.iterations < 0 or (settings.batch is not None and settings.batch < 1):
        raise LehdError("expected 0 or more iterations and at least one instance in a part")
    begun = time.perf_counter()
    batch = _agree(file, folder, model, device, settings)
    model = model.to(device).eval()
    total = -(-len(file) // batch)
    progress = Progress(0, total, total_instances=len(file), iterations=settings.iterations)
    for number in range(total):
        if (path := _part_path(folder, number)).exists():
            part = read_arrays(path)
            progress.add(part["before"], part["after"], float(part["seconds"]))
    watch(progress)
    for number in range(total):
        if _part_path(folder, number).exists():
            continue
        if time.perf_counter() - begun > budget:
            break
        rows = slice(number * batch, (number + 1) * batch)

        def step(iteration: int, _: Solution) -> None:
            progress.iteration, progress.seconds = iteration, time.perf_counter() - begun
            watch(progress)

        started = time.perf_counter()
        rng = random.Random(settings.seed * 1_000_003 + number)
        solution, before, after = improve_part(file, rows, model, device, settings, rng, step)
        small = np.uint8 if file.instances.num_nodes <= 256 else np.int32
        arrays = {"nodes": solution.nodes.numpy().astype(small), "via": np.packbits(solution.via_depot.numpy(), axis=1)}
        seconds = time.perf_counter() - started
        arrays |= {"before": before, "after": after, "seconds": np.array(seconds)}
        write_arrays(_part_path(folder, number), arrays)
        progress.iteration = 0
        progress.add(before, after, seconds)
        progress.done_here += len(after)
        progress.seconds = time.perf_counter() - begun
        watch(progress)
    return progress


def improve_part(
    file: LabelFile,
    rows: slice,
    model: LEHD,
    device: torch.device,
    settings: Settings,
    rng: random.Random,
    on_iteration: Callable[[int, Solution], None] | None = None,
) -> tuple[Solution, NDArray[np.float64], NDArray[np.float64]]:
    """The shorter of old and new label of some instances, checked, and the costs of the old and of these.

    Where there is no label, that of the model's greedy construction stands for the old one.
    """
    given = file.instances.rows(rows)
    problem, old = of(given), file.solution.rows(rows)
    # The model sees the unit square; distances are measured where they were given.
    instances: Instances = replace(given, coords=unit_box(given.coords), sites=given.coords).to(device)
    if not file.labelled[rows].all():
        state = problem.initial_state(instances)
        constructed = problem.complete(state, construct(model, problem, instances, state)).to("cpu")
        old = old.where(torch.as_tensor(file.labelled[rows]), constructed)
    coverage = instances.num_nodes if settings.parallel else 0
    stop = max_iterations(settings.iterations)
    new = random_reconstruct(
        model, problem, instances, old.to(device), stop, rng, coverage=coverage, on_iteration=on_iteration
    ).to("cpu")
    costs = [problem.cost(given, each) for each in (old, new)]
    shorter = strictly_shorter(costs[1], costs[0])
    kept = new.where(shorter, old)
    problem.check(given, kept)
    after = torch.where(shorter, costs[1], costs[0])
    return kept, costs[0].double().numpy(), after.double().numpy()


def collect(file: LabelFile, folder: Path) -> tuple[Solution, NDArray[np.bool_], NDArray[np.bool_]]:
    """All labels so far; which instances (M,) have one; which of them (M,) the model made."""
    nodes, via = file.solution.nodes.clone(), file.solution.via_depot.clone()
    labelled, by_model = file.labelled.copy(), np.zeros(len(file), bool)
    batch = _manifest(folder)["batch"]
    for number in range(-(-len(file) // batch)):
        if (path := _part_path(folder, number)).exists():
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
    progress = improve(file, folder, model, find_device(device), settings, budget, watch)
    if target is None:
        return progress, 0
    return progress, write_merged(file, folder, model, settings, target)


def write_merged(file: LabelFile, folder: Path, model: LEHD, settings: Settings, target: Path) -> int:
    """A label file of what there is so far; the number of its labels."""
    solution, labelled, by_model = collect(file, folder)
    write_arrays(target, file.with_labels(solution, labelled, maker(model, settings), by_model))
    return int(labelled.sum())


def _agree(file: LabelFile, folder: Path, model: LEHD, device: torch.device, settings: Settings) -> int:
    """The size of parts; the folder's parts must be those of the same labels, model and settings."""
    digest = hashlib.sha256()
    for name, array in sorted(file.arrays.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    batch = settings.batch or max(1, NODES_AT_ONCE[device.type] // file.instances.num_nodes)
    facts = {
        "model": fingerprint(model),
        "labels": digest.hexdigest()[:12],
        "iterations": settings.iterations,
        "parallel": settings.parallel,
        "seed": settings.seed,
    }
    if (folder / MANIFEST).exists():
        before = _manifest(folder)
        if any(before.get(name) != value for name, value in facts.items()) or (
            settings.batch is not None and settings.batch != before["batch"]
        ):
            raise LehdError(f"{folder}: holds parts of another run (other labels, weights or settings)")
        return int(before["batch"])
    try:
        write_atomically(folder / MANIFEST, json.dumps(facts | {"batch": batch}).encode())
    except OSError as error:
        raise LehdError(f"{folder}: cannot write ({error.strerror or error})") from error
    return batch


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / MANIFEST).read_text()))
    except (OSError, ValueError) as error:
        raise LehdError(f"{folder / MANIFEST}: cannot be read ({error})") from None


def _part_path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.npz"


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
        )
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    if options.merge is not None:
        print(f"{labels} labels in {options.merge}")
    if not progress.complete:
        print(f"{progress.total_parts - progress.parts} parts left: the same command goes on")


if __name__ == "__main__":
    main()
