"""Training from a configuration to weights, on labels or by reinforcement.

    python -m lehd.training.loop configs/cvrp100.toml --output runs/cvrp --data FOLDER

runs on a bare GPU machine: it needs torch, numpy and safetensors alone. `lehd train` is the same with a progress bar;
torchrun starts several processes of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from lehd.data.dataset import Labelled
from lehd.data.own_files import read_labels
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.model.checkpoint import SHIPPED, load_for
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS, of
from lehd.training.checkpoint import Checkpoint, has_checkpoint, load_checkpoint
from lehd.training.config import AUTO, SUPERVISED, TrainConfig, make_config, read_config, read_table
from lehd.training.feed import Data, digest
from lehd.training.log import read_log
from lehd.training.prepare import Labelling, Made, own_labels
from lehd.training.processes import Processes, join_processes, leave_processes
from lehd.training.trainer import WEIGHTS, PrintLines, Trainer, Watch

__all__ = ["WEIGHTS", "Data", "TrainConfig", "Trainer", "Watch", "read_config", "run_training", "train"]

CURVES = "curves.png"
LARGE_FILE = 200_000  # bytes: a label file may take a second or more to read


def train(
    config: TrainConfig,
    folder: Path,
    data: Path | Sequence[Path] = Path(),
    init: Path | None = None,
    device: str | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    on_label: Callable[[Made], None] | None = None,
    pause: float = float("inf"),
) -> LEHD:
    """Run a configuration and return the model; see `run_training`."""
    return run_training(config, folder, data, init, device, resume, watch, on_label, pause).model.eval()


def run_training(
    config: TrainConfig,
    folder: Path,
    data: Path | Sequence[Path] = Path(),
    init: Path | None = None,
    device: str | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    on_label: Callable[[Made], None] | None = None,
    pause: float = float("inf"),
) -> Trainer:
    """Run a configuration; the label files it names are looked up in the folder `data`.

    A configuration that names none trains on `data` itself, and so does any where `data` are files: label files,
    problems with or without solutions, folders of these. Problems without a solution are labelled first, and `on_label`
    told of each. Reinforcement validates on such files, and needs none. The weights `init` may be "shipped", those of
    the package.

    `resume` goes on from the last checkpoint in `folder`, where there is one. Without it such a folder is refused,
    unless the processes were restarted by the torchrun that also started those of the checkpoint. `pause` is the number
    of seconds after which to stop with a checkpoint, for `resume` to go on from.

    Of several processes the first alone needs `folder`, `init` and files of the user's own; label files that the
    configuration names are read by all.
    """
    processes = join_processes()
    try:
        checkpoint = processes.from_first(lambda: _find_checkpoint(folder, resume, processes))
        where = _device(device, processes)
        labels = None
        paths = [data] if isinstance(data, Path) else list(data)
        if config.method == SUPERVISED or config.data or processes.from_first(lambda: _are_data(paths)):
            parts, own = _labels(config, folder, paths, init, where, on_label, processes)
            config = _settle(config, parts)
            labels = Data(parts, config.shares, config.held_out, where, own)
        torch.manual_seed(config.seed)
        sizes = PROBLEMS[config.problem].model_sizes
        given = None if init is None else processes.from_first(lambda: load_for(config.problem, sizes, init))
        model = LEHD(config.model) if given is None else given
        config = replace(config, model=model.config)  # the sizes of given weights count, not the configuration's
        trainer = Trainer(config, model, labels, where, processes)
        if checkpoint is not None:
            trainer.resume(checkpoint)
        trainer.run(folder, watch or PrintLines(), pause)
        if processes.writes and trainer.progress >= 1:
            _draw_curves(folder)
        return trainer
    finally:
        leave_processes()


def _find_checkpoint(folder: Path, resume: bool, processes: Processes) -> Checkpoint | None:
    """Where to go on from. Without `resume` only from what the same torchrun's processes left when they were lost."""
    if not has_checkpoint(folder):
        return None
    checkpoint = load_checkpoint(folder)
    if not resume and processes.launchers.isdisjoint(checkpoint.facts.get("launchers", ())):
        raise LehdError(f"{folder}: holds the checkpoint of a run; resume it (--resume) or name another folder")
    return checkpoint


def _are_data(paths: list[Path]) -> bool:
    """Whether these are data themselves, not just the folder of files that a configuration may name."""
    return len(paths) > 1 or not all(path.is_dir() for path in paths)


