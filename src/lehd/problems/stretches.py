"""Two ways to visit the same nodes, stretch by stretch.

Where both visit the same nodes between the same two ends, the shorter way may be taken, whatever they do elsewhere: so
of two paths a third can be put together that is as short as either, or shorter. Stretches lie side by side or within
each other, never across; an edge belongs to the innermost stretch around it, and every stretch is decided by the edges
that are its own.

Shapes as in lehd.types; n nodes of a path, both ends included. The one path visits them as they are numbered.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lehd.distance import strictly_shorter


def better_stretches(order: Tensor, old_legs: Tensor, new_legs: Tensor, both_ways: bool) -> Tensor:
    """The shortest path (R, n) that takes each stretch from one of two paths: the old one, 0 to n - 1 as numbered, or
    the new one, `order` (R, n), with the same ends. Legs (R, n - 1) are what their edges cost; with `both_ways` as much
    in either direction."""
    size = order.shape[1]
    numbers = torch.arange(size, device=order.device).expand_as(order)
    place = torch.empty_like(order).scatter_(1, order, numbers)
    last = _stretches(order, place, both_ways)
    begins = last >= 0
    ends = _marks(last, begins)
    old_stretch = _innermost(begins, ends, numbers)
    # The same stretches as the new path goes through them, some of them backwards.
    far = last.clamp(min=0)
    one, other = place, place.gather(1, far)
    begin, end = torch.minimum(one, other), torch.maximum(one, other)
    named = torch.zeros(size + 1, dtype=order.dtype, device=order.device).expand(len(order), -1)
    named = named.scatter(1, torch.where(begins, begin, size), numbers)[:, :-1]
    new_stretch = _innermost(_marks(begin, begins), _marks(end, begins), named)

    cost = torch.zeros(order.shape, dtype=old_legs.dtype, device=order.device)
    old_cost, new_cost = cost.scatter_add(1, old_stretch, old_legs), cost.scatter_add(1, new_stretch, new_legs)
    better = strictly_shorter(new_cost, old_cost)
    if not better.any():
        return numbers
    kept, taken = ~better.gather(1, old_stretch), better.gather(1, new_stretch)
    return _walk(numbers, kept, order, taken)


def _stretches(order: Tensor, place: Tensor, both_ways: bool) -> Tensor:
    """For every node (R, n) the last one, as numbered, of the shortest stretch that begins with it; -1 where none does.

    Two nodes are the ends of a stretch if both paths visit the same nodes between them. What a path has visited so far
    is told by the sum of random marks, one for each node. All of these differ but for one chance in 2^60 or so.
    """
    marks = torch.randint(-(1 << 62), 1 << 62, (order.shape[1],), generator=torch.Generator().manual_seed(0))
    marks = marks.to(order.device)
    in_new = marks[order].cumsum(1).gather(1, place)  # sums wrap around: that does not matter
    in_old = marks.cumsum(0)
    last = _next_equal(in_new - in_old)
    if both_ways:
        backwards = _next_equal(in_new + in_old - marks)
        last = torch.where(last < 0, backwards, last)
    return last


def _next_equal(key: Tensor) -> Tensor:
    """For each entry (R, n) the place of the next one that is equal, -1 if it is the last."""
    key, order = key.sort(dim=1, stable=True)
    follower = torch.where(key[:, 1:] == key[:, :-1], order[:, 1:], -1)
    return torch.full_like(order, -1).scatter_(1, order[:, :-1], follower)


def _marks(places: Tensor, where: Tensor) -> Tensor:
    """True (R, n) at the given places, as far as they count."""
    size = places.shape[1]
    flags = torch.zeros(len(places), size + 1, dtype=torch.bool, device=places.device)
    return flags.scatter_(1, torch.where(where, places, size), True)[:, :-1]


def _innermost(begins: Tensor, ends: Tensor, names: Tensor) -> Tensor:
    """The name of the innermost stretch around each edge (R, n - 1), from where stretches begin and end; `names` (R, n)
    are those of the stretches that begin there. Only one does at any place, and every edge is within one."""
    size = begins.shape[1]
    depth = (begins.long().cumsum(1) - ends.long().cumsum(1))[:, :-1]
    places = torch.arange(size - 1, device=begins.device)
    # Of an equal depth, the one that began last.
    by_depth = (depth * size + places).argsort(1)
    began = torch.where(begins[:, :-1], depth * size + places, -1).gather(1, by_depth).cummax(1).values % size
    return names.gather(1, torch.empty_like(by_depth).scatter_(1, by_depth, began))


def _walk(numbers: Tensor, kept: Tensor, order: Tensor, taken: Tensor) -> Tensor:
    """The path (R, n) from the first node to the last one by the edges of the old path that are `kept` (R, n - 1) and
    those `taken` of the new one."""
    last = numbers.shape[1] - 1
    both = _neighbours(numbers, kept, order, taken)
    both[:, 0, 1], both[:, last, 1] = 0, last  # the ends have one: there a walker stays
    # A walker number 2 v + s is at node v and goes on to its neighbour s, which it then leaves for the one further on.
    here, there = numbers.repeat_interleave(2, 1), both.flatten(1)
    turns = both[..., 0].gather(1, there) == here
    stays = there == here
    walker = torch.where(stays, torch.arange(2 * last + 2, device=here.device), 2 * there + turns.long())
    steps = (~stays).long()
    for _ in range(last.bit_length()):  # each time one sees as far again
        steps = steps + steps.gather(1, walker)
        walker = walker.gather(1, walker)
    # Of the two at a node the one that comes to the last node tells how far that is.
    away = steps.where(walker == 2 * last + 1, 0).view(both.shape).sum(2)
    return torch.empty_like(numbers).scatter_(1, last - away, numbers)


def _neighbours(numbers: Tensor, kept: Tensor, order: Tensor, taken: Tensor) -> Tensor:
    """The two neighbours (R, n, 2) of each node by those edges; the ends have one, which comes first."""
    none = torch.zeros_like(kept[:, :1])
    found, nodes = [], []
    for path, mine in ((numbers, kept), (order, taken)):
        for has, by in ((torch.cat([none, mine], 1), 1), (torch.cat([mine, none], 1), -1)):
            found.append(torch.empty_like(has).scatter_(1, path, has))
            nodes.append(torch.empty_like(order).scatter_(1, path, path.roll(by, 1)))
    first_two = torch.stack(found, 2).byte().argsort(dim=2, descending=True, stable=True)[..., :2]
    return torch.stack(nodes, 2).gather(2, first_two)
