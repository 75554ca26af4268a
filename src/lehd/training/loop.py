"""Supervised training from a configuration to weights.

    python -m lehd.training.loop configs/cvrp100.toml --output runs/cvrp --data FOLDER

runs on a bare GPU machine: it needs torch, numpy and safetensors alone. `lehd train` is the same with a progress bar;
torchrun starts several processes of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch

from lehd.data.dataset import load_labels
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.model.checkpoint import load_model
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from lehd.training.checkpoint import has_checkpoint, load_checkpoint
from lehd.training.config import TrainConfig, read_config
from lehd.training.feed import Data
from lehd.training.processes import Processes, join_processes, leave_processes
from lehd.training.trainer import WEIGHTS, PrintLines, Trainer, Watch

__all__ = ["WEIGHTS", "Data", "TrainConfig", "Trainer", "Watch", "read_config", "train"]

CURVES = "curves.png"


def train(
    config: TrainConfig,
    folder: Path,
    data: Path = Path(),
    init: Path | None = None,
    device: str | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> LEHD:
    """Run a configuration; its label files are looked up in the folder `data`.

    `resume` goes on from the last checkpoint in `folder`, where there is one. Without it such a folder is refused.
    """
    if has_checkpoint(folder) and not resume:
        raise LehdError(f"{folder}: holds the checkpoint of a run; resume it (--resume) or name another folder")
    processes = join_processes()
    try:
        where = _device(device, processes)
        checkpoint = load_checkpoint(folder) if has_checkpoint(folder) else None
        torch.manual_seed(config.seed)
        model = LEHD(config.model) if init is None else _load_for(config.problem, init)
        config = replace(config, model=model.config)
        if not config.data:
            raise LehdError("no label files: name them in the configuration's `data`")
        parts = [load_labels(data / name) for name in config.data]
        trainer = Trainer(config, model, Data(parts, config.shares, config.held_out, where), where, processes)
        if checkpoint is not None:
            trainer.resume(checkpoint)
        trained = trainer.run(folder, watch or PrintLines())
        if processes.writes:
            _draw_curves(folder)
        return trained
    finally:
        leave_processes()


def _load_for(problem: str, init: Path) -> LEHD:
    """Weights to start from; their own sizes count, not the configuration's."""
    model = load_model(init)
    if not model.config.has(PROBLEMS[problem].model_sizes):
        raise LehdError(f"{init}: weights for another problem than {problem}")
    return model


def _device(name: str | None, processes: Processes) -> torch.device:
    """The device of this process: each its own GPU where there are several."""
    where = find_device(name)
    if where.type == "cuda" and processes.count > 1:
        where = torch.device("cuda", processes.rank % torch.cuda.device_count())
        torch.cuda.set_device(where)
    return where


def _draw_curves(folder: Path) -> None:
    """A picture of the log, where matplotlib is installed."""
    try:
        from lehd.training.curves import plot_curves
    except ImportError:
        return
    plot_curves(folder, folder / CURVES)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a model on labelled instances.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="folder for log, weights and checkpoints")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the label files")
    parser.add_argument("--init", type=Path, help="weights to start from")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output folder")
    parser.add_argument("--device")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings that replace the file's")
    options = parser.parse_args()
    try:
        config = read_config(options.config, options.set)
        print(json.dumps(asdict(config)), flush=True)
        train(config, options.output, options.data, options.init, options.device, options.resume)
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
