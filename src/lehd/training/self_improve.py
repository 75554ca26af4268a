"""Self-improved training: a model that makes its own labels.

    reinforce   from nothing, without labels; left out where there are weights to start from
    label       RRC by the model so far on fresh instances, from the second round on on the labels of the round before,
                of which the shorter ones stay
    train       supervised, on these labels, from the weights so far; then the next round

Each step is resumable in itself, and a step that is done is not done again:

    FOLDER/start.safetensors           the weights it began with, or
    FOLDER/reinforce/                  a run of the trainer
    FOLDER/round-1/parts, labels.npz   labels
    FOLDER/round-1/train/              a run of the trainer
    FOLDER/steps.jsonl                 a line for every finished step: seconds, label quality, gap
    FOLDER/weights.safetensors         those of the last step
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lehd.data.dataset import RECIPES, SHARD, problem_of
from lehd.data.label_file import LabelFile, fresh_instances, read_label_file
from lehd.errors import LehdError, writing
from lehd.labels.improve import PrintParts, device_of, improve
from lehd.labels.improve import Progress as Parts
from lehd.labels.makers import by_model
from lehd.labels.part_folder import merge_parts
from lehd.labels.parts import ITERATIONS, Settings
from lehd.model.checkpoint import fingerprint, load_for, load_model, save_model, write_atomically
from lehd.problems import PROBLEMS
from lehd.training.config import REINFORCE, TrainConfig, check_kinds, make_config, refuse_unknown
from lehd.training.log import read_lines, read_log
from lehd.training.loop import WEIGHTS, run_training
from lehd.training.processes import refuse_several
from lehd.training.table import lay_out
from lehd.training.trainer import PrintLines, Watch
from lehd.words import count
from lehd.work.engines import LOCAL, find_crew

STEPS, LABELS, START = "steps.jsonl", "labels.npz", "start.safetensors"
FOUND = ("validation_loss", "validation_accuracy", "greedy_cost", "greedy_gap")
STEP_REINFORCE, STEP_LABEL, STEP_TRAIN = "reinforce", "label", "train"


@dataclass(frozen=True)
class LabelStep:
    recipe: str = "uniform_tsp"
    customers: int = 100
    instances: int = 200_000  # whole shards of 100
    iterations: int = ITERATIONS  # of RRC
    parallel: bool = False  # many disjoint partial solutions in an iteration
    batch: int | None = None  # instances at once
    reference: str | None = None  # a compact label file of the same recipe, to tell how good the labels are
    processes: int | None = None  # that make labels; by default this one
    cluster: str = LOCAL  # or a Ray cluster: auto, or its address
    gpus: float = 0.0  # for each batch, with processes or a cluster

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.recipe not in RECIPES:
            raise LehdError(f"recipe = {self.recipe!r}: expected one of {', '.join(RECIPES)}")
        find_crew(self.cluster, self.processes, self.gpus)  # complains
        if self.instances < SHARD or self.instances % SHARD:
            raise LehdError(f"instances = {self.instances}: expected a multiple of {SHARD}")


@dataclass(frozen=True)
class SelfImproveConfig:
    rounds: int
    label: LabelStep
    train: TrainConfig
    reinforce: TrainConfig | None = None


def make_self_improve(table: dict[str, Any], path: str | Path) -> SelfImproveConfig:
    """From the settings of a TOML file: `rounds`, the tables [reinforce], [label], [train] and [model]."""
    unknown = table.keys() - {"rounds", "label", "train", "reinforce", "model"}
    if unknown:
        raise LehdError(f"{path}: unknown setting {', '.join(sorted(unknown))}")
    rounds = table.get("rounds")
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
        raise LehdError(f"{path}: rounds = {rounds!r}: expected a whole number from 1")
    for name in ("label", "train", *(name for name in ("reinforce", "model") if name in table)):
        if not isinstance(table.get(name), dict):
            raise LehdError(f"{path}: expected a table [{name}]")
    refuse_unknown(table["label"], LabelStep, path)
    try:
        label = LabelStep(**table["label"])
    except LehdError as error:
        raise LehdError(f"{path}: [label] {error}") from None
    common = {"problem": problem_of(label.recipe), "model": table.get("model", {})}
    train = make_config(common | table["train"] | {"data": [LABELS]}, f"{path} [train]")
    first = None
    if "reinforce" in table:
        first = make_config(common | table["reinforce"] | {"method": REINFORCE}, f"{path} [reinforce]")
    if train.method == REINFORCE or any(part and part.problem != common["problem"] for part in (train, first)):
        raise LehdError(f"{path}: the steps do not go together; expected [train] on labels, all of one problem")
    return SelfImproveConfig(rounds, label, train, first)


@dataclass
class SelfImprovement:
    """One run; `tell` is called with the line of every finished step."""

    config: SelfImproveConfig
    folder: Path
    data: Path = Path()
    init: Path | None = None
    device: str | None = None
    watch: Watch | None = None
    on_parts: Callable[[Parts], None] | None = None
    tell: Callable[[dict[str, Any]], None] | None = None
    pause: float = float("inf")

    def run(self, resume: bool = False) -> bool:
        """Go on until all rounds are done, or for `pause` seconds; whether all are."""
        refuse_several("self-improved training")
        self.begun = time.perf_counter()
        if self.folder.exists() and not self.folder.is_dir():
            raise LehdError(f"{self.folder}: expected a folder")
        self.done = read_lines(self.folder / STEPS)
        if self.folder.exists() and any(self.folder.iterdir()) and not resume:
            raise LehdError(f"{self.folder}: is not empty; resume the run in it (--resume) or name another folder")
        reference = self.config.label.reference
        if reference is not None and not (self.data / reference).is_file():
            raise LehdError(f"{self.data / reference}: no such label file to compare with")
        with writing(self.folder, lambda: "; --resume goes on from what is there"):
            return self._run()

    def _run(self) -> bool:
        weights = self._first_weights()
        previous: Path | None = None
        for number in range(1, self.config.rounds + 1):
            if weights is None:
                return False
            place = self.folder / f"round-{number}"
            if not self._label(number, place, weights, previous):
                return False
            previous = place / LABELS
            weights = self._train(number, STEP_TRAIN, place / "train", self.config.train, place, weights)
        return weights is not None

    def _first_weights(self) -> Path | None:
        """Those that were given, of which the folder keeps a copy to go on from; or those of reinforcement."""
        kept, reinforced = self.folder / START, (self.folder / STEP_REINFORCE).exists()
        if self.init is not None:
            name = problem_of(self.config.label.recipe)
            model = load_for(name, PROBLEMS[name].model_sizes, self.init)
            if reinforced or (kept.exists() and fingerprint(load_model(kept)) != fingerprint(model)):
                raise LehdError(f"{self.folder}: this run began with other weights than {self.init}")
            if not kept.exists():
                save_model(model, kept)
        if kept.exists():
            return kept
        if self.config.reinforce is None:
            raise LehdError("nothing to start from: give --init WEIGHTS, or a table [reinforce] in the configuration")
        return self._train(0, STEP_REINFORCE, self.folder / STEP_REINFORCE, self.config.reinforce, self.data, None)

    def _train(
        self, number: int, step: str, folder: Path, config: TrainConfig, data: Path, init: Path | None
    ) -> Path | None:
        """The weights after a training step; None if the time was up before its end."""
        if not self._is_done(number, step):
            config = replace(config, seed=config.seed + number)
            trainer = run_training(config, folder, data, init, self.device, True, self.watch, pause=self._left())
            if trainer.progress < 1:
                return None
            last = read_log(folder)[-1]  # what the validation at the end has found
            found = {name: last[name] for name in last if name.removeprefix("average_") in FOUND}
            write_atomically(self.folder / WEIGHTS, (folder / WEIGHTS).read_bytes())
            self._finish(number, step, trainer.seconds, {"steps": trainer.step, **found})
        return folder / WEIGHTS

    def _label(self, number: int, place: Path, weights: Path, previous: Path | None) -> bool:
        if self._is_done(number, STEP_LABEL):
            return True
        wish, model = self.config.label, load_model(weights)
        if previous is None:
            file = fresh_instances(wish.recipe, wish.customers, range(wish.instances // SHARD))
        else:
            file = read_label_file(previous)
        settings = Settings(wish.iterations, wish.parallel, wish.batch, seed=number)
        watch = self.on_parts or PrintParts()
        engine, needs = find_crew(wish.cluster, wish.processes, wish.gpus)
        device = device_of(engine, needs, self.device)
        maker = by_model(file, model, device, settings)
        parts = improve(maker, file, place / "parts", self._left(), watch, engine, needs)
        if parts.failures:
            raise LehdError(f"{count(len(parts.failures), 'part')} could not be labelled; {parts.failures[-1]}")
        if not parts.complete:
            return False
        merge_parts(place / "parts", file, maker.name, place / LABELS)
        quality = {
            "labels": len(file),
            "cost_before": parts.before / len(file),
            "cost": parts.after / len(file),
            "shorter": parts.improved / len(file),
        }
        if wish.reference is not None:
            quality["gap"] = gap_to_reference(read_label_file(place / LABELS), self.data / wish.reference)
        self._finish(number, STEP_LABEL, parts.spent, quality)
        return True

    def _left(self) -> float:
        return max(0.0, self.pause - (time.perf_counter() - self.begun))

    def _is_done(self, number: int, step: str) -> bool:
        return any((line["round"], line["step_name"]) == (number, step) for line in self.done)

    def _finish(self, number: int, step: str, seconds: float, facts: dict[str, Any]) -> None:
        line = {"round": number, "step_name": step, "seconds": round(seconds, 1), **facts}
        self.done.append(line)
        write_atomically(self.folder / STEPS, "".join(json.dumps(each) + "\n" for each in self.done).encode())
        if self.tell is not None:
            self.tell(line)


def gap_to_reference(file: LabelFile, path: Path) -> float:
    """How much longer labels are than those of another file of the same recipe, in per cent, where both have one."""
    other = read_label_file(path)
    for name in ("recipe", "customers"):
        if str(other.arrays.get(name)) != str(file.arrays.get(name)):
            raise LehdError(f"{path}: expected labels of {file.arrays['recipe']} with {file.arrays['customers']} nodes")
    places = {int(shard): place for place, shard in enumerate(other.arrays["shard"])}
    mine, theirs = (each.costs().reshape(-1, SHARD) for each in (file, other))
    pairs = [
        (mine[row], theirs[places[int(shard)]])
        for row, shard in enumerate(file.arrays["shard"])
        if int(shard) in places
    ]
    if not pairs:
        raise LehdError(f"{path}: none of its shards is among the labels")
    own, reference = (np.concatenate(part) for part in zip(*pairs, strict=True))
    both = np.isfinite(own) & np.isfinite(reference)
    return float(own[both].mean() / reference[both].mean() - 1) * 100


COLUMNS = {
    "round": ("round", "{}"),
    "step_name": ("step", "{}"),
    "seconds": ("seconds", "{:.0f}"),
    "cost": ("label cost", "{:.4f}"),
    "shorter": ("shorter", "{:.1%}"),
    "gap": ("label gap %", "{:.3f}"),
    "greedy_cost": ("greedy cost", "{:.4f}"),
    "greedy_gap": ("greedy gap %", "{:.3f}"),
}


def table_of(lines: list[dict[str, Any]]) -> str:
    """The finished steps as a table."""
    used = {name: column for name, column in COLUMNS.items() if any(name in line for line in lines)}
    rows = [[title for title, _ in used.values()]]
    rows += [[form.format(line[name]) if name in line else "" for name, (_, form) in used.items()] for line in lines]
    return lay_out(rows)


def run_from_table(table: dict[str, Any], options: argparse.Namespace) -> None:
    """What `python -m lehd.training.loop` does with such a configuration."""
    config = make_self_improve(table, options.config)
    run = SelfImprovement(
        config,
        options.output,
        options.data[0],
        options.init,
        options.device,
        PrintLines(),
        tell=lambda line: print(json.dumps(line), flush=True),
        pause=options.pause,
    )
    complete = run.run(options.resume)
    if run.done:
        print(table_of(run.done))
    print("all rounds done" if complete else "paused: the same command with --resume goes on")
