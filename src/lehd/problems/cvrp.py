"""The capacitated vehicle routing problem: routes from and to a depot that serve every customer's demand.

Node 0 is the depot. A solution lists the customers route after route; a flag marks those reached from the depot.
Routes are kept in the order of their centroids' angles around the depot, so that a suffix is a region of the plane
and the route that comes next is predictable.

State resources: the remaining capacity, in the instance's own units, and the number of further routes allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lehd.errors import InfeasibleError
from lehd.problems.base import Problem, instance_name, unit_box
from lehd.types import Instances, PartialSolution, Rollout, Solution, State

NO_LIMIT = 1 << 40  # more routes than anybody drives
DEPOT_STARTS = 0.3  # share of the via-depot decisions that training also shows from the depot
ROUNDING = 1e-6  # of the capacity: what adding up fractional demands, perhaps given in single precision, may lose


class CVRP(Problem):
    name = "CVRP"
    num_features, num_resources, actions_per_node = 3, 1, 2
    fixed_in_suffix, first_node = 0, 1  # node 0 is the depot

    def features(self, instances: Instances, box: bool) -> Tensor:
        demands, capacity = quantities(instances)
        position = unit_box(instances.coords) if box else instances.coords
        return torch.cat([position, (demands / capacity[:, None])[..., None]], 2).float()

    def context(self, instances: Instances, state: State) -> Tensor:
        _, capacity = quantities(instances)
        return (state.resources[:, :1] / capacity[state.instance, None]).float()

    def initial_state(self, instances: Instances, starts: Tensor | None = None) -> State:
        """Every vehicle is still at the depot; `starts` has no meaning here."""
        _, capacity = quantities(instances)
        size, device = len(instances), instances.device
        depot = torch.zeros(size, dtype=torch.long, device=device)
        return State(
            instance=torch.arange(size, device=device),
            start=depot,
            destination=depot,
            available=torch.arange(1, instances.num_nodes, device=device).expand(size, -1),
            resources=torch.stack([capacity, fleet(instances).to(capacity)], 1),
        )

    def feasible(self, instances: Instances, state: State) -> Tensor:
        demands, capacity = quantities(instances)
        demand = demands[state.instance[:, None], state.available]
        remaining = state.resources[:, :1]
        at_depot = (state.start == state.destination)[:, None]
        direct = (demand <= remaining + slack(capacity)[state.instance, None]) & ~at_depot
        via = torch.ones_like(direct)
        if instances.vehicles is not None:
            # Closing a route wastes what is left in it: allowed as long as the vehicles to come can take the rest.
            capacity = capacity[state.instance, None]
            spare = state.resources[:, 1:] * capacity + remaining - demand.sum(1, keepdim=True)
            via = (at_depot | (remaining <= spare) | ~direct.any(1, keepdim=True)).expand_as(direct)
        return torch.stack([direct, via], 2)

    def spend(self, instances: Instances, state: State, node: Tensor, via_depot: Tensor) -> Tensor:
        demands, capacity = quantities(instances)
        full = torch.where(via_depot, capacity[state.instance], state.resources[:, 0])
        left = full - demands[state.instance, node]
        return torch.stack([left, state.resources[:, 1] - via_depot.to(left)], 1)

    def complete(self, state: State, rollout: Rollout) -> Solution:
        return Solution(rollout.nodes, rollout.via_depot)

    def cheap_start(self, instances: Instances) -> Solution:
        """A sweep: customers by their angle around the depot, a new route whenever the next one does not fit.

        Where that takes more routes than there are vehicles, customers are packed into few routes instead."""
        away = instances.coords[:, 1:] - instances.coords[:, :1]
        nodes = torch.atan2(away[..., 1], away[..., 0]).argsort(dim=1, stable=True) + 1
        sweep = fill_in_order(instances, nodes)
        too_many = self.routes_too_many(instances, sweep)
        if too_many is None or not too_many.any():
            return sweep
        packed = pack_tightly(instances, nodes)
        shorter = self.objective(instances, *self.path(packed)) < self.objective(instances, *self.path(sweep))
        return packed.where(shorter, sweep)

    def randomise(self, instances: Instances, solution: Solution, generator: torch.Generator) -> Solution:
        """Routes by angle, rotated by a random number of routes; if distances are symmetric, the sequence and each
        route are reversed half of the time."""
        nodes, via = solution.nodes, solution.via_depot
        (size, length), device = nodes.shape, nodes.device
        route, place, sizes = route_places(via)
        away = instances.coords - instances.coords[:, :1]
        centre = torch.zeros(size, length, 2, dtype=away.dtype, device=device)
        centre.scatter_add_(1, route[..., None].expand(-1, -1, 2), away.gather(1, nodes[..., None].expand(-1, -1, 2)))
        angle = torch.atan2(centre[..., 1], centre[..., 0]).masked_fill(sizes == 0, torch.inf)
        rank = angle.argsort(dim=1, stable=True).argsort(1)  # (B, routes): each route's place by angle

        count = (sizes > 0).sum(1, keepdim=True)
        first = (torch.rand(size, 1, generator=generator, device=device) * count).long()
        if instances.symmetric:
            reverse = torch.rand(size, 1, generator=generator, device=device) < 0.5
            rank = torch.where(reverse, count - 1 - rank, rank)
            turned = torch.rand(size, length, generator=generator, device=device) < 0.5
            place = torch.where(turned.gather(1, route), sizes.gather(1, route) - 1 - place, place)
        rank = ((rank + first) % count).gather(1, route)
        order = (rank * length + place).argsort(1)
        return Solution(nodes.gather(1, order), (place == 0).gather(1, order))

    def cut(self, instances: Instances, solution: Solution, length: int) -> PartialSolution:
        """The last `length` customers; the path starts at the customer before them, or at the depot if they are all."""
        nodes, via = solution.nodes, solution.via_depot
        demands, capacity = quantities(instances)
        size, first = len(nodes), nodes.shape[1] - length
        depot = torch.zeros_like(nodes[:, :1])
        kept = torch.cat([depot, nodes[:, max(first - 1, 0) :]], 1)
        remaining = torch.cat([capacity[:, None], remaining_capacity(demands.gather(1, nodes), via, capacity)], 1)
        routes_left = fleet(instances)[:, None] - torch.cat([depot, via.cumsum(1)], 1)
        part = slice(first, first + length)
        inside = instances.take(kept)
        if instances.vehicles is not None:
            inside = replace(inside, vehicles=routes_left[:, first])
        return PartialSolution(
            instances=inside,
            nodes=kept,
            path=torch.cat(
                [torch.arange(int(first > 0), kept.shape[1], device=nodes.device).expand(size, -1), depot], 1
            ),
            via_depot=via[:, part],
            resources=torch.stack([remaining[:, part], routes_left[:, part].to(remaining)], 2),
            offset=first,
        )

    def vary_start(self, instances: Instances, state: State, via_depot: Tensor, generator: torch.Generator) -> State:
        """Where the label goes to the depot next, a vehicle that is there already must do the same. Construction begins
        with such a state, and no partial solution that starts at a customer would ever show it."""
        _, capacity = quantities(instances)
        moved = via_depot & (torch.rand(len(via_depot), generator=generator, device=via_depot.device) < DEPOT_STARTS)
        remaining = torch.where(moved, capacity[state.instance].to(state.resources), state.resources[:, 0])
        return replace(
            state,
            start=torch.where(moved, state.destination, state.start),
            resources=torch.stack([remaining, state.resources[:, 1]], 1),
        )

    def path(self, solution: Solution) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        depot = torch.zeros(len(solution.nodes), dtype=torch.long, device=solution.nodes.device)
        return depot, solution.nodes, solution.via_depot, depot

    def objective(self, instances: Instances, start: Tensor, nodes: Tensor, via: Tensor, end: Tensor) -> Tensor:
        """Cost; a route too many weighs more than serving every customer by a vehicle of its own."""
        cost = self.path_cost(instances, start, nodes, via, end)
        if instances.vehicles is None:
            return cost
        limit = instances.vehicles.view(-1, *(1 for _ in cost.shape[1:]))
        too_many = (via.sum(-1) - limit).clamp(min=0)
        customers = torch.arange(1, instances.num_nodes, device=nodes.device).expand(len(instances), -1)
        depot = torch.zeros_like(customers)
        star = (instances.distance(depot, customers) + instances.distance(customers, depot)).sum(1) + 1
        return cost + too_many * star.view(limit.shape)

    def routes_too_many(self, instances: Instances, solution: Solution) -> Tensor | None:
        if instances.vehicles is None:
            return None
        return (solution.via_depot.sum(1) - instances.vehicles).clamp(min=0)

    def solution(self, instances: Instances, sequence: Sequence[int] | Sequence[Sequence[int]]) -> Solution:
        """From routes, or from one sequence in which 0 stands for the depot."""
        try:
            if any(isinstance(item, int) for item in sequence):
                routes: list[list[int]] = [[]]
                for node in map(int, sequence):  # type: ignore[arg-type]
                    if node == 0:
                        routes.append([])
                    else:
                        routes[-1].append(node)
            else:
                routes = [[int(node) for node in route] for route in sequence]  # type: ignore[union-attr]
        except (TypeError, ValueError):
            raise InfeasibleError("a CVRP solution is a list of routes, each a list of customers 1..n") from None
        pairs = [(node, place == 0) for route in routes for place, node in enumerate(route)]
        nodes = torch.tensor([[node for node, _ in pairs]], dtype=torch.long, device=instances.device)
        via = torch.tensor([[via for _, via in pairs]], dtype=torch.bool, device=instances.device)
        solution = Solution(nodes, via)
        self.check(instances, solution)
        return solution

    def check(self, instances: Instances, solution: Solution) -> None:
        super().check(instances, solution)
        demands, capacity = quantities(instances)
        nodes, via = solution.nodes, solution.via_depot
        if nodes.shape[1] == 0:
            return
        if not via[:, 0].all():
            row = int((~via[:, 0]).nonzero()[0])
            raise InfeasibleError(f"{instance_name(instances, row)}: the first route does not start at the depot")
        route, _, _ = route_places(via)
        load = torch.zeros_like(demands[:, 1:]).scatter_add_(1, route, demands.gather(1, nodes))
        overloaded = load > (capacity + slack(capacity))[:, None]
        if overloaded.any():
            row, number = (int(value) for value in overloaded.nonzero()[0])
            node = int(nodes[row][route[row] == number][0])
            raise InfeasibleError(
                f"{instance_name(instances, row)}: the route that begins with node {node} carries "
                f"{load[row, number].item():g}, more than the capacity {capacity[row].item():g}"
            )


def quantities(instances: Instances) -> tuple[Tensor, Tensor]:
    """Demands (B, N) and capacities (B,)."""
    assert instances.demands is not None
    assert instances.capacity is not None
    return instances.demands, instances.capacity


def slack(capacity: Tensor) -> Tensor:
    """What a load may pass the capacity by: nothing for whole numbers."""
    return capacity * ROUNDING if capacity.is_floating_point() else torch.zeros_like(capacity)


def fleet(instances: Instances) -> Tensor:
    """How many routes (B,) are allowed."""
    if instances.vehicles is not None:
        return instances.vehicles
    return torch.full((len(instances),), NO_LIMIT, device=instances.device)


def route_places(via_depot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each entry (B, M) its route's number and its place in the route; for each route number (B, M) its size."""
    index = torch.arange(via_depot.shape[1], device=via_depot.device).expand_as(via_depot)
    route = via_depot.cumsum(1) - 1
    place = index - torch.where(via_depot, index, 0).cummax(1).values
    sizes = torch.zeros_like(route).scatter_add_(1, route, torch.ones_like(route))
    return route, place, sizes


