import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lehd.problems import of, sweep
from lehd.problems.insertion import insert_all
from lehd.problems.routes import route_places
from lehd.problems.sweep import fill_in_order, insert_routes
from lehd.types import Instances, Solution
from tests.builders import cvrp, generator, tsp


def path_length(coords, order):
    return sum(float((coords[a] - coords[b]).norm()) for a, b in itertools.pairwise(order))


def test_paths_keep_their_ends_and_visit_everything_once():
    coords = torch.rand(6, 12, 2, dtype=torch.float64, generator=generator(0))
    count = torch.tensor([12, 7, 1, 2, 3, 12])
    for closed in (False, True):
        order = insert_all(Instances(coords), count, torch.full((6,), closed))
        for row, size in enumerate(count.tolist()):
            assert sorted(order[row, :size].tolist()) == list(range(size))
            assert order[row, size:].tolist() == list(range(size, 12))
            assert order[row, 0] == 0
            if not closed:
                assert order[row, size - 1] == size - 1


def test_each_node_goes_where_it_costs_least():
    """Three nodes between fixed ends: cheapest insertion in any order finds the shortest path here."""
    coords = torch.tensor([[[0.0, 0], [1, 1], [2, 0], [3, 1], [4, 0]]], dtype=torch.float64)
    order = insert_all(Instances(coords), torch.tensor([5]), torch.tensor([False]))[0].tolist()
    best = min(path_length(coords[0], [0, *inner, 4]) for inner in itertools.permutations([1, 2, 3]))
    assert path_length(coords[0], order) == best


def test_closed_and_open_paths_together():
    coords = torch.rand(1, 9, 2, dtype=torch.float64, generator=generator(1)).expand(2, -1, -1)
    there, back = insert_all(Instances(coords), torch.tensor([9, 9]), torch.tensor([False, True])).tolist()
    assert there[-1] == 8
    assert path_length(coords[0], [*back, 0]) <= path_length(coords[0], [*there, 0])


def test_insertion_beats_the_curve_and_the_sweep():
    for instances in (tsp(3, 400), tsp(2, 2300), cvrp(3, 150, capacity=200)):
        problem = of(instances)
        fair, any_one = (problem.cheap_start(instances, hurried) for hurried in (False, True))
        problem.check(instances, fair)
        assert (problem.cost(instances, fair) < 0.92 * problem.cost(instances, any_one)).all()


def swept(instances):
    """Customers by angle, as routes: what cheap starts begin with."""
    away = instances.coords[:, 1:] - instances.coords[:, :1]
    return fill_in_order(instances, torch.atan2(away[..., 1], away[..., 0]).argsort(dim=1, stable=True) + 1)


def customers_of_routes(solution):
    routes = route_places(solution.via_depot)[0]
    return [
        {frozenset(nodes[route == number].tolist()) for number in route.unique()}
        for nodes, route in zip(solution.nodes, routes, strict=True)
    ]


@given(st.integers(1, 60), st.sampled_from([10, 40, 1000]), st.integers(0, 1000), st.booleans())
@settings(max_examples=40)
def test_every_step_of_a_cheap_start_makes_it_shorter(customers, capacity, seed, one_way):
    instances = cvrp(2, customers, seed, capacity)
    if one_way:
        nodes = customers + 1
        matrix = torch.rand(2, nodes, nodes, dtype=torch.float64, generator=generator(seed))
        instances = replace(instances, matrix=matrix)
    problem, first = of(instances), swept(instances)
    hurried, fair = problem.cheap_start(instances, hurried=True), problem.cheap_start(instances)
    inserted = insert_routes(instances, first)
    swept_cost, inserted_cost, hurried_cost, fair_cost = (
        problem.cost(instances, each) for each in (first, inserted, hurried, fair)
    )
    assert (hurried_cost <= swept_cost + 1e-9).all()
    assert (fair_cost <= torch.minimum(hurried_cost, inserted_cost) + 1e-9).all()
    for each in (hurried, fair, inserted):
        problem.check(instances, each)
        assert customers_of_routes(each) == customers_of_routes(first)


def test_a_long_route_follows_the_curve():
    """The sweep alone would go from the depot to the border and back with every other customer."""
    instances = cvrp(1, 3000, capacity=10**6)
    problem = of(instances)
    hurried, fair = problem.cheap_start(instances, hurried=True), problem.cheap_start(instances)
    costs = [float(problem.cost(instances, each)) for each in (fair, hurried, swept(instances))]
    assert costs[0] < 0.95 * costs[1]
    assert costs[1] < 0.1 * costs[2]


@pytest.mark.parametrize("long_route", [5, 40, 600, 1200])
def test_insertion_takes_a_time_that_grows_with_the_customers_alone(long_route, monkeypatch):
    """One route among others of 5, all put together in one table: rows times the square of their width."""
    monkeypatch.setattr(sweep, "PIECE", 50)
    customers, tables = 1200, []
    instances = cvrp(1, customers, capacity=10**6)
    via = torch.zeros(1, customers, dtype=torch.bool)
    via[0, 0], via[0, long_route::5] = True, True
    start = Solution(torch.arange(1, customers + 1)[None], via)

    def watched(parts, count, closed):
        tables.append(parts.coords.shape)
        return insert_all(parts, count, closed)

    monkeypatch.setattr(sweep, "insert_all", watched)
    inserted = insert_routes(instances, start)
    rows, width, _ = tables[0]
    assert width <= 51
    assert rows * (width - 1) ** 2 <= 5 * 50 * customers
    assert customers_of_routes(inserted) == customers_of_routes(start)
    assert torch.equal(inserted.via_depot, via)
    assert of(instances).cost(instances, inserted) < 0.9 * of(instances).cost(instances, start)


def test_a_matrix_decides_where_there_is_one():
    """One way around costs nothing, every other step much: insertion finds it in spite of what the plane says."""
    size = 7
    matrix = torch.full((1, size, size), 100)
    ring = torch.arange(size)
    matrix[0, ring, (ring + 1) % size] = 0
    instances = tsp(1, size, matrix=matrix)
    problem = of(instances)
    assert problem.cost(instances, problem.cheap_start(instances)) <= 300
    assert problem.cost(instances, problem.cheap_start(instances, hurried=True)) > 300
