"""How good a model is on held-out labels."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from lehd.data.dataset import Labelled
from lehd.decoding.construct import construct
from lehd.model.lehd import LEHD
from lehd.model.precision import arithmetic
from lehd.problems.base import Problem
from lehd.training.mixture import Mixture
from lehd.training.partial import sample_shape
from lehd.training.supervised import cross_entropy
from lehd.types import Instances

TOKENS = 65_536  # per batch
TOKENS_PER_DECISION = 64  # at most, where there are few
DECISIONS_PER_LABEL = 128  # more say nothing new
CONSTRUCTIONS = 512  # at most about so many


def measure(model: LEHD, problem: Problem, groups: Sequence[Labelled], decisions: int) -> dict[str, float]:
    """Loss and accuracy on the same decisions every time, and greedy construction beside the labels.

    Labels of one size are a group; each counts by its number of labels.
    """
    labels = sum(map(len, groups))
    decisions = min(decisions, DECISIONS_PER_LABEL * labels)
    sums = [0.0, 0.0, 0.0]
    for group in groups:
        share = len(group) / labels
        loss, accuracy = _on_decisions(model, problem, group, max(1, round(decisions * share)))
        some = group.rows(slice(None, None, max(1, round(labels / CONSTRUCTIONS))))
        for place, value in enumerate((loss, accuracy, greedy_gap(model, problem, some))):
            sums[place] += share * value
    return dict(zip(("validation_loss", "validation_accuracy", "greedy_gap"), sums, strict=True))


def _on_decisions(model: LEHD, problem: Problem, labelled: Labelled, decisions: int) -> tuple[float, float]:
    device = labelled.instances.device
    rng, generator = random.Random(1), torch.Generator(device).manual_seed(1)
    loss = right = count = 0.0
    mixture = Mixture([labelled], [1.0])
    with torch.no_grad(), arithmetic(device):
        while count < decisions:
            tokens = min(TOKENS, TOKENS_PER_DECISION * decisions)
            shape = sample_shape(problem, mixture.nodes, tokens, model.config.decoder_layers, rng)
            batch = mixture.batch(problem, shape, generator)
            losses, hits = cross_entropy(model, problem, batch)
            loss, right, count = loss + float(losses.sum()), right + float(hits.sum()), count + len(losses)
    return loss / count, right / count


def greedy_gap(model: LEHD, problem: Problem, labelled: Labelled) -> float:
    """How much longer greedy solutions are than the labels: the mean ratio, in per cent."""
    instances = labelled.instances
    cost = _greedy_costs(model, problem, instances)
    return float((cost / problem.cost(instances, labelled.solution).double()).mean() - 1) * 100


def greedy_cost(model: LEHD, problem: Problem, instances: Instances) -> float:
    """The mean cost of greedy solutions."""
    return float(_greedy_costs(model, problem, instances).mean())


def _greedy_costs(model: LEHD, problem: Problem, instances: Instances) -> Tensor:
    state = problem.initial_state(instances)
    solution = problem.complete(state, construct(model, problem, instances, state))
    return problem.cost(instances, solution).double()
