"""Who makes labels part by part: a model by Random Re-Construct, or a solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lehd.data.label_file import LabelFile, source_name
from lehd.errors import LehdError
from lehd.labels.parts import ImprovePart, Settings, SolvePart
from lehd.labels.solvers import Solver, limit_of, patience
from lehd.model.checkpoint import fingerprint
from lehd.model.lehd import LEHD
from lehd.problems import of
from lehd.work.units import Job

NODES_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 20}  # of all instances of a model's part together
PART_SECONDS = 10.0  # of a solver's work in a part: little to lose when it is stopped
LEAST_PARTS = 64  # by a solver: workers share a small file too


@dataclass(frozen=True)
class Maker:
    name: str  # in label files
    job: Job  # makes the arrays of a part
    facts: dict[str, Any]  # that all parts in a folder are made with
    usual_batch: int  # instances in a part, where neither the facts nor the folder say
    iterations: int = 0  # on a part, as far as it tells of them
    patience: Callable[[int], float] = lambda instances: float("inf")  # seconds for so many instances
    one_by_one: bool = False  # instances do not depend on each other: a part that crashed can be taken apart


def by_model(file: LabelFile, model: LEHD, device: torch.device, settings: Settings) -> Maker:
    if not model.config.has(of(file.instances).model_sizes):
        raise LehdError(f"the weights are for another problem than the labels, a {of(file.instances).name}")
    if settings.iterations < 0:
        raise LehdError(f"{settings.iterations} iterations: expected 0 or more")
    facts = {
        "model": fingerprint(model),
        "iterations": settings.iterations,
        "parallel": settings.parallel,
        "turn": True,
        "seed": settings.seed,
    }
    return Maker(
        model_name(model, settings),
        ImprovePart(model, str(device), settings),
        _with_batch(facts, settings.batch),
        max(1, NODES_AT_ONCE[device.type] // file.instances.num_nodes),
        settings.iterations,
    )


def by_solver(file: LabelFile, solver: Solver, batch: int | None = None) -> Maker:
    shared = -(-len(file) // LEAST_PARTS)
    return Maker(
        source_name(solver.name, **limit_of(solver)),
        SolvePart(solver),
        _with_batch({"solver": solver.name, **limit_of(solver)}, batch),
        max(1, min(shared, round(PART_SECONDS / solver.seconds))),
        patience=lambda instances: patience(solver, instances),
        one_by_one=True,
    )


def model_name(model: LEHD, settings: Settings) -> str:
    """What label files call it."""
    return f"model {fingerprint(model)} RRC {settings.iterations}"


def _with_batch(facts: dict[str, Any], batch: int | None) -> dict[str, Any]:
    if batch is not None and batch < 1:
        raise LehdError(f"{batch} instances in a part: expected at least 1")
    return facts if batch is None else facts | {"batch": batch}
