"""Reinforcement learning without labels: REINFORCE with the POMO strategy.

Every instance is solved from many starts by sampling, and the mean cost of its samples is the baseline of each. A
solution shorter than that is imitated, a longer one unlearnt, in proportion to the difference: the gradient is that of
supervised training on the sampled solutions, weighted by the advantage. It is added up decision by decision, so that
memory does not grow with their number. Nothing here waits for the device, so that a step can be recorded.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from lehd.data.dataset import RECIPES
from lehd.data.generate import TspArrays
from lehd.decoding.construct import construct
from lehd.decoding.replay import fill_all
from lehd.decoding.select import Choice, Sample
from lehd.model.lehd import LEHD
from lehd.model.precision import arithmetic
from lehd.problems.base import Problem
from lehd.training.config import REINFORCE, TrainConfig
from lehd.training.partial import Batch
from lehd.training.processes import Processes
from lehd.training.supervised import log_probabilities
from lehd.types import Instances, Rollout, State

MOST_STEPS = 400  # of construction in a step of training, one part after the other: recordings of more are too large
NEVER = -100.0  # the logarithm of a probability of nothing, finite: what is impossible adds no entropy
HELD_OUT = 1_000_000_007  # stands for a batch number: instances that are never trained on


class Reinforce:
    """Draws instances, samples solutions and adds up their gradients; also a feed that counts its batches."""

    names = ("cost", "best_cost")  # mean over all samples, and over the best of each instance
    between = counts_batches = True

    def __init__(
        self,
        config: TrainConfig,
        problem: Problem,
        device: torch.device,
        generator: torch.Generator,
        processes: Processes | None = None,
    ):
        self.config, self.problem, self.device, self.generator = config, problem, device, generator
        self.processes = processes or Processes()
        self.starts = min(config.starts or config.customers, config.customers)
        self.batches = 0
        self.instances: Instances | None = None  # of the current step, always in the same place: recordings read it
        steps = range(3 - problem.actions_per_node, config.customers)  # available nodes; a last one may be no choice
        self.decisions = config.batch * self.starts * len(steps)  # of a step, and tokens through the decoder
        self.tokens = config.batch * self.starts * sum(available + 2 for available in steps)

    @property
    def at_once(self) -> int:
        """Instances that are worked on together: as many as `tokens` allow."""
        return max(1, self.config.tokens // (self.starts * (self.config.customers + 2)))

    @property
    def key(self) -> str | None:
        """What its recording is called; None if it is too large for one."""
        parts = -(-self.config.batch // self.processes.count // self.at_once)
        return REINFORCE if parts * self.config.customers <= MOST_STEPS else None

    @property
    def passes(self) -> float:
        return self.batches * self.config.batch / self.config.instances

    def draw(self, number: int, count: int) -> Instances:
        """The instances of a batch, from seed and number alone."""
        _, generate = RECIPES[self.config.recipe]
        drawn = generate(np.random.default_rng([self.config.seed, number]), count, self.config.customers)
        coords = torch.as_tensor(drawn.coords).double()  # so that equal tours cost the same from wherever they start
        if isinstance(drawn, TspArrays):
            return Instances(coords)
        return Instances(coords, demands=torch.as_tensor(drawn.demands), capacity=torch.as_tensor(drawn.capacity))

    def held_out(self, count: int) -> Instances:
        instances: Instances = self.draw(HELD_OUT, count).to(self.device)
        return instances

    def load(self) -> None:
        """The instances of the next step, and the numbers they are sampled with."""
        mine = self.draw(self.batches, self.config.batch).rows(self.processes.rows)
        if self.instances is None:
            self.instances = mine.to(self.device)
        else:
            fill_all(self.instances, mine)
        self._reseed()
        self.batches += 1

    def backward(self, model: LEHD) -> Tensor:
        """Add the gradient of a step to the parameters, part by part.

        Returns sums (3,): costs, those of each instance's best, samples.
        """
        assert self.instances is not None
        config = self.config
        samples = config.batch * self.starts
        sums = torch.zeros(3, device=self.device)
        for first in range(0, len(self.instances), self.at_once):
            part = self.instances.rows(slice(first, first + self.at_once))
            starts = pick_starts(self.problem, part, self.starts, self.generator)
            sums += reinforce(
                model, self.problem, part, starts, samples, self.generator, config.hardest, config.entropy
            )
        return sums

    def _reseed(self) -> None:
        """Processes sample with numbers of their own, which seed, batch and process give."""
        words = f"{self.config.seed} {self.batches} {self.processes.rank}"
        self.generator.manual_seed(random.Random(words).getrandbits(63))


def pick_starts(problem: Problem, instances: Instances, count: int, generator: torch.Generator) -> Tensor:
    """(B, P): so many different nodes of each instance to start from."""
    nodes = instances.num_nodes - problem.first_node
    keys = torch.rand(len(instances), nodes, generator=generator, device=instances.device)
    return keys.argsort(1)[:, :count] + problem.first_node


def starting_states(problem: Problem, instances: Instances, starts: Tensor) -> State:
    """A row for each start (B, P): a tour begins there, a vehicle goes there first."""
    rows = torch.arange(len(instances), device=instances.device).repeat_interleave(starts.shape[1])
    nodes = starts.flatten()
    begin = replace(problem.initial_state(instances.rows(rows), nodes), instance=rows)
    if problem.first_node == 0:
        return begin
    return problem.advance(instances, begin, nodes - problem.first_node, torch.ones_like(nodes, dtype=torch.bool))


def sampled_costs(problem: Problem, instances: Instances, begin: State, rollout: Rollout) -> Tensor:
    """Costs (B, P) of the whole solutions."""
    shape = (len(instances), -1)
    start, nodes, via = begin.start, rollout.nodes, rollout.via_depot
    if problem.first_node:  # the way from the depot to the first customer counts too
        nodes, via = torch.cat([start[:, None], nodes], 1), torch.cat([torch.ones_like(via[:, :1]), via], 1)
        start = begin.destination
    nodes, via = nodes.view(*shape, nodes.shape[1]), via.view(*shape, via.shape[1])
    return problem.path_cost(instances, start.view(shape), nodes, via, begin.destination.view(shape)).double()


def replay(problem: Problem, instances: Instances, begin: State, rollout: Rollout) -> Iterator[Batch]:
    """The decisions of sampled solutions, one after the other, as if they were labels: each next node in slot 0."""
    nodes, via = rollout.nodes, rollout.via_depot
    state = replace(begin, available=nodes)
    for step in range(nodes.shape[1]):
        if nodes.shape[1] - step > 1 or problem.actions_per_node > 1:  # otherwise there is nothing to decide
            yield Batch(instances, state, via[:, step].long())
        left = problem.spend(instances, state, nodes[:, step], via[:, step])
        state = replace(state, start=nodes[:, step], available=nodes[:, step + 1 :], resources=left)


@dataclass(frozen=True)
class Remembered(Sample):
    """Sampling that remembers of every decision how likely it was."""

    probabilities: list[Tensor] = field(default_factory=list)  # (R,) for each

    def __call__(self, log_probability: Tensor, total: Tensor) -> Choice:
        choice = super().__call__(log_probability, total)
        self.probabilities.append((choice.total - total).exp())
        return choice


def reinforce(
    model: LEHD,
    problem: Problem,
    instances: Instances,
    starts: Tensor,
    samples: int,
    generator: torch.Generator,
    share: float = 1.0,
    entropy: float = 0.0,
) -> Tensor:
    """Sample from every start and add the gradient of the expected cost, as a mean over `samples` in all.

    Gradients are taken from a `share` of the decisions alone, those that count most: a decision's gradient is its
    advantage times one minus its probability, up to a factor that hardly varies. `entropy` is what being unsure is
    worth, in units of cost, added for each of them. Returns sums as `backward` does.
    """
    begin = starting_states(problem, instances, starts)
    select = Remembered(1, generator)
    rollout = construct(model, problem, instances, begin, select)
    cost = sampled_costs(problem, instances, begin, rollout)
    weight = ((cost.mean(1, keepdim=True) - cost).flatten() / samples).float()  # how much shorter than its baseline
    count = math.ceil(share * len(weight))
    for batch, probability in zip(replay(problem, instances, begin, rollout), select.probabilities):
        learnt, own = batch, weight
        if count < len(weight):
            most = (weight.abs() * (1 - probability)).topk(count, sorted=False).indices
            learnt, own = Batch(instances, batch.state.rows(most), batch.action[most]), weight[most]
        with arithmetic(instances.device):
            log_probability = log_probabilities(model, problem, learnt)
        imitated = own @ log_probability.gather(1, learnt.action[:, None])[:, 0]
        if entropy:
            unsure = -(log_probability.exp() * log_probability.clamp(min=NEVER)).sum()
            imitated = imitated + entropy / samples * unsure
        (-imitated).backward()  # type: ignore[no-untyped-call]
    best = cost.amin(1).sum() * cost.shape[1]
    return torch.stack([cost.sum(), best, torch.full_like(best, cost.numel())]).float()
