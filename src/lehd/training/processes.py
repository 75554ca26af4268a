"""Training by several processes, started by torchrun: each takes its share of every step's decisions.

All of them draw the same decisions from the same seed and go through different rows of them, so that no decision is
taken twice and the sum of their gradients is the gradient of one process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed

from lehd.errors import LehdError
from lehd.training.partial import Batch

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    count: int = 1

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes logs and weights."""
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """This process's rows."""
        return batch if self.count == 1 else batch.rows(slice(self.rank, None, self.count))

    def first_alone(self, work: Callable[[], T]) -> T:
        """The same work by all, but the first process does it before the others: they find what it has written."""
        if not self.writes:
            self.agree(0.0)  # waits for the first one
        done = work()
        if self.writes:
            self.agree(0.0)
        return done

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Each tensor becomes the sum over all processes, in one exchange."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        parts = torch.split_with_sizes(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def agree(self, number: float) -> float:
        """The first process's number, such as the time: everybody must end, log and validate at the same step."""
        if self.count == 1:
            return number
        shared = torch.tensor(number, dtype=torch.float64)
        distributed.broadcast(shared, 0)
        return float(shared)  # in host memory: no GPU is waited for


def join_processes() -> Processes:
    """Those that torchrun started, or this one alone."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Processes()
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        if not distributed.is_initialized():
            distributed.init_process_group(backend)
    except (RuntimeError, ValueError) as error:
        raise LehdError(f"the processes of this run do not find each other ({error})") from None
    return Processes(distributed.get_rank(), distributed.get_world_size())


def leave_processes() -> None:
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
