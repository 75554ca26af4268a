"""The construction loop: score, select, advance, until nothing is available. Greedy, sampling and beam search, complete
and partial solutions, TSP and CVRP all run through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lehd.decoding.select import GREEDY, Sample, Select
from lehd.decoding.stop import Stop, check_time
from lehd.decoding.view import Seen, embed, see
from lehd.memory import Memory, row_bytes
from lehd.model.lehd import LEHD
from lehd.model.precision import inference
from lehd.problems.base import Problem
from lehd.recording import Pace
from lehd.types import Instances, Rollout, State

AHEAD = 4  # steps that may wait for a GPU: more would not keep it busier


def construct(
    model: LEHD,
    problem: Problem,
    instances: Instances,
    state: State,
    select: Select = GREEDY,
    nearest: int | None = None,
    stop: Stop | None = None,
    on_step: Callable[[int], None] | None = None,
    views: int = 1,
    memory: Memory | None = None,
) -> Rollout:
    """Let the model decide until no node is left. The rollout has `select.width` rows for each row of the state.

    With `nearest`, a state of more nodes is shown to the model only in part: so many near ones, embedded at every step.
    With eight `views` the model sees everything turned and mirrored too, and the mean of what it says decides.
    Rows that do not fit into the `memory` together are constructed in turn; `on_step` hears of the steps of each turn.
    Raises OutOfTime if `stop` runs out of time on the way.
    """
    if memory is None:
        return _construct(model, problem, instances, state, select, nearest, stop, on_step, views)
    if isinstance(select, Sample):  # whose rows, unlike those of a beam, need not be together
        state, select = state.repeat(select.width), replace(select, width=1)
    rows, steps = state.available.shape
    view = steps if nearest is None else min(nearest, steps)
    done: list[Rollout] = []

    def turn(part: slice) -> None:
        own, mine = instances, state
        if part != slice(0, rows):  # of the others nothing is embedded
            which, own_number = torch.unique(state.instance[part], return_inverse=True)
            own, mine = instances.rows(which), state.map(lambda tensor: tensor[part])
            mine = replace(mine, instance=own_number)
        done.append(_construct(model, problem, own, mine, select, nearest, stop, on_step, views))

    memory.in_turns(rows, row_bytes(model.config, view, steps, select.width * views), turn)
    if len(done) == 1:
        return done[0]
    return Rollout(*(torch.cat(each) for each in zip(*((r.nodes, r.via_depot, r.log_probability) for r in done))))


def _construct(
    model: LEHD,
    problem: Problem,
    instances: Instances,
    state: State,
    select: Select,
    nearest: int | None,
    stop: Stop | None,
    on_step: Callable[[int], None] | None,
    views: int,
) -> Rollout:
    state = state.repeat(select.width)
    rows, steps = state.available.shape
    device = state.available.device
    nodes = torch.empty(rows, steps, dtype=torch.long, device=device)
    via_depot = torch.empty(rows, steps, dtype=torch.bool, device=device)
    total = select.first_total(rows, device)
    pace = pace_of(stop, device, AHEAD)
    with inference(device):
        embeddings = embed_in_time(model, problem, instances, steps, nearest, stop, views)
        for number in range(steps):
            check_time(stop)
            seen = see(model, problem, instances, embeddings, state, nearest or steps, views)
            state, flag, total, parent = step(problem, instances, state, seen, total, select)
            if parent is not None:
                nodes, via_depot = nodes[parent], via_depot[parent]
            nodes[:, number], via_depot[:, number] = state.start, flag
            if pace is not None:
                pace.step()
            if on_step is not None:
                on_step(number + 1)
    return Rollout(nodes, via_depot, total)


def sees_all(steps: int, nearest: int | None) -> bool:
    """Whether the model sees all that is left of a state with so many nodes, embedded once."""
    return nearest is None or steps <= nearest


def embed_in_time(
    model: LEHD,
    problem: Problem,
    instances: Instances,
    steps: int,
    nearest: int | None,
    stop: Stop | None,
    views: int = 1,
) -> Tensor | None:
    """Embeddings for a construction of so many steps; None if it embeds the nearest nodes at every step, or if there is
    nothing to do. Raises OutOfTime where it need not begin: large instances take long."""
    if not steps or not sees_all(steps, nearest):
        return None
    check_time(stop)
    return embed(model, problem, instances, views)


def pace_of(stop: Stop | None, device: torch.device, ahead: int) -> Pace | None:
    """Where a stop has to be kept on a GPU, Python must not be many steps ahead of it."""
    return Pace(ahead) if stop is not None and device.type == "cuda" else None


class Step(NamedTuple):
    state: State  # afterwards; the chosen node is the new starting node
    via_depot: Tensor  # (R,) how it is reached
    total: Tensor  # (R,) log-probabilities so far
    parent: Tensor | None  # (R,) the rows they go on from; None: each from itself


def step(problem: Problem, instances: Instances, state: State, seen: Seen, total: Tensor, select: Select) -> Step:
    """One decision of every row, by what the model sees."""
    action, total, parent = select(seen.scores().flatten(1).log_softmax(1), total)
    slots = seen.slots
    if parent is not None:
        state = state.rows(parent)
        slots = None if slots is None else slots[parent]
    slot, flag = split_action(problem, action)
    if slots is not None:
        slot = slots.gather(1, slot[:, None])[:, 0]
    return Step(problem.advance(instances, state, slot, flag), flag, total, parent)


def split_action(problem: Problem, action: Tensor) -> tuple[Tensor, Tensor]:
    """The slots (R,) that actions lead to, and whether they do so via the depot."""
    kinds = problem.actions_per_node
    if kinds == 1:
        return action, torch.zeros_like(action, dtype=torch.bool)
    return action // kinds, action % kinds == 1


def best_rows(problem: Problem, instances: Instances, state: State, rollout: Rollout, width: int) -> Tensor:
    """For each row of the state, which of its `width` rollout rows is best (R,)."""
    if width == 1:
        return torch.arange(len(state.start), device=state.start.device)
    nodes = rollout.nodes.view(len(instances), width, -1)
    start, end = (node[:, None].expand(-1, width) for node in (state.start, state.destination))
    objective = problem.objective(instances, start, nodes, rollout.via_depot.view_as(nodes), end).double()
    dead = rollout.log_probability.view(objective.shape) == -torch.inf
    best = objective.masked_fill(dead, torch.inf).argmin(1)
    return torch.arange(len(best), device=best.device) * width + best
