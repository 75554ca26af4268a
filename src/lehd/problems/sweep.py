"""First plans without the model: customers in a given order or packed tightly, and routes put in a fair order."""

from __future__ import annotations

from bisect import bisect_left, insort

import torch
from torch import Tensor

from lehd.problems.insertion import insert_all
from lehd.problems.routes import quantities, route_places, slack
from lehd.types import Instances, Solution

PADDING = 50  # how much larger than their customers the table of all routes may be


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


def insert_routes(instances: Instances, solution: Solution) -> Solution:
    """The same routes, the customers of each in the order that random insertion gives them."""
    via, nodes = solution.via_depot, solution.nodes
    _, place, sizes = route_places(via)
    longest, routes = int(sizes.max()) if sizes.numel() else 0, int(via.sum())
    if routes * longest > PADDING * nodes.numel():
        return solution
    row = via.flatten().cumsum(0) - 1  # routes of all instances, one after the other
    instance = torch.arange(len(nodes), device=nodes.device).repeat_interleave(nodes.shape[1])
    padded = torch.zeros(routes, longest + 1, dtype=torch.long, device=nodes.device)  # the depot, then customers
    padded[row, place.flatten() + 1] = nodes.flatten()
    count = sizes[sizes > 0] + 1
    owner = torch.zeros(routes, dtype=torch.long, device=nodes.device).scatter(0, row, instance)
    order = insert_all(instances.take(padded, owner), count, True)
    return Solution(padded.gather(1, order)[row, place.flatten() + 1].view(nodes.shape), via)
