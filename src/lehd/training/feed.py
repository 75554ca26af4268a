"""Where a step's decisions come from: labels on the device, and two ways of going through them.

`RandomStates` takes one decision from each of many partial solutions. `ConstructionSteps`, the paper's way, takes a
batch of partial solutions and goes through their decisions one after the other, a step of the optimizer for each.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch

from lehd.data.dataset import Labelled
from lehd.data.own_files import by_size
from lehd.decoding.rrc import SHORTEST
from lehd.errors import LehdError
from lehd.problems.base import Problem
from lehd.training.config import STEPS, TrainConfig, for_each
from lehd.training.mixture import Mixture
from lehd.training.partial import Batch, sample_shape, sample_view
from lehd.types import PartialSolution

FIFTH = 5  # one label in so many of a user's own files is held out
# With most nodes of a whole problem available, start and destination lie side by side: more decisions are open.
EARLY, EARLY_SHARE = 0.9, 4  # share of the nodes, and how many times as many decisions are learnt from


class Data:
    """Labels on the device, apart from those held out for validation.

    The first `held_out` labels of every file are: one number for all files, or one for each. Of a user's `own` files,
    which may hold one label each, it is every fifth, at most the largest of these; where there are fewer than five,
    validation looks at what training sees. Their labels are all drawn equally often: the shares of a configuration are
    those of the files it names.
    """

    def __init__(
        self,
        parts: list[Labelled],
        shares: tuple[float, ...],
        held_out: int | tuple[int, ...],
        device: torch.device,
        own: bool = False,
    ):
        self.own, self.given_shares = own, shares
        if own:
            parts, validation = _hold_out_some(parts, max(for_each(held_out)))
            shares = ()
        else:
            counts = for_each(held_out, len(parts))
            for number, (part, count) in enumerate(zip(parts, counts, strict=True), 1):
                if len(part) <= count:
                    which = f"label file {number} of {len(parts)} has {len(part)} labels"
                    raise LehdError(f"{which}: expected more than the {count} that are held out")
            validation = [part.rows(slice(count)) for part, count in zip(parts, counts, strict=True)]
            parts = [part.rows(slice(count, None)) for part, count in zip(parts, counts, strict=True)]
        self.validation = [part.to(device) for part in by_size(validation)]
        self.parts = [part.to(device) for part in parts]
        self.shares = shares or tuple(float(len(part)) for part in self.parts)

    def mixtures(self, view_shares: tuple[float, ...]) -> list[Mixture]:
        """The labels of each size. A user's own files show neighbourhoods as often as those of the configuration do."""
        if self.own:
            weights = self.given_shares or (1.0,) * len(view_shares)
            view_shares = (float(np.average(view_shares, weights=weights)),) * len(self.parts)
        sizes: dict[int, list[tuple[Labelled, float, float]]] = defaultdict(list)
        for part, share, views in zip(self.parts, self.shares, view_shares, strict=True):
            sizes[part.instances.num_nodes].append((part, share, views))
        return [Mixture(*map(list, zip(*files, strict=True))) for files in sizes.values()]


def digest(parts: list[Labelled]) -> str:
    """What stands for labels, whoever has read them."""
    seen = hashlib.sha256()
    for part in parts:
        for tensor in (part.instances.coords, part.instances.demands, part.solution.nodes, part.solution.via_depot):
            if tensor is not None:
                seen.update(tensor.contiguous().numpy().tobytes())
    return seen.hexdigest()


def _hold_out_some(parts: list[Labelled], held_out: int) -> tuple[list[Labelled], list[Labelled]]:
    training, validation, seen, held = [], [], 0, 0
    for part in parts:
        fifth = torch.arange(seen, seen + len(part)) % FIFTH == FIFTH - 1
        fifth &= fifth.cumsum(0) <= held_out - held
        seen, held = seen + len(part), held + int(fifth.sum())
        training += [part.rows((~fifth).nonzero()[:, 0])] if not fifth.all() else []
        validation += [part.rows(fifth.nonzero()[:, 0])] if fifth.any() else []
    training = by_size(training)
    return training, validation or training


@dataclass(frozen=True)
class Plan:
    """The batch of a step, before it is drawn."""

    rows: int  # decisions
    nodes: int  # that the encoder sees
    available: int  # that the decoder sees, beside starting and destination node
    draw: Callable[[slice], Batch]  # those of its rows that a process takes
    key: Hashable | None = None  # plans of equal keys do equal work, but for the numbers drawn
    share: float = 1.0  # of the decisions, the hardest, that gradients are taken from


