"""Some instances of a label file, worked on together by a model: construct where there is no label, then RRC."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lehd.data.dataset import Arrays
from lehd.data.label_file import LabelFile
from lehd.decoding.construct import construct
from lehd.decoding.rrc import random_reconstruct, strictly_shorter
from lehd.decoding.stop import max_iterations
from lehd.model.lehd import LEHD
from lehd.problems import of
from lehd.problems.base import unit_box
from lehd.types import Instances, Solution
from lehd.work.units import Unit

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

    def improved(
        self,
        model: LEHD,
        device: torch.device,
        settings: Settings,
        on_iteration: Callable[[int, Solution], None] | None = None,
    ) -> tuple[Solution, NDArray[np.float64], NDArray[np.float64]]:
        """The shorter of old and new label of each instance, checked, and the costs of the old and of these.

        Where there is no label, that of the model's greedy construction stands for the old one.
        """
        given, old = self.instances, self.solution
        problem, labelled = of(given), torch.as_tensor(self.labelled)
        # The model sees the unit square; distances are measured where they were given.
        instances: Instances = replace(given, coords=unit_box(given.coords), sites=given.coords).to(device)
        if not labelled.all():
            state = problem.initial_state(instances)
            constructed = problem.complete(state, construct(model, problem, instances, state)).to("cpu")
            old = old.where(labelled, constructed)
        coverage = instances.num_nodes if settings.parallel else 0
        stop, rng = max_iterations(settings.iterations), random.Random(settings.seed * 1_000_003 + self.number)
        new = random_reconstruct(
            model, problem, instances, old.to(device), stop, rng, coverage=coverage, on_iteration=on_iteration
        ).to("cpu")
        costs = [problem.cost(given, each) for each in (old, new)]
        shorter = strictly_shorter(costs[1], costs[0])
        kept = new.where(shorter, old)
        problem.check(given, kept)
        after = torch.where(shorter, costs[1], costs[0])
        return kept, costs[0].double().numpy(), after.double().numpy()


def part_id(number: int) -> str:
    return f"part-{number:06d}"


def part_unit(file: LabelFile, number: int, batch: int) -> Unit:
    rows = slice(number * batch, (number + 1) * batch)
    part = Part(number, file.instances.rows(rows), file.solution.rows(rows), file.labelled[rows])
    return Unit(part_id(number), part)


@dataclass(frozen=True)
class ImprovePart:
    """The job: what a part's file holds."""

    model: LEHD
    device: str
    settings: Settings
    on_iteration: Callable[[int, Solution], None] | None = None  # in this process alone

    def __call__(self, part: Part) -> Arrays:
        begun = time.perf_counter()
        model = self.model.to(self.device).eval()
        solution, before, after = part.improved(model, torch.device(self.device), self.settings, self.on_iteration)
        small = np.uint8 if part.instances.num_nodes <= 256 else np.int32
        return {
            "nodes": solution.nodes.numpy().astype(small),
            "via": np.packbits(solution.via_depot.numpy(), axis=1),
            "before": before,
            "after": after,
            "seconds": np.array(time.perf_counter() - begun),
        }
