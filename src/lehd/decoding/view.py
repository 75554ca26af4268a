"""What the decoder sees of a state: everything, embedded once; or a neighbourhood, embedded anew at every step.

A neighbourhood is the starting node, the destination node and the available nodes most likely to come next. It is
scaled to its own box, so that a step costs the same whatever the size of the instance, and looks to the model like the
small instances it was trained on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lehd.model.lehd import LEHD
from lehd.problems.base import Problem
from lehd.types import Instances, State

START, DESTINATION, FIRST = 0, 1, 2  # places in a neighbourhood


class Neighbourhood(NamedTuple):
    logits: Tensor  # (R, k, K)
    slots: Tensor  # (R, k) where its nodes stand among the available ones


def score_all(model: LEHD, problem: Problem, instances: Instances, embeddings: Tensor, state: State) -> Tensor:
    """Logits (R, U, K) of all available nodes: finite whatever the weights, -inf where an action is not allowed."""
    logits = model.score(embeddings, state, problem.context(instances, state)).float().nan_to_num()
    allowed = problem.feasible(instances, state)
    return logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)


def score_nearest(model: LEHD, problem: Problem, instances: Instances, state: State, count: int) -> Neighbourhood:
    """Logits of the `count` available nodes that the problem considers nearest."""
    slots = problem.nearest(instances, state, count)
    candidates = state.available.gather(1, slots)
    nodes = torch.cat([state.start[:, None], state.destination[:, None], candidates], 1)
    local = instances.take(nodes, state.instance)
    local = replace(local, coords=problem.neighbourhood_box(local.coords))
    rows = torch.arange(len(slots), device=slots.device)
    seen = State(
        instance=rows,
        # A path that stands at its destination does so in the neighbourhood too.
        start=torch.where(state.start == state.destination, DESTINATION, START),
        destination=torch.full_like(rows, DESTINATION),
        available=torch.arange(FIRST, nodes.shape[1], device=slots.device).expand(len(slots), -1),
        resources=state.resources,
    )
    embeddings = model.encode(problem.features(local, box=False))
    logits = model.score(embeddings, seen, problem.context(local, seen)).float().nan_to_num()
    allowed = problem.feasible(instances, state)
    if allowed is not None:
        allowed = allowed.gather(1, slots[..., None].expand(-1, -1, allowed.shape[2]))
        # If all that is allowed lies elsewhere, the depot is still a way to get there.
        allowed = torch.cat([allowed[..., :-1], allowed[..., -1:] | ~allowed.any(2).any(1)[:, None, None]], 2)
        logits = logits.masked_fill(~allowed, -torch.inf)
    return Neighbourhood(logits, slots)
