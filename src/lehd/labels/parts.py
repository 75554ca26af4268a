"""Some instances of a label file, worked on together: by a model (construct where there is no label, then RRC) or by a
solver, one after the other. Whoever it is, the shorter of old and new label is kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lehd.data.dataset import Arrays
from lehd.data.label_file import LabelFile
from lehd.decoding.construct import construct
from lehd.decoding.rrc import random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.distance import strictly_shorter
from lehd.labels.solvers import Batch, SolveEach, Solver, Task
from lehd.model.lehd import LEHD
from lehd.problems import of
from lehd.problems.base import in_unit_box
from lehd.types import Instances, Solution
from lehd.work.units import Failure, Unit

ITERATIONS = 100


@dataclass(frozen=True)
class Settings:
    iterations: int = ITERATIONS
    parallel: bool = False  # as many disjoint partial solutions at once as fit; the paper: one
    batch: int | None = None  # instances in a part; chosen if None
    seed: int = 0


class Part(NamedTuple):
    """The content of a unit."""

    number: int
    instances: Instances
    solution: Solution  # where there is no label, anything
    labelled: NDArray[np.bool_]
    place: int | None = None  # of its only instance in a part that was taken apart

    def arrays(self, old: Solution, new: Solution, has_old: Tensor, has_new: Tensor, begun: float) -> Arrays:
        """What the part's file holds: the shorter of old and new label, checked, and the costs of the old and of these.

        Where there is no label, the cost is infinite.
        """
        problem, given = of(self.instances), self.instances
        before, found = (
            problem.cost(given, each).double().masked_fill(~has, torch.inf)
            for each, has in ((old, has_old), (new, has_new))
        )
        shorter = has_new & (~has_old | strictly_shorter(found, before))
        kept, labelled = new.where(shorter, old), has_old | has_new
        problem.check(given.rows(labelled), kept.rows(labelled))
        return {
            "nodes": kept.nodes.numpy().astype(np.uint8 if given.num_nodes <= 256 else np.int32),
            "via": np.packbits(kept.via_depot.numpy(), axis=1),
            "before": before.numpy(),
            "after": torch.where(shorter, found, before).numpy(),
            "seconds": np.array(time.perf_counter() - begun),
        }

    def solved(self, answers: list[list[list[int]] | Failure], begun: float) -> Arrays:
        """What the part's file holds when a solver gave these answers; `reasons` says why it gave none."""
        problem = of(self.instances)
        nodes, via = self.solution.nodes.clone(), self.solution.via_depot.clone()
        for row, answer in enumerate(answers):
            if not isinstance(answer, Failure):
                instance = self.instances.rows(slice(row, row + 1))
                found = problem.solution(instance, answer[0] if instance.demands is None else answer)
                nodes[row], via[row] = found.nodes[0], found.via_depot[0]
        has_old = torch.as_tensor(self.labelled)
        has_new = torch.tensor([not isinstance(answer, Failure) for answer in answers])
        arrays = self.arrays(self.solution, Solution(nodes, via), has_old, has_new, begun)
        reasons = [answer.reason if isinstance(answer, Failure) else "" for answer in answers]
        return arrays | {"reasons": np.array(reasons)}

    def tasks(self) -> list[Task]:
        """What a solver sees of it."""
        given = self.instances
        coords = given.coords.float().numpy()
        if given.demands is None or given.capacity is None:
            return [Task(each) for each in coords]
        return [Task(*each) for each in zip(coords, given.demands.numpy(), given.capacity.tolist(), strict=True)]


def part_id(number: int) -> str:
    return f"part-{number:06d}"


def part_unit(file: LabelFile, number: int, batch: int) -> Unit:
    first, end = number * batch, min((number + 1) * batch, len(file))
    rows = torch.arange(first, end)  # makes copies; a slice would take the whole file along to a worker
    part = Part(number, file.instances.rows(rows), file.solution.rows(rows), file.labelled[first:end])
    return Unit(part_id(number), part)


@dataclass(frozen=True)
class ImprovePart:
    """The job of a model. Where there is no label, that of its greedy construction stands for the old one."""

    model: LEHD
    device: str
    settings: Settings
    on_iteration: Callable[[int, Solution], None] | None = None  # in this process alone

    def __call__(self, part: Part) -> Arrays:
        begun = time.perf_counter()
        model, device, settings = self.model.to(self.device).eval(), torch.device(self.device), self.settings
        given, old = part.instances, part.solution
        problem, labelled = of(given), torch.as_tensor(part.labelled)
        instances: Instances = in_unit_box(given).to(device)
        if not labelled.all():
            state = problem.initial_state(instances)
            constructed = problem.complete(state, construct(model, problem, instances, state)).to("cpu")
            old = old.where(labelled, constructed)
        coverage = instances.num_nodes if settings.parallel else 0
        stop, rng = max_iterations(settings.iterations), random.Random(settings.seed * 1_000_003 + part.number)
        new = random_reconstruct(
            model,
            problem,
            instances,
            old.to(device),
            stop,
            rng,
            coverage=coverage,
            on_iteration=self.on_iteration,
            turn=True,
        ).to("cpu")
        everywhere = torch.ones_like(labelled)
        return part.arrays(old, new, everywhere, everywhere, begun)


@dataclass(frozen=True)
class SolvePart:
    """The job of a solver. An instance on which it fails keeps the label it has, or has none."""

    solver: Solver

    def __call__(self, part: Part) -> Arrays | Failure:
        begun, tasks = time.perf_counter(), part.tasks()
        answers = SolveEach(self.solver)(Batch(part.number, range(len(tasks)), tasks))
        return answers if isinstance(answers, Failure) else part.solved(answers, begun)


class TakenApart:
    """Parts that lost their worker to one instance: solved again one instance at a time, and joined."""

    def __init__(self) -> None:
        self.pieces: dict[int, list[Arrays | None]] = {}  # by the number of their part

    def split(self, unit: Unit) -> list[Unit]:
        """A unit for each instance of the part; none if it is alone."""
        part: Part = unit.content
        if len(part.instances) == 1:
            return []
        self.pieces[part.number] = [None] * len(part.instances)
        units = []
        for place in range(len(part.instances)):
            row = torch.tensor([place])
            alone = Part(part.number, part.instances.rows(row), part.solution.rows(row), part.labelled[[place]], place)
            units.append(Unit(f"{unit.id}/{place}", alone))
        return units

    def join(self, unit: Unit, result: Arrays | Failure) -> Arrays | Failure | None:
        """The result of a whole part; None as long as pieces of it are missing."""
        part: Part = unit.content
        if part.place is not None:
            pieces = self.pieces[part.number]
            if isinstance(result, Failure):
                result = part.solved([result], time.perf_counter())
            pieces[part.place] = result
            there = [piece for piece in pieces if piece is not None]
            if len(there) < len(pieces):
                return None
            del self.pieces[part.number]
            result = {name: np.concatenate([np.atleast_1d(piece[name]) for piece in there]) for name in there[0]}
            result["seconds"] = result["seconds"].sum()
        # Nothing was found out about such a part: it is left to a later run.
        if not isinstance(result, Failure) and "reasons" in result and (result["reasons"] != "").all():
            return Failure(f"no instance could be solved; {result['reasons'][-1]}")
        return result
