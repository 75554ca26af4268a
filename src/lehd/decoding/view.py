"""What the decoder sees of a state: everything, embedded once; or a neighbourhood, embedded anew at every step.

A neighbourhood is the starting node, the destination node and some of the available nodes: those most likely to come
next and, of a TSP, a few far away. It is scaled to its own box, so that a step costs the same whatever the size of the
instance, and looks to the model like the small instances it was trained on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lehd.model.lehd import LEHD, with_both_ends
from lehd.problems.base import Problem
from lehd.symmetry import all_views, in_all_views
from lehd.types import Instances, State

DESTINATION, FIRST = 1, 2  # places in a neighbourhood; the starting node has place 0


class Seen(NamedTuple):
    """What the model makes of a state."""

    logits: Tensor  # (R, U, K) as it gives them, with several views (views R, U, K)
    allowed: Tensor | None  # (R, U, K); None: every action that leads to a node
    state: State  # of the nodes in view
    slots: Tensor | None  # (R, U) where these stand among the available ones; None: all of them are in view
    views: int

    def scores(self) -> Tensor:
        """Logits (R, U, K): finite whatever the weights, -inf where an action is not allowed. With several views the
        mean of their log-probabilities."""
        never = None if self.allowed is None else ~self.allowed
        missing = self.state.missing
        if missing is not None:
            never = missing[..., None] if never is None else never | missing[..., None]
        logits = self.logits.float().nan_to_num()
        if never is not None:
            never = never if self.views == 1 else never.repeat_interleave(self.views, 0)
            logits = logits.masked_fill(never, -torch.inf)
        if self.views > 1:
            logits = logits.flatten(1).log_softmax(1).view(-1, self.views, *logits.shape[1:]).mean(1)
        return logits


def embed(model: LEHD, problem: Problem, instances: Instances, views: int = 1) -> Tensor:
    """Embeddings (B, N, D) of whole instances, with eight `views` (8 B, N, D)."""
    return model.encode(problem.features(instances if views == 1 else all_views(instances), model.config.box))


def see(
    model: LEHD,
    problem: Problem,
    instances: Instances,
    embeddings: Tensor | None,
    state: State,
    nearest: int,
    views: int = 1,
) -> Seen:
    """All available nodes, or, without `embeddings` of them, the `nearest`."""
    if embeddings is None:
        return see_nearest(model, problem, instances, state, nearest, views)
    return see_all(model, problem, instances, embeddings, state, views)


def see_all(
    model: LEHD, problem: Problem, instances: Instances, embeddings: Tensor, state: State, views: int = 1
) -> Seen:
    logits = _score(model, embeddings, state, problem.context(instances, state), views)
    return Seen(logits, problem.feasible(instances, state), state, None, views)


def see_nearest(model: LEHD, problem: Problem, instances: Instances, state: State, count: int, views: int = 1) -> Seen:
    """Only the `count` available nodes that the problem chooses."""
    slots = problem.nearest(instances, state, count)
    local, seen = neighbourhood(instances, state, slots)
    shown = local if views == 1 else all_views(local)
    shown = replace(shown, coords=problem.neighbourhood_box(shown.coords))
    embeddings = model.encode(problem.features(shown, box=False), with_both_ends(seen.left))
    allowed = problem.feasible(instances, state)
    if allowed is not None:
        allowed = allowed.gather(1, slots[..., None].expand(-1, -1, allowed.shape[2]))
        # If all that is allowed lies elsewhere, the depot is still a way to get there.
        allowed = torch.cat([allowed[..., :-1], allowed[..., -1:] | ~allowed.any(2).any(1)[:, None, None]], 2)
    return Seen(_score(model, embeddings, seen, problem.context(local, seen), views), allowed, seen, slots, views)


def neighbourhood(instances: Instances, state: State, slots: Tensor) -> tuple[Instances, State]:
    """Problems of their own, one for each row: starting node, destination node and those in the slots (R, k)."""
    rows = torch.arange(len(slots), device=slots.device)
    seen = State(
        instance=rows,
        # A path that stands at its destination does so in the neighbourhood too.
        start=(state.start == state.destination).long(),  # 0, or DESTINATION
        destination=torch.full_like(rows, DESTINATION),
        available=torch.arange(FIRST, FIRST + slots.shape[1], device=slots.device).expand(len(slots), -1),
        resources=state.resources,
        left=None if state.left is None else state.left.clamp(max=slots.shape[1]),
    )
    candidates = state.available.gather(1, slots)
    if seen.missing is not None:
        # Where no node is, the starting node stands once more: that leaves the box as it is.
        candidates = torch.where(seen.missing, state.start[:, None], candidates)
    nodes = torch.cat([state.start[:, None], state.destination[:, None], candidates], 1)
    return instances.take(nodes, state.instance), seen


def _score(model: LEHD, embeddings: Tensor, state: State, context: Tensor, views: int) -> Tensor:
    if views > 1:
        state, context = in_all_views(state), context.repeat_interleave(views, 0)
    return model.score(embeddings, state, context)
