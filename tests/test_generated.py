"""2,000 generated instances of every kind, solved with random weights. Whatever a model says, every solution must be
feasible and its cost right; both are worked out here once more, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import lehd
from lehd.io.arrays import build
from lehd.problems import PROBLEMS
from tests.builders import tiny_model

BATCH = 20  # instances of one size that are solved together
KINDS = ("TSP", "CVRP", "CVRP with a fleet limit", "TSP from a matrix", "CVRP from a matrix")
ROUNDS = 20  # batches of each kind: BATCH · ROUNDS · len(KINDS) instances in all
CORNERS = (1, 2, 3, 4, 5, 200)  # sizes that are always there; all others are random
UNIT = 10  # demands are whole numbers of these; every other batch divides them, so that they become fractions

MODELS = {name: tiny_model(problem, decoder_layers=1) for name, problem in PROBLEMS.items()}


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("kind", KINDS)
def test_every_solution_is_feasible_and_its_cost_right(kind: str, number: int) -> None:
    rng = np.random.default_rng([KINDS.index(kind), number])
    nodes = CORNERS[number] if number < len(CORNERS) else int(rng.integers(1, 201))
    options: dict = {"rrc": int(rng.integers(4)), "seed": number} | ({}, {"beam": 3}, {"sample": 3})[number % 3]
    options |= {"parallel": bool(rng.integers(2)), "longest": int(rng.choice([8, 200]))}
    options["nearest"] = (None, 5)[number // 2 % 2]
    coords = np.stack([draw_positions(rng, nodes) for _ in range(BATCH)])
    matrices = np.stack([draw_matrix(rng, each) for each in coords])

    geometry: dict = {"matrix": matrices} if "matrix" in kind else {}
    if kind.startswith("TSP"):
        instances = build(None if geometry else coords, "generated", **geometry)
        for i, result in enumerate(lehd.solve(instances, model=MODELS["TSP"], **options)):
            check_tour(result.tour, nodes)
            check_cost(result, [*result.tour, result.tour[0]], distance_of(kind, coords[i], matrices[i]))
        return

    demands, capacities = zip(*(draw_loads(rng, nodes) for _ in range(BATCH)), strict=True)
    least = [max(1, -(-sum(each) // capacity)) for each, capacity in zip(demands, capacities, strict=True)]
    # Filling routes one after another never takes more than twice the least: such a limit must be met.
    easy = [bool(rng.integers(2)) for _ in range(BATCH)]
    limits = [2 * few if loose else few for few, loose in zip(least, easy, strict=True)]
    unit = UNIT if number % 2 else 1
    instances = build(
        None if geometry else coords,
        "generated",
        **geometry,
        demands=np.array(demands) / unit,
        capacity=np.array(capacities) / unit,
        vehicles=None if kind == "CVRP" else np.array(limits),
    )
    for i, result in enumerate(lehd.solve(instances, model=MODELS["CVRP"], **options)):
        check_routes(result.routes, demands[i], capacities[i])
        stops = [0, *(node for route in result.routes for node in [*route, 0])]
        check_cost(result, stops, distance_of(kind, coords[i], matrices[i]))
        too_many = 0 if kind == "CVRP" else max(0, len(result.routes) - limits[i])
        assert not (too_many and easy[i])
        said = [note for note in result.notes if "too many" in note]
        assert (str(too_many) in " ".join(said)) if too_many else not said


def draw_positions(rng: np.random.Generator, nodes: int) -> np.ndarray:
    """(n, 2): uniform, clustered, duplicated, collinear or all equal, at some scale."""
    points = rng.random((nodes, 2))
    family = rng.choice(["uniform", "clustered", "duplicated", "collinear", "equal"])
    if family == "clustered":
        points = rng.random((3, 2))[rng.integers(3, size=nodes)] + rng.normal(scale=0.02, size=(nodes, 2))
    elif family == "duplicated":
        points = points[rng.integers(-(-nodes // 4), size=nodes)]
    elif family == "collinear":
        points = points[:, :1] * rng.normal(size=2)
    elif family == "equal":
        points = points[:1].repeat(nodes, 0)
    return points * 10.0 ** rng.choice([0, 0, 3, 9, -9])


def draw_matrix(rng: np.random.Generator, points: np.ndarray) -> np.ndarray:
    """(n, n), from row to column: wind, tolls that no triangle inequality knows, or noise; often whole numbers."""
    straight = np.linalg.norm(points[:, None] - points[None], axis=2)
    scale = straight.max() or 1.0
    matrix = straight / scale + rng.choice([0.0, 0.1, 5.0]) * rng.random(straight.shape)
    if rng.integers(4) == 0:  # customers are close to the depot and far from each other
        matrix[0], matrix[:, 0] = matrix[0] / 100, matrix[:, 0] / 100
    return np.round(1000 * matrix) if rng.integers(2) else matrix


def draw_loads(rng: np.random.Generator, nodes: int) -> tuple[list[int], int]:
    """Demands and a capacity, tight or loose; in some instances nobody wants anything, in others some do not."""
    demands = rng.integers(rng.integers(2), 10, nodes)
    demands[0] = 0
    largest, total = max(1, int(demands.max())), max(1, int(demands.sum()))
    capacity = int(rng.choice([largest, max(largest, total // 5), max(largest, 30), total]))
    if rng.integers(10) == 0:
        demands[:] = 0
    return demands.tolist(), capacity


def distance_of(kind: str, points: np.ndarray, matrix: np.ndarray) -> Callable[[int, int], float]:
    if "matrix" not in kind:
        positions = points.tolist()
        return lambda a, b: math.dist(positions[a], positions[b])
    rows = matrix.tolist()
    return lambda a, b: rows[a][b] if a != b else 0.0  # the diagonal is nobody's way


def check_tour(tour: list[int], nodes: int) -> None:
    assert sorted(tour) == list(range(nodes))


def check_routes(routes: list[list[int]], demands: list[int], capacity: int) -> None:
    assert sorted(node for route in routes for node in route) == list(range(1, len(demands)))
    for route in routes:
        assert route
        assert sum(demands[node] for node in route) <= capacity


def check_cost(result: lehd.Result, stops: list[int], distance: Callable[[int, int], float]) -> None:
    expected = math.fsum(distance(a, b) for a, b in pairwise(stops))
    assert math.isclose(result.cost, expected, rel_tol=1e-9)
    assert math.isclose(result.history[-1].cost, expected, rel_tol=1e-9)
