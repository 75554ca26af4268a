"""The state of a training run on disk, from which it goes on as if nothing had happened.

    checkpoint.json                         written last: counters, Python's random state, the names of its files
    checkpoint/weights-STEP.safetensors     the model, a file like any other of weights
    checkpoint/average-STEP.safetensors     the running average of the weights, where one is kept
    checkpoint/optimizer-STEP.safetensors   the optimizer's moments, the device's random state, sums for the log

Every file appears whole or not at all, and those of the last checkpoint stay until checkpoint.json names new ones: a
run may be killed at any moment. Weights and moments are apart because files of moderate size travel better.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from lehd.errors import LehdError
from lehd.model.checkpoint import load_model, save_model, write_atomically
from lehd.model.lehd import LEHD

MANIFEST, FOLDER = "checkpoint.json", "checkpoint"
VERSION = 1
# What a run cannot go on without, beside weights and moments.
FACTS = {
    "step": int,
    "seconds": int | float,
    "decisions": int,
    "tokens": int,
    "batches": int,
    "random": list,
    "device": str,
    "config": dict,
}
TENSORS = ("generator", "sums")


@dataclass(frozen=True)
class Checkpoint:
    weights: LEHD
    average: LEHD | None
    tensors: Mapping[str, Tensor]  # whatever else is a tensor: moments by parameter, random states
    facts: Mapping[str, Any] = field(default_factory=dict)  # what JSON can hold: counters, random states, configuration


def save_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, then remove the one before it."""
    names = {"weights": f"weights-{step}.safetensors", "optimizer": f"optimizer-{step}.safetensors"}
    save_model(checkpoint.weights, folder / FOLDER / names["weights"])
    if checkpoint.average is not None:
        names["average"] = f"average-{step}.safetensors"
        save_model(checkpoint.average, folder / FOLDER / names["average"])
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    write_atomically(folder / FOLDER / names["optimizer"], save(tensors))
    manifest = {"version": VERSION, "step": step, "files": names, **checkpoint.facts}
    write_atomically(folder / MANIFEST, json.dumps(manifest).encode())
    for path in (folder / FOLDER).iterdir():
        if path.name not in names.values():  # also what a killed process left half written
            with suppress(OSError):
                path.unlink()


def has_checkpoint(folder: Path) -> bool:
    return (folder / MANIFEST).exists()


def load_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a run's folder; its step is among the facts."""
    path = folder / MANIFEST
    try:
        facts = json.loads(path.read_text())
        if facts["version"] != VERSION:
            raise LehdError(f"{path}: written by another version of lehd (layout {facts['version']}, not {VERSION})")
        files = {kind: folder / FOLDER / name for kind, name in facts["files"].items()}
        tensors = load(files["optimizer"].read_bytes())
        missing = [name for name, kind in FACTS.items() if not isinstance(facts.get(name), kind)]
        missing += [name for name in TENSORS if name not in tensors]
        if missing:
            raise LehdError(f"{path}: not a whole checkpoint, it lacks {', '.join(missing)}")
        average = load_model(files["average"]) if "average" in files else None
        return Checkpoint(load_model(files["weights"]), average, tensors, facts)
    except LehdError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise LehdError(f"{path}: not a readable checkpoint ({type(error).__name__}: {error})") from None


def optimizer_tensors(model: LEHD, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The optimizers' moments by name of the parameter."""
    return {
        f"{name}/{kind}": value
        for name, parameter in model.named_parameters()
        for optimizer in optimizers
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizers(model: LEHD, optimizers: Sequence[torch.optim.Optimizer], tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    owner = {id(p): each for each in optimizers for group in each.param_groups for p in group["params"]}
    for key, value in tensors.items():
        name, slash, kind = key.rpartition("/")
        if slash and name in parameters:
            parameter = parameters[name]
            owner[id(parameter)].state[parameter][kind] = value.to(parameter.device, copy=True)
