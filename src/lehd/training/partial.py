"""Learning to construct partial solutions: random states of labelled solutions, and what the label does next.

Teacher forcing is slicing. A solution is rewritten by `randomise`, its suffix cut out by `cut`, and the state before
any of its decisions read off: no stepping. The label's next node is always in slot 0, which gives nothing away because
the model does not know the order of the available nodes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from lehd.decoding.view import neighbourhood
from lehd.draws import Draws
from lehd.problems.base import Problem
from lehd.symmetry import turned_at_random
from lehd.types import Instances, Solution, State

ALL = slice(None)  # rows
LENGTHS = 8  # of partial solutions, for each number of available nodes
MOST_IN_VIEW = 0.7  # share of the available nodes that a neighbourhood has
VIEW_SIZES = 8  # numbers of available nodes around neighbourhoods
SIZES = 100  # numbers of available nodes, about: of larger problems every second, third … number


@dataclass(frozen=True)
class Batch:
    """One decision for each of B partial solutions."""

    instances: Instances
    state: State
    action: Tensor  # (B,) the label's choice among the U · K actions

    def rows(self, which: slice | Tensor) -> Batch:
        """Some of the decisions."""
        if isinstance(which, slice) and which == ALL:
            return self
        action = self.action[which]
        instance = self.state.instance[: len(action)]  # row r decides for instance r, here as in the whole batch
        return Batch(self.instances.rows(which), replace(self.state.rows(which), instance=instance), action)


class Shape(NamedTuple):
    """What a batch looks like. The same few come again and again, so that a GPU can replay what it has done before."""

    rows: int  # decisions
    length: int  # of the partial solutions they are taken from
    available: int  # nodes
    view: int | None = None  # how many of them the model sees; None: all

    @property
    def seen(self) -> int:
        """Available nodes that go through the decoder."""
        return self.view or self.available

    @property
    def embedded(self) -> int:
        """Nodes that go through the encoder."""
        return self.length if self.view is None else self.view + 2


def sample_shape(
    problem: Problem, nodes: int, tokens: int, layers: int, rng: random.Random, like_rrc: bool = False
) -> Shape:
    """As many decisions, all with equally many available nodes, as cost what `tokens` tokens through the model do.

    The number of available nodes is uniform, as it is over the steps of a construction; or as in RRC, whose partial
    solutions have all lengths: most of them have few nodes left. For each there are a few lengths of partial solutions,
    spread evenly over those that have as many. Larger problems do not have many more shapes: but for the last
    decisions, neither numbers nor lengths are as dense.
    """
    fewest = 3 - problem.actions_per_node  # with a single action, one available node leaves nothing to decide
    apart = -(-nodes // SIZES)
    most = nodes - problem.fixed_in_suffix
    numbers = [*range(fewest, min(fewest + apart - 1, most)), *range(most, fewest + apart - 2, -apart)]
    available = rng.choices(numbers, [most + 1 - number for number in numbers])[0] if like_rrc else rng.choice(numbers)
    shortest = available + problem.fixed_in_suffix
    lengths = LENGTHS if apart == 1 else LENGTHS // 2
    choice = rng.randrange(lengths)
    place = (choice + random.Random(LENGTHS * available + choice).random()) / lengths  # the same every time
    length = shortest + int(place * (nodes - shortest + 1))
    work = layers * (available + 2) + length  # the encoder, one layer, sees the whole partial solution
    return Shape(max(1, tokens * (layers + 1) // work), length, available)


def sample_view(problem: Problem, nodes: int, tokens: int, views: Sequence[int], rng: random.Random) -> Shape | None:
    """The shape of a batch that shows the model a neighbourhood, as large problems are shown to it.

    There are `views` of several sizes. Those that fit must leave out some of the nodes: None if none does.
    """
    most = nodes - problem.fixed_in_suffix
    fitting = [view for view in views if view <= MOST_IN_VIEW * most]
    if not fitting:
        return None
    view = rng.choice(fitting)
    fewest = math.ceil(view / MOST_IN_VIEW)
    available = fewest + (most - fewest) * rng.randrange(VIEW_SIZES) // (VIEW_SIZES - 1)
    length = rng.choice([available + problem.fixed_in_suffix, nodes])
    return Shape(max(1, tokens // (view + 2)), length, available, view)


def decisions(
    problem: Problem,
    instances: Instances,
    solution: Solution,
    length: int,
    available: int,
    draws: Draws,
    view: int | None = None,
) -> Batch:
    """For each instance the decision with `available` nodes left in a random partial solution of the given length, all
    of them in view or only so many."""
    instances = replace(instances, coords=turned_at_random(instances.coords, draws))
    solution = problem.randomise(instances, solution, draws)
    partial = problem.cut(instances, solution, length)
    step = partial.steps - available
    flag = partial.via_depot[:, step]
    state = problem.vary_start(partial.instances, partial.state(step), flag, draws)
    batch = Batch(partial.instances, state, flag.long())
    return batch if view is None else _neighbourhoods(problem, batch, view)


def _neighbourhoods(problem: Problem, batch: Batch, view: int) -> Batch:
    """What large problems look like to the model. The label's next node is among those it sees, and again in slot 0."""
    slots = problem.nearest(batch.instances, batch.state, view)
    missing = (slots != 0).all(1)
    slots = torch.cat([slots[:, :-1], torch.where(missing, 0, slots[:, -1])[:, None]], 1)
    slots = slots.gather(1, (slots != 0).byte().argsort(dim=1, stable=True))
    local, seen = neighbourhood(batch.instances, batch.state, slots)
    return Batch(replace(local, coords=problem.neighbourhood_box(local.coords)), seen, batch.action)
