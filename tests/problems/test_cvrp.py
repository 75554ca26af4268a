import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lehd import distance
from lehd.errors import InfeasibleError
from lehd.problems.cvrp import CVRP
from lehd.problems.routes import remaining_capacity
from lehd.problems.sweep import fill_in_order
from lehd.types import Instances, Solution
from tests.builders import cvrp, generator, random_solution

# A depot with two customers to the east and two to the north.
CROSS = Instances(
    torch.tensor([[[0, 0], [1, 0], [2, 0], [0, 1], [0, 2]]], dtype=torch.float64),
    demands=torch.tensor([[0, 1, 1, 1, 1]]),
    capacity=torch.tensor([2]),
)


def test_cost_counts_every_way_to_the_depot():
    assert CVRP().cost(CROSS, CVRP().solution(CROSS, [[1, 2], [4, 3]])).tolist() == [8.0]
    assert CVRP().cost(CROSS, CVRP().solution(CROSS, [[1], [2], [3], [4]])).tolist() == [12.0]


def test_routes_can_be_given_in_many_forms():
    routes = CVRP().solution(CROSS, [[1, 2], [4, 3]])
    flat = [0, 1, 2, 0, 4, 3, 0]
    for other in (flat, np.array(flat), torch.tensor(flat), ((1, 2), (4, 3)), [np.array([1, 2]), [np.int64(4), 3]]):
        again = CVRP().solution(CROSS, other)
        assert torch.equal(routes.nodes, again.nodes)
        assert torch.equal(routes.via_depot, again.via_depot)


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ([[1, 2, 3], [4]], "begins with node 1 carries 3, more than the capacity 2"),
        ([[1, 2], [4]], "node 3 is not visited"),
        ([[1, 2], [3, 9]], "node 4 is not visited"),
        ([[1, 2], [4, 3, 9]], "no node 9"),
        ([[1, 2], [4, 4]], "node 3 is not visited"),
        ([[1, 2], [3, "four"]], "whole number"),
        ([[1, 2], [3.0, 4]], "whole number"),
        ("1234", "list of routes"),
    ],
)
def test_bad_routes_are_refused(routes, message):
    with pytest.raises(InfeasibleError, match=message):
        CVRP().solution(CROSS, routes)


def test_the_first_customer_must_come_from_the_depot():
    good = CVRP().solution(CROSS, [[1, 2], [4, 3]])
    with pytest.raises(InfeasibleError, match="first route"):
        CVRP().check(CROSS, Solution(good.nodes, torch.zeros_like(good.via_depot)))


def test_the_depot_distance_to_itself_is_not_driven():
    """GEO gives a point the distance 1 to itself."""
    instances = replace(CROSS, rule=distance.GEO)
    solution = CVRP().solution(instances, [[1, 2], [4, 3]])
    legs = [(0, 1), (1, 2), (2, 0), (0, 4), (4, 3), (3, 0)]
    expected = sum(int(instances.distance(torch.tensor([[a]]), torch.tensor([[b]]))) for a, b in legs)
    assert CVRP().cost(instances, solution).tolist() == [expected]


@given(st.integers(0, 10_000), st.integers(1, 40))
@settings(max_examples=40)
def test_remaining_capacity_in_closed_form(seed, customers):
    instances = cvrp(2, customers, seed)
    solution = random_solution(instances, seed)
    demand = instances.demands.gather(1, solution.nodes)
    closed = remaining_capacity(demand, solution.via_depot, instances.capacity)
    for row in range(2):
        left = 0
        for place in range(customers):
            left = (20 if solution.via_depot[row, place] else left) - int(demand[row, place])
            assert closed[row, place] == left


def test_only_what_fits_can_be_reached_directly():
    instances = replace(CROSS, demands=torch.tensor([[0, 1, 1, 2, 0]]))
    state = CVRP().initial_state(instances)
    direct, via = CVRP().feasible(instances, state).unbind(2)
    assert not direct.any()  # a vehicle at the depot leaves from it
    assert via.all()
    state = CVRP().advance(instances, state, torch.tensor([0]), torch.tensor([True]))
    assert state.resources[0, 0] == 1
    direct, via = CVRP().feasible(instances, state).unbind(2)
    assert dict(zip(state.available[0].tolist(), direct[0].tolist())) == {2: True, 3: False, 4: True}


def test_routes_follow_each_other_around_the_depot():
    instances = cvrp(4, 30, seed=3)
    solution = CVRP().randomise(instances, random_solution(instances, 3), generator(1))
    for row in range(4):
        cuts = [*solution.via_depot[row].nonzero()[:, 0].tolist(), 30]
        away = instances.coords[row] - instances.coords[row, 0]
        centres = [away[solution.nodes[row, a:b]].mean(0) for a, b in itertools.pairwise(cuts)]
        angles = torch.tensor([torch.atan2(c[1], c[0]) for c in centres])
        turns = (angles.roll(-1) - angles) % (2 * torch.pi)
        # Once around, one way or the other.
        assert min(float(turns.sum()), float((2 * torch.pi - turns).sum())) == pytest.approx(2 * torch.pi, abs=1e-4)