def _labels(
    config: TrainConfig,
    folder: Path,
    paths: list[Path],
    init: Path | None,
    device: torch.device,
    on_label: Callable[[Made], None] | None,
    processes: Processes,
) -> tuple[list[Labelled], bool]:
    """What to train on, and whether these are files of the user's own rather than those of the configuration."""
    if config.data and len(paths) == 1 and not paths[0].is_file():
        parts = _read([paths[0] / name for name in config.data], on_label if processes.writes else None)
        if processes.count > 1 and not processes.all_have(digest(parts)):
            raise LehdError(f"{paths[0]}: the processes of this run find different labels there")
        return parts, False
    if paths in ([], [Path()]):
        raise LehdError("no label files: name them in the configuration's `data`, or give --data")
    weights = None if init == SHIPPED else init
    how = Labelling(config.labels_by, config.label_seconds, config.label_iterations, weights, str(device))
    return processes.from_first(lambda: own_labels(paths, folder, how, on_label)), True


def _read(paths: list[Path], watch: Callable[[Made], None] | None) -> list[Labelled]:
    """Label files, of which the large ones are announced: their instances are drawn again."""
    large = [path.is_file() and path.stat().st_size > LARGE_FILE for path in paths]
    parts = []
    for number, path in enumerate(paths):
        if watch is not None and large[number]:
            watch(Made(number, len(paths), f"reading {path.name}"))
        parts.append(read_labels(path))
    if watch is not None and any(large):
        watch(Made(len(paths), len(paths), "all are read"))
    return parts


def _settle(config: TrainConfig, parts: Sequence[Labelled]) -> TrainConfig:
    """The configuration with the problem of the data."""
    problems = {of(part.instances) for part in parts}
    names = " and ".join(problem.name for problem in problems)
    if len(problems) > 1 or config.problem not in (AUTO, names):
        raise LehdError(f"the labels are of a {names}, the configuration is for {config.problem}")
    sizes = PROBLEMS[names].model_sizes
    return replace(config, problem=names, model=replace(config.model, **sizes))  # type: ignore[arg-type]


def _device(name: str | None, processes: Processes) -> torch.device:
    """The device of this process: of several each has its own GPU, whatever the number behind `cuda`."""
    if processes.count > 1 and torch.cuda.is_available() and (name is None or name.startswith("cuda")):
        if processes.local >= (gpus := torch.cuda.device_count()):
            raise LehdError(f"this machine has {gpus} GPUs: start as many processes (--nproc-per-node {gpus})")
        name = f"cuda:{processes.local}"
        torch.cuda.set_device(name)  # before anything is allocated: every process would take room on the first GPU
    return find_device(name)


def _draw_curves(folder: Path) -> None:
    """A picture of the log, where there is one and matplotlib is installed: a run does not fail for its picture."""
    if not read_log(folder):
        return
    try:
        from lehd.training.curves import plot_curves

        plot_curves(folder, folder / CURVES)
    except ImportError:
        return
    except LehdError as error:
        print(f"no picture: {error}", file=sys.stderr, flush=True)


def only_folder(paths: Sequence[Path]) -> Path:
    """What self-improved training takes as data."""
    if len(paths) != 1 or not paths[0].is_dir():
        raise LehdError("self-improved training makes its own labels: give one --data, the folder of the `reference`")
    return paths[0]


def _print_label(made: Made) -> None:
    print(f"labels {made.done}/{made.total}: {made.last}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a model on labelled instances.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="folder for log, weights and checkpoints")
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[Path()], help="folder of the label files, or files of your own"
    )
    parser.add_argument("--init", type=Path, help="weights to start from; shipped: the package's own")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output folder")
    parser.add_argument("--pause", type=float, default=float("inf"), help="stop after so many seconds, to be resumed")
    parser.add_argument("--device")
    parser.add_argument(
        "--set", nargs="*", action="extend", default=[], metavar="NAME=VALUE", help="settings that replace the file's"
    )
    options = parser.parse_args()
    try:
        table = read_table(options.config, options.set)
        if "rounds" in table:
            from lehd.training.self_improve import run_from_table  # which builds on this module

            options.data = [only_folder(options.data)]
            run_from_table(table, options)
            return
        config = make_config(table, options.config)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(asdict(config)), flush=True)
        train(
            config,
            options.output,
            options.data,
            options.init,
            options.device,
            options.resume,
            on_label=_print_label,
            pause=options.pause,
        )
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
