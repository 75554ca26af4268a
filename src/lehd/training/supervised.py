"""Cross-entropy between the model's choice and the label's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lehd.model.lehd import LEHD
from lehd.model.precision import arithmetic
from lehd.problems.base import Problem
from lehd.training.partial import Batch


def log_probabilities(model: LEHD, problem: Problem, batch: Batch) -> Tensor:
    """Of every action of each decision (B, actions); infeasible ones have -inf."""
    embeddings = model.encode(problem.features(batch.instances, model.config.box))
    logits = model.score(embeddings, batch.state, problem.context(batch.instances, batch.state)).float()
    allowed = problem.feasible(batch.instances, batch.state)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    return logits.flatten(1).log_softmax(1)


def cross_entropy(model: LEHD, problem: Problem, batch: Batch) -> tuple[Tensor, Tensor]:
    """Loss and whether the model's first choice is the label's, for each decision (B,)."""
    log_probability = log_probabilities(model, problem, batch)
    loss = -log_probability.gather(1, batch.action[:, None])[:, 0]
    return loss, log_probability.argmax(1) == batch.action


def learn(model: LEHD, problem: Problem, batch: Batch, share: float, rows: int) -> Tensor:
    """Add the gradient of the batch's loss, divided by `rows`; sums (3,) of losses, right choices and decisions.

    Gradients are taken from the hardest `share` of the decisions. A trained model is sure of most of the others, and
    right: together they hardly change it, and to look at a decision costs a third of learning from it.
    """
    with torch.set_grad_enabled(share == 1), arithmetic(batch.action.device):
        loss, right = cross_entropy(model, problem, batch)
    sums = torch.stack([loss.detach().sum(), right.sum(), torch.full_like(loss[0], len(loss))])
    if share < 1:
        hard = loss.topk(math.ceil(share * len(loss)), sorted=False).indices
        with arithmetic(batch.action.device):
            loss, _ = cross_entropy(model, problem, batch.rows(hard))
    (loss.sum() / rows).backward()  # type: ignore[no-untyped-call]
    return sums