def test_a_fleet_limit_outweighs_cost():
    limited = replace(CROSS, vehicles=torch.tensor([2]))
    two, four = (CVRP().solution(limited, routes) for routes in ([[1, 3], [2, 4]], [[1], [2], [3], [4]]))
    value = [CVRP().objective(limited, *CVRP().path(each)) for each in (two, four)]
    assert value[0] == CVRP().cost(limited, two)
    assert value[1] > CVRP().cost(limited, four) + 12
    assert CVRP().routes_too_many(limited, four).tolist() == [2]


def test_a_fleet_limit_outweighs_cost_where_detours_are_short():
    """By way of the depot everything is near, directly everything is far: still one route, if one is all there is."""
    matrix = torch.full((1, 5, 5), 500)
    matrix[:, 0], matrix[:, :, 0] = 1, 1
    limited = replace(CROSS, matrix=matrix, capacity=torch.tensor([4]), vehicles=torch.tensor([1]))
    one, four = (CVRP().solution(limited, routes) for routes in ([[1, 2, 3, 4]], [[1], [2], [3], [4]]))
    value = [CVRP().objective(limited, *CVRP().path(each)) for each in (one, four)]
    assert value[0] < value[1]


def test_fractional_loads_on_the_border_pass_their_own_check():
    demands = torch.tensor([[0, 0.358974717948718, 0.16025657051282052, 0.48076971153846154, 0]]).double()
    instances = replace(CROSS, demands=demands, capacity=torch.ones(1).double(), vehicles=torch.tensor([1]))
    CVRP().check(instances, CVRP().cheap_start(instances))


@pytest.mark.parametrize("batch", [1, 7])
def test_filling_routes_in_order(batch):
    instances = cvrp(batch, 40, seed=5)
    order = random_solution(instances, 2).nodes
    filled = fill_in_order(instances, order)
    CVRP().check(instances, filled)
    for row in range(batch):
        left = -1
        for node, via in zip(order[row].tolist(), filled.via_depot[row].tolist()):
            demand = int(instances.demands[row, node])
            assert via == (left < demand)  # a new route if, and only if, the customer does not fit
            left = (20 if via else left) - demand


def test_with_few_vehicles_no_capacity_may_be_wasted():
    """Demands 3, 3, 2, 2 in two vehicles of 5: after a 3, going back to the depot would waste what the rest needs."""
    instances = replace(
        CROSS, demands=torch.tensor([[0, 3, 3, 2, 2]]), capacity=torch.tensor([5]), vehicles=torch.tensor([2])
    )
    state = CVRP().initial_state(instances)
    state = CVRP().advance(instances, state, torch.tensor([0]), torch.tensor([True]))
    direct, via = CVRP().feasible(instances, state).unbind(2)
    assert dict(zip(state.available[0].tolist(), direct[0].tolist())) == {2: False, 3: True, 4: True}
    assert not via.any()


def test_a_tight_fleet_gets_a_packed_start():
    """The sweep needs three routes for 2, 3, 2, 3 around the clock; packing finds two."""
    coords = torch.tensor([[[0, 0], [1, 0.1], [0, 1], [-1, 0.1], [0, -1]]], dtype=torch.float64)
    instances = Instances(
        coords,
        demands=torch.tensor([[0, 3, 3, 2, 2]]),
        capacity=torch.tensor([5]),
        vehicles=torch.tensor([2]),
    )
    start = CVRP().cheap_start(instances)
    CVRP().check(instances, start)
    assert int(start.via_depot.sum()) == 2


def test_fractional_demands_may_fill_a_vehicle():
    """Ten times a tenth is not exactly one in floating point."""
    demands = torch.cat([torch.zeros(1, 1), torch.full((1, 10), 0.1)], 1).double()
    instances = Instances(
        torch.rand(1, 11, 2, dtype=torch.float64, generator=generator(0)),
        demands=demands,
        capacity=torch.ones(1, dtype=torch.float64),
    )
    assert CVRP().solution(instances, [list(range(1, 11))]).via_depot.sum() == 1
    assert CVRP().cheap_start(instances).via_depot.sum() == 1


def test_training_also_starts_at_the_depot():
    instances = cvrp(200, 12, seed=1)
    partial = CVRP().cut(instances, random_solution(instances, 1), 6)
    state, flag = partial.state(), partial.via_depot[:, 0]
    varied = CVRP().vary_start(partial.instances, state, flag, generator(0))
    moved = varied.start != state.start
    assert 0 < moved.sum() < flag.sum()
    assert flag[moved].all()
    assert (varied.start[moved] == 0).all()
    assert (varied.resources[moved, 0] == 20).all()
    assert torch.equal(varied.resources[~moved], state.resources[~moved])
