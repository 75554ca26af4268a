"""The order of points along a Hilbert curve: neighbours on it are neighbours in the plane."""

from __future__ import annotations

import torch
from torch import Tensor


def hilbert_order(positions: Tensor, bits: int = 20) -> Tensor:
    """The order (B, n) in which the curve meets the positions (B, n, 2) of the unit square."""
    side = 1 << bits
    x, y = (positions * (side - 1)).round().long().clamp(0, side - 1).unbind(-1)
    along = torch.zeros_like(x)
    half = side >> 1
    while half:
        right, upper = (x & half) > 0, (y & half) > 0
        along += half * half * ((3 * right.long()) ^ upper.long())
        # Turn each quadrant so that its own piece of the curve runs as the whole one does.
        flip = ~upper & right
        x, y = torch.where(flip, side - 1 - x, x), torch.where(flip, side - 1 - y, y)
        x, y = torch.where(upper, x, y), torch.where(upper, y, x)
        half >>= 1
    return along.argsort(dim=1, stable=True)
