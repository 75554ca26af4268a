"""The capacitated vehicle routing problem: routes from and to a depot that serve every customer's demand.

Node 0 is the depot. A solution lists the customers route after route; a flag marks those reached from the depot.
Routes are kept in the order of their centroids' angles around the depot, so that a suffix is a region of the plane
and the route that comes next is predictable.

State resources: the remaining capacity, in the instance's own units, and the number of further routes allowed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from lehd.draws import Draws, uniform
from lehd.errors import InfeasibleError
from lehd.problems.base import Problem, as_list, beyond_all, instance_name, unit_box, whole_number
from lehd.problems.groups import Plan, better_groups, plan_of
from lehd.problems.routes import MARGIN, ends_of_routes, quantities, remaining_capacity, route_places, slack
from lehd.problems.sweep import along_curve, fill_in_order, insert_routes, pack_tightly, shorter_routes
from lehd.types import Instances, PartialSolution, Rollout, Solution, State

NO_LIMIT = 1 << 40  # more routes than anybody drives
NEAREST_SHARES = (0.4, 0.25, 0.25, 0.1)  # near the customer, in its direction, on its way to the depot, near the depot
LINE = 0.7548776662466927  # a slope at which no two nodes of a grid are side by side
DEPOT_STARTS = 0.3  # share of the via-depot decisions that training also shows from the depot


class CVRP(Problem):
    name = "CVRP"
    num_features, num_resources, actions_per_node = 3, 1, 2
    whole_up_to = 200
    longest_in_time: ClassVar = {"cpu": 100, "cuda": 200}
    search_cost = 0.02  # several orders of all nodes
    fixed_in_suffix, first_node = 0, 1  # node 0 is the depot

    def features(self, instances: Instances, box: bool) -> Tensor:
        demands, capacity = quantities(instances)
        position = unit_box(instances.coords) if box else instances.coords
        return torch.cat([position, (demands / capacity[:, None])[..., None]], 2).float()

    def context(self, instances: Instances, state: State) -> Tensor:
        _, capacity = quantities(instances)
        return (state.resources[:, :1] / capacity[state.instance, None]).float()

    def nearest(self, instances: Instances, state: State, count: int) -> Tensor:
        """Most are near the last customer, where direct moves go. The next route may begin elsewhere: in a similar
        direction, along the way back to the depot, or close to the depot."""
        row = state.instance[:, None]
        depot = instances.coords[row, state.destination[:, None]]
        here = instances.coords[row, state.start[:, None]] - depot  # (R, 1, 2)
        there = instances.coords[row, state.available] - depot  # (R, U, 2)
        # Many are tied in what follows: the nearer one wins, and of equally near ones the one further along a line. It
        # must not go by places, which in training stand in the order of the answer.
        near = (there[..., 0] + LINE * there[..., 1]).argsort(dim=1, stable=True)
        apart = beyond_all((there - here).norm(dim=2), state).gather(1, near)
        near = near.gather(1, apart.argsort(dim=1, stable=True))
        there = there.gather(1, near[..., None].expand_as(there))  # places without a node are the last ones still
        out, reach = there.norm(dim=2), here.norm(dim=2)
        turn = 1 - (there * here).sum(2) / (out * reach).clamp(min=1e-12)
        turn = torch.where(reach > 0, turn, out)  # at the depot no direction is more similar than another
        along = ((there * here).sum(2) / reach.square().clamp(min=1e-12)).clamp(0, 1)
        off_the_way = (there - along[..., None] * here).norm(dim=2)
        # A node's place in each order, relative to how many that order may name: the best of these decides.
        places = torch.arange(near.shape[1], device=near.device).expand_as(near)
        best = places / NEAREST_SHARES[0]
        for by, share in zip((turn, off_the_way, out), NEAREST_SHARES[1:], strict=True):
            order = beyond_all(by, state).argsort(dim=1, stable=True)
            best = torch.minimum(best, torch.empty_like(places).scatter(1, order, places) / share)
        return near.gather(1, best.argsort(dim=1, stable=True)[:, :count])

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
        if state.missing is None:
            via = torch.ones_like(direct)
        else:  # where no node is, nothing is needed and nobody goes
            via = ~state.missing
            demand, direct = demand.masked_fill(state.missing, 0), direct & via
        if instances.vehicles is not None:
            # Closing a route wastes what is left in it: allowed as long as the vehicles to come can take the rest.
            capacity = capacity[state.instance, None]
            spare = state.resources[:, 1:] * capacity + remaining - demand.sum(1, keepdim=True)
            another = (state.resources[:, 1:] > 0) & (remaining <= spare)
            via = via & (at_depot | another | ~direct.any(1, keepdim=True))
        return torch.stack([direct, via], 2)

    def spend(self, instances: Instances, state: State, node: Tensor, via_depot: Tensor) -> Tensor:
        demands, capacity = quantities(instances)
        full = torch.where(via_depot, capacity[state.instance], state.resources[:, 0])
        left = full - demands[state.instance, node]
        return torch.stack([left, state.resources[:, 1] - via_depot.to(left)], 1)

    def complete(self, state: State, rollout: Rollout) -> Solution:
        return Solution(rollout.nodes, rollout.via_depot)

    def cheap_start(self, instances: Instances, hurried: bool = False) -> Solution:
        """A sweep: customers by their angle around the depot, a new route whenever the next one does not fit.

        Where that takes more routes than there are vehicles, customers are packed into few routes instead. Each route
        then follows a space-filling curve, or is, unless hurried, put together anew by insertion, if that is shorter.
        """
        away = instances.coords[:, 1:] - instances.coords[:, :1]
        nodes = torch.atan2(away[..., 1], away[..., 0]).argsort(dim=1, stable=True) + 1
        start = fill_in_order(instances, nodes)
        too_many = self.routes_too_many(instances, start)
        if too_many is not None and too_many.any():
            packed = pack_tightly(instances, nodes)
            better = self.objective(instances, *self.path(packed)) < self.objective(instances, *self.path(start))
            start = packed.where(better, start)
        rough = shorter_routes(instances, start, along_curve(instances, start))
        return rough if hurried else shorter_routes(instances, rough, insert_routes(instances, start))

    def randomise(self, instances: Instances, solution: Solution, draws: Draws) -> Solution:
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
        first = (uniform(draws, (size, 1)) * count).long()
        if instances.symmetric:
            reverse = uniform(draws, (size, 1)) < 0.5
            rank = torch.where(reverse, count - 1 - rank, rank)
            turned = uniform(draws, (size, length)) < 0.5
            place = torch.where(turned.gather(1, route), sizes.gather(1, route) - 1 - place, place)
        rank = ((rank + first) % count).gather(1, route)
        order = (rank * length + place).argsort(1)
        return Solution(nodes.gather(1, order), (place == 0).gather(1, order))

    def cut(self, instances: Instances, solution: Solution, length: int, count: int = 1) -> PartialSolution:
        """`length` customers up to the end of a route. The path starts at the customer before them, or at the depot if
        there is none. Those that would begin before the first customer do not count: their offset is negative."""
        nodes, via = solution.nodes, solution.via_depot
        demands, capacity = quantities(instances)
        (size, total), device = nodes.shape, nodes.device
        offset = ends_of_routes(via, length, count) - length  # (B, count)
        instance = torch.arange(size, device=device).repeat_interleave(count)
        row = instance[:, None]  # places are looked up in it: a copy of the solution for each part would be too much
        places = offset.clamp(min=0).view(-1, 1) + torch.arange(length, device=device)  # (R, length)

        customers, flags = nodes[row, places], via[row, places]
        remaining = torch.cat([capacity[:, None], remaining_capacity(demands.gather(1, nodes), via, capacity)], 1)
        remaining = remaining[row, places]
        depot = torch.zeros_like(customers[:, :1])
        kept, start = torch.cat([depot, customers], 1), depot
        if length < total:
            first = places[:, :1]
            # Beside others, one that begins with a route starts at the depot: the customer before it may be moved.
            at_depot = (first == 0) | flags[:, :1] if count > 1 else first == 0
            before = nodes[row, (first - 1).clamp(min=0)]
            kept = torch.cat([depot, torch.where(at_depot, depot, before), customers], 1)
            start = (~at_depot).long()
            full = torch.where(at_depot, capacity[instance, None], remaining[:, :1])
            remaining = torch.cat([full, remaining[:, 1:]], 1)
        routes_left = self._routes_left(instances, via, instance, flags)
        inside = instances.take(kept, instance)
        if instances.vehicles is not None:
            inside = replace(inside, vehicles=routes_left[:, 0])
        renumbered = torch.arange(kept.shape[1] - length, kept.shape[1], device=device).expand(len(kept), -1)
        return PartialSolution(
            instances=inside,
            nodes=kept,
            path=torch.cat([start, renumbered, depot], 1),
            via_depot=flags,
            resources=torch.stack([remaining, routes_left.to(remaining)], 2),
            offset=offset.flatten(),
        )

    @staticmethod
    def _routes_left(instances: Instances, via: Tensor, instance: Tensor, flags: Tensor) -> Tensor:
        """How many further routes (R, S) are allowed before each decision."""
        begun = flags.cumsum(1) - flags.long()  # within the partial solution
        if instances.vehicles is None:
            return NO_LIMIT - begun
        own = flags.sum(1)
        if len(instance) == len(via):  # alone in its solution, it may use what the fleet has left over
            own = own + fleet(instances) - via.sum(1)
        return own[:, None] - begun

    def vary_start(self, instances: Instances, state: State, via_depot: Tensor, draws: Draws) -> State:
        """Where the label goes to the depot next, a vehicle that is there already must do the same. Construction begins
        with such a state, and no partial solution that starts at a customer would ever show it."""
        _, capacity = quantities(instances)
        moved = via_depot & (uniform(draws, via_depot.shape) < DEPOT_STARTS)
        remaining = torch.where(moved, capacity[state.instance].to(state.resources), state.resources[:, 0])
        return replace(
            state,
            start=torch.where(moved, state.destination, state.start),
            resources=torch.stack([remaining, state.resources[:, 1]], 1),
        )

    def best_of_both(self, partial: PartialSolution, rollout: Rollout) -> Rollout:
        inside, start, depot = partial.instances, partial.path[:, :1], partial.path[:, -1:]
        before_first = inside.num_nodes - partial.steps - 1  # customers are numbered from the next one on

        def plan(nodes: Tensor, via_depot: Tensor) -> Plan:
            before, home = torch.cat([start, nodes[:, :-1]], 1), depot.expand_as(nodes)
            direct, back, out = (self._legs(inside, *ends) for ends in ((before, nodes), (before, home), (home, nodes)))
            end = self._legs(inside, nodes[:, -1:], depot)
            return plan_of(nodes - before_first, via_depot, direct, back, out, end)

        old, new = plan(partial.path[:, 1:-1], partial.via_depot), plan(rollout.nodes, rollout.via_depot)
        customers, via_depot = better_groups(old, new)
        best = replace(rollout, nodes=customers + before_first, via_depot=via_depot)
        if inside.vehicles is None:
            return best
        # Cheaper routes from both may be more than there are vehicles.
        pieces, whole = (self.objective_of_part(partial, way.nodes, way.via_depot) for way in (best, rollout))
        return rollout.where(whole < pieces, best)

    def path(self, solution: Solution) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        depot = torch.zeros(len(solution.nodes), dtype=torch.long, device=solution.nodes.device)
        return depot, solution.nodes, solution.via_depot, depot

    def objective(self, instances: Instances, start: Tensor, nodes: Tensor, via: Tensor, end: Tensor) -> Tensor:
        """Cost; a route too many weighs more than any cost that could be saved with it."""
        cost = self.path_cost(instances, start, nodes, via, end)
        if instances.vehicles is None:
            return cost
        limit = instances.vehicles.view(-1, *(1 for _ in cost.shape[1:]))
        too_many = (via.sum(-1) - limit).clamp(min=0)
        customers = torch.arange(1, instances.num_nodes, device=nodes.device).expand(len(instances), -1)
        depot = torch.zeros_like(customers)
        star = (instances.distance(depot, customers) + instances.distance(customers, depot)).sum(1) + 1
        if instances.matrix is not None:  # where detours can be shorter, more than any path costs
            star = star + instances.matrix.amax(2).sum(1)
        return cost + too_many * star.view(limit.shape)

    def routes_too_many(self, instances: Instances, solution: Solution) -> Tensor | None:
        if instances.vehicles is None:
            return None
        return (solution.via_depot.sum(1) - instances.vehicles).clamp(min=0)

    def solution(self, instances: Instances, sequence: Any) -> Solution:
        """From routes, or from one sequence in which 0 stands for the depot."""
        items = as_list(sequence, "a CVRP solution is a list of routes, each a list of customers 1..n")
        routes: list[list[int]] = [[]]
        for item in items:
            if isinstance(item, list):
                routes.append([whole_number(node) for node in item])
            elif whole_number(item) == 0:
                routes.append([])
            else:
                routes[-1].append(whole_number(item))
        pairs = [(node, place == 0) for route in routes for place, node in enumerate(route)]
        self.check_visits(instances, [node for node, _ in pairs])
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
        overloaded = load > (capacity + slack(capacity) / MARGIN)[:, None]
        if overloaded.any():
            row, number = (int(value) for value in overloaded.nonzero()[0])
            node = int(nodes[row][route[row] == number][0])
            raise InfeasibleError(
                f"{instance_name(instances, row)}: the route that begins with node {node} carries "
                f"{load[row, number].item():g}, more than the capacity {capacity[row].item():g}"
            )


def fleet(instances: Instances) -> Tensor:
    """How many routes (B,) are allowed."""
    if instances.vehicles is not None:
        return instances.vehicles.clamp(max=instances.num_nodes)  # nobody needs more, and products stay small
    return torch.full((len(instances),), NO_LIMIT, device=instances.device)
