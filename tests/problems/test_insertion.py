import itertools

import torch

from lehd.problems import of
from lehd.problems.insertion import insert_all
from lehd.types import Instances
from tests.builders import cvrp, generator, tsp


def path_length(coords, order):
    return sum(float((coords[a] - coords[b]).norm()) for a, b in itertools.pairwise(order))


def test_paths_keep_their_ends_and_visit_everything_once():
    coords = torch.rand(6, 12, 2, dtype=torch.float64, generator=generator(0))
    count = torch.tensor([12, 7, 1, 2, 3, 12])
    for closed in (False, True):
        order = insert_all(Instances(coords), count, closed)
        for row, size in enumerate(count.tolist()):
            assert sorted(order[row, :size].tolist()) == list(range(size))
            assert order[row, size:].tolist() == list(range(size, 12))
            assert order[row, 0] == 0
            if not closed:
                assert order[row, size - 1] == size - 1


def test_each_node_goes_where_it_costs_least():
    """Three nodes between fixed ends: cheapest insertion in any order finds the shortest path here."""
    coords = torch.tensor([[[0.0, 0], [1, 1], [2, 0], [3, 1], [4, 0]]], dtype=torch.float64)
    order = insert_all(Instances(coords), torch.tensor([5]), False)[0].tolist()
    best = min(path_length(coords[0], [0, *inner, 4]) for inner in itertools.permutations([1, 2, 3]))
    assert path_length(coords[0], order) == best


def test_insertion_beats_the_curve_and_the_sweep():
    for instances in (tsp(3, 400), tsp(2, 2300), cvrp(3, 150, capacity=200)):
        problem = of(instances)
        fair, any_one = (problem.cheap_start(instances, hurried) for hurried in (False, True))
        problem.check(instances, fair)
        assert (problem.cost(instances, fair) < 0.92 * problem.cost(instances, any_one)).all()


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
