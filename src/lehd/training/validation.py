"""How good a model is on held-out labels."""

from __future__ import annotations

import random

import torch

from lehd.data.dataset import Labelled
from lehd.decoding.construct import construct
from lehd.model.lehd import LEHD
from lehd.model.precision import arithmetic
from lehd.problems.base import Problem
from lehd.training.partial import sample_batch
from lehd.training.supervised import cross_entropy

TOKENS = 65_536  # per batch
CONSTRUCTIONS = 512  # at most about so many


def measure(model: LEHD, problem: Problem, labelled: Labelled, decisions: int) -> dict[str, float]:
    """Loss and accuracy on the same decisions every time, and greedy construction beside the labels."""
    device = labelled.instances.device
    rng, generator = random.Random(1), torch.Generator(device).manual_seed(1)
    loss = right = count = 0.0
    with torch.no_grad(), arithmetic(device):
        while count < decisions:
            batch = sample_batch(problem, labelled, TOKENS, model.config.decoder_layers, rng, generator)
            losses, hits = cross_entropy(model, problem, batch)
            loss, right, count = loss + float(losses.sum()), right + float(hits.sum()), count + len(losses)
    gap = greedy_gap(model, problem, labelled.rows(slice(None, None, max(1, len(labelled) // CONSTRUCTIONS))))
    return {"validation_loss": loss / count, "validation_accuracy": right / count, "greedy_gap": gap}


def greedy_gap(model: LEHD, problem: Problem, labelled: Labelled) -> float:
    """How much longer greedy solutions are than the labels: the mean ratio, in per cent."""
    instances = labelled.instances
    state = problem.initial_state(instances)
    solution = problem.complete(state, construct(model, problem, instances, state))
    cost, label = (problem.cost(instances, each).double() for each in (solution, labelled.solution))
    return float((cost / label).mean() - 1) * 100
