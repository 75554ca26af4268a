"""Random insertion: nodes one by one, in random order, each where it lengthens the path least. Without the model, in a
moment: a start for instances that are too large to be constructed in the time given."""

from __future__ import annotations

import torch
from torch import Tensor

from lehd.types import Instances

PIECE = 1000  # nodes put together at a time: the work grows with their square


def insert_all(instances: Instances, count: Tensor, closed: Tensor) -> Tensor:
    """Orders (R, n) of the first `count` (R,) nodes of each instance; those beyond keep their places at the end.

    The path leads from node 0 to the last one that counts, or back to node 0 where it is `closed` (R,). Lengths are
    those of the plane, or the distance matrix's where there is one.
    """
    coords, matrix = instances.coords, None if instances.matrix is None else instances.matrix.double()
    rows, size, _ = coords.shape
    device = coords.device
    generator = torch.Generator(device).manual_seed(0)
    row = torch.arange(rows, device=device)
    last = torch.where(closed, 0, (count - 1).clamp(min=0))
    index = torch.arange(size, device=device).expand(rows, -1)
    inner = (index > 0) & (index < torch.where(closed, count, last)[:, None])
    turn = torch.where(inner, torch.rand(rows, size, generator=generator, device=device), 2.0).argsort(1)

    after = torch.zeros(rows, size, dtype=torch.long, device=device)  # the node that follows on the path
    after[:, 0] = last
    leg = torch.full((rows, size), -torch.inf, dtype=torch.float64, device=device)  # its length; -inf: not on it yet
    leg[:, 0] = (coords[:, 0] - coords[row, after[:, 0]]).norm(dim=1) if matrix is None else matrix[row, 0, after[:, 0]]
    for step in range(int(inner.sum(1).max()) if rows else 0):
        node = turn[:, step]
        if matrix is None:
            there = back = (coords - coords[row, node][:, None]).norm(dim=2).double()
        else:
            there, back = matrix[row, :, node], matrix[row, node]
        detour = there + back.gather(1, after) - leg  # inf where there is no path yet
        place = detour.argmin(1)
        due = inner[row, node]
        place = torch.where(due, place, 0)
        next_node, to_node, from_node = after[row, place], there[row, place], back[row, after[row, place]]
        after[row, place] = torch.where(due, node, next_node)
        leg[row, place] = torch.where(due, to_node, leg[row, place])
        after[row, node] = torch.where(due, next_node, after[row, node])
        leg[row, node] = torch.where(due, from_node, leg[row, node])

    order = index.clone()
    node = torch.zeros(rows, dtype=torch.long, device=device)
    for step in range(1, int(count.max()) if rows else 0):
        node = after[row, node]
        order[:, step] = torch.where(step < count, node, order[:, step])
    return order
