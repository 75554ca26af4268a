"""Two plans for the same customers, group of routes by group of routes.

Where some routes of one plan serve the same customers as some routes of the other, the cheaper ones may be driven,
whatever the rest of the plans is: so of two plans a third can be put together that costs as little as either, or less.

Shapes as in lehd.types; S customers of a partial solution. Its route 0 goes on from the starting node, or leads from
there straight to the depot; the others begin at the depot.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lehd.distance import strictly_shorter


class Plan(NamedTuple):
    """A plan by customer, in some order that is the same for all plans; the starting node comes before them."""

    route: Tensor  # (R, 1 + S) the number of its route
    place: Tensor  # (R, 1 + S) where it stands among all customers, from 1; the starting node 0
    via_depot: Tensor  # (R, 1 + S)
    cost: Tensor  # (R, 1 + S) of each route


def plan_of(customers: Tensor, via_depot: Tensor, direct: Tensor, back: Tensor, out: Tensor, end: Tensor) -> Plan:
    """From customers (R, S), numbered from 1, in visiting order, with what it costs to reach each of them: from the one
    before, from there to the depot and from the depot; and from the last one to the depot, `end` (R, 1)."""
    first = torch.zeros_like(customers[:, :1])
    order = torch.cat([first, customers], 1)
    route = torch.cat([first, via_depot.long()], 1).cumsum(1)
    cost = torch.zeros(route.shape, dtype=direct.dtype, device=direct.device)
    cost.scatter_add_(1, route[:, 1:], torch.where(via_depot, out, direct))
    cost.scatter_add_(1, route, torch.cat([torch.where(via_depot, back, torch.zeros_like(back)), end], 1))

    def by_customer(values: Tensor) -> Tensor:
        return torch.empty_like(values).scatter_(1, order, values)

    place = torch.arange(order.shape[1], device=order.device).expand_as(order)
    flags = torch.cat([first.bool(), via_depot], 1)
    return Plan(by_customer(route), by_customer(place), by_customer(flags), cost)


def better_groups(old: Plan, new: Plan) -> tuple[Tensor, Tensor]:
    """The cheapest plan that takes each group of routes from one of two plans: customers (R, S), numbered from 1, in
    visiting order, and whether they are reached via the depot."""
    group = _groups(old.route, new.route)
    better = strictly_shorter(_group_costs(new, group), _group_costs(old, group)).gather(1, group)
    size = group.shape[1]
    route, place = (torch.where(better, theirs, ours) for ours, theirs in zip(old[:2], new[:2]))
    # Route 0 first, then those of the old plan, then those of the new one.
    order = (place + size * torch.where(route > 0, 1 + better.long(), 0)).argsort(1)
    via_depot = torch.where(better, new.via_depot, old.via_depot).gather(1, order)
    return order[:, 1:], via_depot[:, 1:]


def _groups(one: Tensor, other: Tensor) -> Tensor:
    """The smallest customer (R, 1 + S) of each one's group: those who share a route in either plan are in the same."""
    group = torch.arange(one.shape[1], device=one.device).expand_as(one)
    while True:
        smaller = group
        for route in (one, other):
            smaller = torch.empty_like(route).scatter_reduce_(1, route, smaller, "amin", include_self=False)
            smaller = smaller.gather(1, route)
        if torch.equal(smaller, group):
            return group
        group = smaller


def _group_costs(plan: Plan, group: Tensor) -> Tensor:
    """What the routes of each group cost (R, 1 + S), by the group's number."""
    of_route = torch.zeros_like(group).scatter_(1, plan.route, group)  # routes that are not there cost nothing
    return torch.zeros_like(plan.cost).scatter_add_(1, of_route, plan.cost)