class Feed(Protocol):
    batches: int  # batches of partial solutions that are done: all that resuming needs beside the random states
    counts_batches: bool  # whether passes are counted by them

    @property
    def passes(self) -> float:
        """How often the data have been gone through."""

    @property
    def between(self) -> bool:
        """Whether no batch of partial solutions is half done: the moment for a checkpoint."""

    def next(self) -> Plan: ...


class RandomStates:
    passes, between, counts_batches = 0.0, True, False

    def __init__(
        self, config: TrainConfig, problem: Problem, data: Data, rng: random.Random, generator: torch.Generator
    ):
        self.config, self.problem, self.rng, self.generator = config, problem, rng, generator
        self.mixtures = data.mixtures(config.view_shares)
        self.batches = 0

    def next(self) -> Plan:
        self.batches += 1
        number = self.rng.choices(range(len(self.mixtures)), [each.share for each in self.mixtures])[0]
        mixture, layers = self.mixtures[number], self.config.model.decoder_layers
        like_rrc = self.config.like_rrc > 0 and self.rng.random() < self.config.like_rrc
        shape = sample_shape(self.problem, mixture.nodes, self.config.tokens, layers, self.rng, like_rrc)
        if self.config.views and self.rng.random() < mixture.view_share:
            shape = sample_view(self.problem, mixture.nodes, self.config.tokens, self.config.views, self.rng) or shape
        draw = partial(mixture.batch, self.problem, shape, self.generator)
        share = self.config.hardest * (EARLY_SHARE if shape.available > EARLY * mixture.nodes else 1)
        return Plan(shape.rows, shape.embedded, shape.seen, draw, (number, shape), min(1.0, share))


class ConstructionSteps:
    counts_batches = True

    def __init__(
        self, config: TrainConfig, problem: Problem, data: Data, rng: random.Random, generator: torch.Generator
    ):
        self.config, self.problem, self.rng, self.generator = config, problem, rng, generator
        self.groups = by_size(data.parts)
        self.per_pass = sum(-(-len(group) // config.batch) for group in self.groups)
        self.batches = 0
        self.order: tuple[int, list[tuple[Labelled, torch.Tensor]]] = (
            -1,
            [],
        )  # the number of a pass, and its batches of labels
        self.partial: PartialSolution | None = None
        self.taken = 0  # steps of the current partial solutions

    @property
    def passes(self) -> float:
        return self.batches / self.per_pass

    @property
    def between(self) -> bool:
        return self.partial is None

    def next(self) -> Plan:
        cut = self.partial = self.partial or self._cut()
        batch = Batch(cut.instances, cut.state(self.taken), cut.via_depot[:, self.taken].long())
        self.taken += 1
        if self.taken == cut.steps:
            self.partial = None
            self.batches += 1
        return Plan(len(batch.action), cut.instances.num_nodes, batch.state.available.shape[1], batch.rows)

    def _cut(self) -> PartialSolution:
        """Suffixes, all of one random length, of the next labels in the order of this pass."""
        number, place = divmod(self.batches, self.per_pass)
        if self.order[0] != number:
            self.order = (number, self._shuffle(number))
        group, rows = self.order[1][place]
        chosen = group.rows(rows)
        instances = chosen.instances
        solution = self.problem.randomise(instances, chosen.solution, self.generator)
        longest = solution.nodes.shape[1]
        self.taken = 0
        return self.problem.cut(instances, solution, self.rng.randint(min(SHORTEST, longest), longest))

    def _shuffle(self, number: int) -> list[tuple[Labelled, torch.Tensor]]:
        """The batches of a pass, from seed and number alone, so that a resumed pass goes on in the same order."""
        draw = torch.Generator().manual_seed(self.config.seed * 1_000_003 + number)
        batches = []
        for group in self.groups:
            order = torch.randperm(len(group), generator=draw).to(group.instances.device)
            batches += [(group, rows) for rows in torch.split(order, self.config.batch)]
        mixed = torch.randperm(len(batches), generator=draw).tolist() if len(self.groups) > 1 else range(len(batches))
        return [batches[place] for place in mixed]


def make_feed(
    config: TrainConfig, problem: Problem, data: Data, rng: random.Random, generator: torch.Generator
) -> Feed:
    kind = ConstructionSteps if config.states == STEPS else RandomStates
    return kind(config, problem, data, rng, generator)
