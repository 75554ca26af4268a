"""Random insertion: nodes one by one, in random order, each where it lengthens the path least. Without the model, in a
moment: a start for instances that are too large to be constructed in the time given."""

from __future__ import annotations

import torch
from torch import Tensor


def insert_all(coords: Tensor, count: Tensor, closed: bool, generator: torch.Generator) -> Tensor:
    """Orders (R, n) of the first `count` (R,) of the positions (R, n, 2); those beyond keep their places at the end.

    The path leads from the first position to the last one that counts, or back to the first if it is `closed`.
    """
    rows, size, _ = coords.shape
    device = coords.device
    row = torch.arange(rows, device=device)
    last = (count - 1).clamp(min=0)
    index = torch.arange(size, device=device).expand(rows, -1)
    inner = (index > 0) & (index < (count if closed else last)[:, None])
    turn = torch.where(inner, torch.rand(rows, size, generator=generator, device=device), 2.0).argsort(1)

    after = torch.zeros(rows, size, dtype=torch.long, device=device)  # the node that follows on the path
    after[:, 0] = 0 if closed else last
    leg = torch.full((rows, size), -torch.inf, dtype=coords.dtype, device=device)  # its length; -inf: not on it yet
    leg[:, 0] = (coords[:, 0] - coords[row, after[:, 0]]).norm(dim=1)
    for step in range(int(inner.sum(1).max()) if rows else 0):
        node = turn[:, step]
        away = (coords - coords[row, node][:, None]).norm(dim=2)
        detour = away + away.gather(1, after) - leg  # inf where there is no path yet
        place = detour.argmin(1)
        due = inner[row, node]
        place = torch.where(due, place, 0)
        next_node, out, back = after[row, place], away[row, place], away[row, after[row, place]]
        after[row, place] = torch.where(due, node, next_node)
        leg[row, place] = torch.where(due, out, leg[row, place])
        after[row, node] = torch.where(due, next_node, after[row, node])
        leg[row, node] = torch.where(due, back, leg[row, node])

    order = index.clone()
    node = torch.zeros(rows, dtype=torch.long, device=device)
    for step in range(1, int(count.max()) if rows else 0):
        node = after[row, node]
        order[:, step] = torch.where(step < count, node, order[:, step])
    return order