def remaining_capacity(demand: Tensor, via_depot: Tensor, capacity: Tensor) -> Tensor:
    """What is left (B, M) after each entry, for demands (B, M) in visiting order."""
    served = demand.cumsum(1)
    before_route = torch.where(via_depot, served - demand, torch.zeros_like(served)).cummax(1).values
    return capacity[:, None] - (served - before_route)


def fill_in_order(instances: Instances, nodes: Tensor) -> Solution:
    """Serve the customers (B, M) in this order, with a new route whenever the next one does not fit."""
    demands, capacity = quantities(instances)
    demand = demands.gather(1, nodes)
    limit, left = capacity + slack(capacity), torch.zeros_like(capacity)
    via = torch.zeros_like(nodes, dtype=torch.bool)
    for step in range(nodes.shape[1]):
        via[:, step] = (demand[:, step] > left) if step else True
        left = torch.where(via[:, step], limit, left) - demand[:, step]
    return Solution(nodes, via)


def pack_tightly(instances: Instances, order: Tensor) -> Solution:
    """Best fit, largest demand first: few routes, however long. A route's customers keep the given order (B, M)."""
    demands, capacity = quantities(instances)
    limits = (capacity + slack(capacity)).tolist()
    rows = []
    for demand, limit, sequence in zip(demands.tolist(), limits, order.tolist(), strict=True):
        free: list[float] = []
        route_of: dict[int, int] = {}
        for node in sorted(sequence, key=lambda node: -demand[node]):
            fitting = [route for route, left in enumerate(free) if demand[node] <= left]
            route = min(fitting, key=free.__getitem__) if fitting else len(free)
            if not fitting:
                free.append(limit)
            free[route] -= demand[node]
            route_of[node] = route
        rows.append(sorted(sequence, key=route_of.__getitem__))
    nodes = torch.tensor(rows, dtype=torch.long, device=order.device).view(order.shape)
    return fill_in_order(instances, nodes)
