import pytest
import torch

from lehd import distance
from lehd.errors import InfeasibleError
from lehd.problems.curve import hilbert_order
from lehd.problems.tsp import TSP
from lehd.types import Instances
from tests.builders import tsp

SQUARE = torch.tensor([[[0, 0], [3, 0], [3, 4], [0, 4]]], dtype=torch.float64)


def test_cost_closes_the_tour():
    instances = Instances(SQUARE)
    assert TSP().cost(instances, TSP().solution(instances, [0, 1, 2, 3])).tolist() == [14.0]
    assert TSP().cost(instances, TSP().solution(instances, [0, 2, 1, 3])).tolist() == [18.0]


def test_rounding_rules_give_whole_numbers():
    instances = Instances(SQUARE + 0.3 * SQUARE, rule=distance.EUC_2D)
    cost = TSP().cost(instances, TSP().solution(instances, [0, 1, 2, 3]))
    assert cost.dtype == torch.int64
    assert cost.tolist() == [4 + 5 + 4 + 5]


def test_a_single_node_costs_nothing_under_any_rule():
    for rule in (distance.EUCLIDEAN, distance.GEO, distance.ATT):
        instances = Instances(torch.ones(1, 1, 2, dtype=torch.float64), rule=rule)
        assert TSP().cost(instances, TSP().solution(instances, [0])).tolist() == [0]


def test_direction_counts_where_distances_differ():
    matrix = torch.tensor([[[0, 1, 9], [9, 0, 1], [1, 9, 0]]])
    instances = Instances(torch.zeros(1, 3, 2, dtype=torch.float64), rule=distance.EXPLICIT, matrix=matrix)
    assert TSP().cost(instances, TSP().solution(instances, [0, 1, 2])).tolist() == [3]
    assert TSP().cost(instances, TSP().solution(instances, [0, 2, 1])).tolist() == [27]


def test_the_initial_state_leaves_out_the_start():
    state = TSP().initial_state(tsp(2, 5), torch.tensor([0, 3]))
    assert state.available.tolist() == [[1, 2, 3, 4], [0, 1, 2, 4]]
    assert state.start.tolist() == state.destination.tolist() == [0, 3]


def test_three_nodes_are_visited_the_shorter_way():
    matrix = torch.tensor([[[0, 1, 100], [100, 0, 1], [1, 100, 0]]])
    instances = Instances(torch.zeros(1, 3, 2, dtype=torch.float64), rule=distance.EXPLICIT, matrix=matrix)
    settled = TSP().settle(instances, TSP().solution(instances, [0, 2, 1]))
    assert TSP().cost(instances, settled).tolist() == [3]


@pytest.mark.parametrize(
    "tour", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 4], [0, 1, 2, "x"], 7, "0123", [0, 1.5, 2, 3], [0, 1, 2, float("inf")]]
)
def test_bad_tours_are_refused(tour):
    with pytest.raises(InfeasibleError):
        TSP().solution(Instances(SQUARE), tour)


def test_the_curve_visits_a_grid_step_by_step():
    """On a full 8 × 8 grid consecutive points of a Hilbert curve are neighbours: one unit apart."""
    side = torch.arange(8, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    cells = (grid + 0.5) / 8
    order = hilbert_order(cells[None])[0]
    steps = (grid[order][1:] - grid[order][:-1]).abs().sum(1)
    assert steps.tolist() == [1.0] * 63
