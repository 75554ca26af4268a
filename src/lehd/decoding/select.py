"""How construction chooses among the actions: greedily, by sampling, or keeping the best few (beam search)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Choice(NamedTuple):
    action: Tensor  # (R,) index among the U · K actions
    total: Tensor  # (R,) log-probability of everything the row has chosen
    parent: Tensor | None  # (R,) the row each row goes on from; None: its own


class Select(Protocol):
    @property
    def width(self) -> int:
        """Rows per row of the initial state; they lie side by side."""

    def first_total(self, rows: int, device: torch.device) -> Tensor:
        """The totals (R,) before the first choice; a row at -inf does not count."""

    def __call__(self, log_probability: Tensor, total: Tensor) -> Choice:
        """Choose for log-probabilities (R, U · K)."""


@dataclass(frozen=True)
class Greedy:
    """The likeliest action."""

    width: int = 1

    def first_total(self, rows: int, device: torch.device) -> Tensor:
        return torch.zeros(rows, device=device)

    def __call__(self, log_probability: Tensor, total: Tensor) -> Choice:
        best, action = log_probability.max(1)
        return Choice(action, total + best, None)


@dataclass(frozen=True)
class Sample:
    """`width` independent draws from the model's distribution."""

    width: int
    generator: torch.Generator

    def first_total(self, rows: int, device: torch.device) -> Tensor:
        return torch.zeros(rows, device=device)

    def __call__(self, log_probability: Tensor, total: Tensor) -> Choice:
        uniform = torch.rand(log_probability.shape, generator=self.generator, device=log_probability.device)
        action = (log_probability - torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))).argmax(1)  # Gumbel's trick
        return Choice(action, total + log_probability.gather(1, action[:, None])[:, 0], None)


@dataclass(frozen=True)
class Beam:
    """The `width` likeliest sequences so far."""

    width: int

    def first_total(self, rows: int, device: torch.device) -> Tensor:
        total = torch.full((rows // self.width, self.width), -torch.inf, device=device)
        total[:, 0] = 0  # all rows begin alike: one of them counts until they differ
        return total.flatten()

    def __call__(self, log_probability: Tensor, total: Tensor) -> Choice:
        actions = log_probability.shape[1]
        joint = (total[:, None] + log_probability).view(-1, self.width * actions)
        best, index = joint.topk(self.width, dim=1)
        first_row = torch.arange(len(joint), device=index.device)[:, None] * self.width
        return Choice((index % actions).flatten(), best.flatten(), (first_row + index // actions).flatten())


GREEDY = Greedy()
