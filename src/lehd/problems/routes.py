"""Arithmetic on routes: what they carry, where they begin and end. Shapes as in lehd.types."""

from __future__ import annotations

import torch
from torch import Tensor

from lehd.types import Instances

ROUNDING = 1e-6  # of the capacity: what fractional demands, perhaps given in single precision, may add up to beyond it
MARGIN = 0.1  # of that: what construction uses, so that its loads pass the check however they are added up


def quantities(instances: Instances) -> tuple[Tensor, Tensor]:
    """Demands (B, N) and capacities (B,)."""
    assert instances.demands is not None
    assert instances.capacity is not None
    return instances.demands, instances.capacity


def slack(capacity: Tensor) -> Tensor:
    """What a load may pass the capacity by: nothing for whole numbers."""
    return capacity * (MARGIN * ROUNDING) if capacity.is_floating_point() else torch.zeros_like(capacity)


def route_places(via_depot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each entry (B, M) its route's number and its place in the route; for each route number (B, M) its size."""
    index = torch.arange(via_depot.shape[1], device=via_depot.device).expand_as(via_depot)
    route = via_depot.cumsum(1) - 1
    place = index - torch.where(via_depot, index, 0).cummax(1).values
    sizes = torch.zeros_like(route).scatter_add_(1, route, torch.ones_like(route))
    return route, place, sizes


def ends_of_routes(via_depot: Tensor, length: int, count: int) -> Tensor:
    """Where (B, count) disjoint stretches of `length` entries, each up to the end of a route, end: from the back on."""
    size, total = via_depot.shape
    index = torch.arange(total, device=via_depot.device).expand_as(via_depot)
    route_begin = torch.where(via_depot, index, 0).cummax(1).values
    ends = [torch.full((size, 1), total, device=via_depot.device)]
    while len(ends) < count:
        begin = ends[-1] - length
        # The route in which a stretch begins stays as it is up to there; the next stretch ends before that route.
        ends.append(torch.where(begin > 0, route_begin.gather(1, begin.clamp(0, total - 1)), begin))
    return torch.cat(ends, 1)


def remaining_capacity(demand: Tensor, via_depot: Tensor, capacity: Tensor) -> Tensor:
    """What is left (B, M) after each entry, for demands (B, M) in visiting order."""
    served = demand.cumsum(1)
    before_route = torch.where(via_depot, served - demand, torch.zeros_like(served)).cummax(1).values
    return capacity[:, None] - (served - before_route)
