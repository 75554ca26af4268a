"""Random numbers for rows: from a generator, or one's own rows of what a generator gives to several processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SharedDraws:
    """Every process draws the numbers of all rows, which is little work, and does the rest of it for its own rows."""

    generator: torch.Generator
    rows: slice  # a process's own …
    total: int  # … of so many


Draws = torch.Generator | SharedDraws


def uniform(draws: Draws, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers from 0 to 1 of this shape, a row for each of its first dimension."""
    if isinstance(draws, torch.Generator):
        return torch.rand(shape, generator=draws, device=draws.device, dtype=dtype)
    return uniform(draws.generator, (draws.total, *shape[1:]), dtype)[draws.rows]


def integers(draws: Draws, end: int, shape: tuple[int, ...]) -> Tensor:
    """Whole numbers from 0 to below the end, likewise."""
    if isinstance(draws, torch.Generator):
        return torch.randint(end, shape, generator=draws, device=draws.device)
    return integers(draws.generator, end, (draws.total, *shape[1:]))[draws.rows]
