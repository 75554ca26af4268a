"""First plans without the model: customers in a given order or packed tightly, and routes put in a fair order."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

import torch
from torch import Tensor

from lehd.problems.base import unit_box
from lehd.problems.curve import hilbert_order
from lehd.problems.insertion import PIECE, insert_all
from lehd.problems.routes import quantities, route_places, slack
from lehd.types import Instances, Solution


def fill_in_order(instances: Instances, nodes: Tensor) -> Solution:
    """Serve the customers (B, M) in this order, with a new route whenever the next one does not fit."""
    demands, capacity = quantities(instances)
    served = demands.gather(1, nodes).cumsum(1)
    limit = (capacity + slack(capacity))[:, None]
    (size, total), device = nodes.shape, nodes.device
    via = torch.zeros(size, total + 1, dtype=torch.bool, device=device)  # the last column is beyond the end
    begin, before = torch.zeros(size, 1, dtype=torch.long, device=device), torch.zeros_like(served[:, :1])
    while int(begin.min()) < total:
        via.scatter_(1, begin, True)
        # The first customer with whom the route would carry too much begins the next one.
        begin = torch.searchsorted(served, before + limit, right=True).clamp(max=total)
        before = served.gather(1, (begin - 1).clamp(min=0))
    return Solution(nodes, via[:, :-1])


def pack_tightly(instances: Instances, order: Tensor) -> Solution:
    """Best fit, largest demand first: few routes, however long. A route's customers keep the given order (B, M)."""
    demands, capacity = quantities(instances)
    limits = (capacity + slack(capacity)).tolist()
    rows = []
    for demand, limit, sequence in zip(demands.tolist(), limits, order.tolist(), strict=True):
        free: list[tuple[float, int]] = []  # what is left in each route, and its number, in this order
        route_of: dict[int, int] = {}
        for node in sorted(sequence, key=lambda node: -demand[node]):
            place = bisect_left(free, (demand[node], -1))
            left, route = free.pop(place) if place < len(free) else (limit, len(free))
            insort(free, (left - demand[node], route))
            route_of[node] = route
        rows.append(sorted(sequence, key=route_of.__getitem__))
    nodes = torch.tensor(rows, dtype=torch.long, device=order.device).view(order.shape)
    return fill_in_order(instances, nodes)


def along_curve(instances: Instances, solution: Solution) -> Solution:
    """The same routes, the customers of each in the order in which a space-filling curve meets them."""
    nodes, via = solution.nodes, solution.via_depot
    route, _, _ = route_places(via)
    met = hilbert_order(unit_box(instances.coords)).argsort(1).gather(1, nodes)
    return Solution(nodes.gather(1, (route * instances.num_nodes + met).argsort(1)), via)


def insert_routes(instances: Instances, solution: Solution) -> Solution:
    """The same routes, the customers of each in the order that random insertion gives them. Routes much longer than
    others follow a space-filling curve, and are inserted in pieces of it between customers that stay."""
    nodes, via = solution.nodes, solution.via_depot
    if not nodes.numel():
        return solution
    route, place, sizes = route_places(via)
    # Each row takes as long as the widest, the square of its width: no more than four times what rows of PIECE take.
    widest = min(PIECE, 2 * math.isqrt(PIECE * nodes.numel() // int(via.sum())))
    pieces = -(-sizes // widest).clamp(max=-1)
    whole, length = (pieces == 1).gather(1, route), (-(-sizes // pieces)).gather(1, route)
    if not whole.all():
        nodes = torch.where(whole, nodes, along_curve(instances, solution).nodes)
    begins = place % length == 0
    row = begins.flatten().cumsum(0) - 1  # pieces of all instances, one after the other
    column = (place % length + whole).flatten()  # a whole route begins at the depot, and comes back to it
    count = torch.bincount(row) + whole[begins]
    padded = torch.zeros(len(count), int(count.max()), dtype=torch.long, device=nodes.device)
    padded[row, column] = nodes.flatten()
    order = insert_all(instances.take(padded, begins.nonzero()[:, 0]), count, closed=whole[begins])
    return Solution(padded.gather(1, order)[row, column].view(nodes.shape), via)


def shorter_routes(instances: Instances, solution: Solution, other: Solution) -> Solution:
    """For each route the shorter one of two orders of its customers."""
    via = solution.via_depot
    last = via.roll(-1, 1)  # before a new route, or at the end: the first customer is reached from the depot
    route, _, _ = route_places(via)

    def lengths(nodes: Tensor) -> Tensor:
        depot = torch.zeros_like(nodes)
        back = instances.distance(nodes, depot)
        legs = instances.distance(torch.where(via, depot, nodes.roll(1, 1)), nodes)
        legs = legs + torch.where(last, back, torch.zeros_like(back))
        return torch.zeros_like(legs).scatter_add_(1, route, legs)

    better = (lengths(other.nodes) < lengths(solution.nodes)).gather(1, route)
    return Solution(torch.where(better, other.nodes, solution.nodes), via)
