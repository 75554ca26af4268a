"""The eight symmetries of the square: a problem turned or mirrored is the same problem, but not to the model."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lehd.draws import Draws, integers
from lehd.types import Instances, State

COUNT = 8


def turned(coords: Tensor, swap: Tensor, mirror_x: Tensor, mirror_y: Tensor) -> Tensor:
    """Positions (B, N, 2) in the unit square, axes swapped and then mirrored where the flags (B, 1, 1) say so."""
    swapped = torch.where(swap, coords.flip(2), coords)
    return torch.where(torch.cat([mirror_x, mirror_y], 2), 1 - swapped, swapped)


def turned_at_random(coords: Tensor, draws: Draws) -> Tensor:
    """Each instance's positions (B, N, 2) in one of the eight ways, drawn for it."""
    chosen = integers(draws, 2, (len(coords), 3, 1, 1)).bool()
    return turned(coords, chosen[:, 0], chosen[:, 1], chosen[:, 2])


def all_views(instances: Instances) -> Instances:
    """What the model sees of every instance in all eight ways, those of one instance side by side."""
    number = torch.arange(COUNT, device=instances.device).repeat(len(instances))[:, None, None]
    repeated = [
        None if tensor is None else tensor.repeat_interleave(COUNT, 0)
        for tensor in (instances.coords, instances.demands, instances.capacity, instances.vehicles)
    ]
    assert repeated[0] is not None
    coords = turned(repeated[0], *((number >> bit & 1).bool() for bit in range(3)))
    return Instances(coords, demands=repeated[1], capacity=repeated[2], vehicles=repeated[3])


def in_all_views(state: State) -> State:
    """Every row once for each of the views that `all_views` gives of its instance."""
    repeated = state.repeat(COUNT)
    number = torch.arange(COUNT, device=state.instance.device).repeat(len(state.instance))
    return replace(repeated, instance=repeated.instance * COUNT + number)
