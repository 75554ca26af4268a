"""Labels of one size from several files, drawn by the files' shares."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch

from lehd.data.dataset import Labelled, concatenate
from lehd.draws import Draws, SharedDraws, uniform
from lehd.problems.base import Problem
from lehd.training.partial import ALL, Batch, Shape, decisions


class Mixture:
    """`shares` are those of all labels, `view_shares` those of steps that show neighbourhoods, of each file."""

    def __init__(self, parts: Sequence[Labelled], shares: Sequence[float], view_shares: Sequence[float] = ()):
        self.labelled = parts[0] if len(parts) == 1 else concatenate(parts)
        self.share = float(sum(shares))
        self.view_share = sum(map(operator.mul, shares, view_shares)) / self.share if self.share else 0.0
        device = self.labelled.instances.device
        count = torch.tensor([len(part) for part in parts], dtype=torch.float64)
        self.count, self.first = count.to(device), (count.cumsum(0) - count).to(device)
        self.upper = (torch.tensor(shares, dtype=torch.float64).cumsum(0) / self.share)[:-1].to(device)

    @property
    def nodes(self) -> int:
        """To visit."""
        return self.labelled.solution.nodes.shape[1]

    def draw(self, size: int, draws: Draws) -> Labelled:
        """Each label from a file by its share, and all labels of a file equally often."""
        one, two = uniform(draws, (size, 2), torch.float64).T.contiguous()
        part = torch.bucketize(one, self.upper, right=True)
        return self.labelled.rows((self.first[part] + two * self.count[part]).long())

    def batch(self, problem: Problem, shape: Shape, generator: torch.Generator, rows: slice = ALL) -> Batch:
        """Random decisions of random partial solutions; `rows` are those of a batch that somebody takes."""
        size = len(range(shape.rows)[rows])
        draws = generator if rows == ALL else SharedDraws(generator, rows, shape.rows)
        chosen = self.draw(size, draws)
        return decisions(problem, chosen.instances, chosen.solution, shape.length, shape.available, draws, shape.view)
