"""Arrays as instances: shapes, dtypes, and the checks that every source shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lehd.errors import LehdError
from lehd.io import coordinate_instances, matrix_instances

POINTS = [[0.0, 0.0], [1.0, 0.0], [0.5, 2.0]]
MATRIX = [[0, 1, 2], [1, 0, 3], [2, 3, 0]]


@pytest.mark.parametrize(
    "coords", [POINTS, np.array(POINTS, dtype=np.float32), torch.tensor(POINTS), torch.tensor([POINTS])]
)
def test_coordinates_of_any_kind(coords: Any) -> None:
    instances = coordinate_instances(coords)
    assert instances.coords.tolist() == [POINTS]
    assert instances.coords.dtype == torch.float64
    assert instances.rule.name == "euclidean"
    assert instances.names == ("instance",)


def test_the_callers_array_is_not_shared() -> None:
    coords = np.array(POINTS)
    instances = coordinate_instances(coords)
    coords[0, 0] = 9
    assert instances.coords[0, 0, 0] == 0


@pytest.mark.parametrize("demands", [[0, 1, 2], [[0, 1, 2], [0, 1, 2]]])
@pytest.mark.parametrize("capacity", [3, [3, 3], np.int16(3)])
def test_a_batch(demands: Any, capacity: Any) -> None:
    instances = coordinate_instances([POINTS, POINTS], demands, capacity, vehicles=[1, 2], name="batch")
    assert len(instances) == 2
    assert instances.demands is not None
    assert instances.capacity is not None
    assert instances.vehicles is not None
    assert instances.demands.tolist() == [[0, 1, 2]] * 2
    assert instances.capacity.tolist() == [3, 3]
    assert instances.vehicles.tolist() == [1, 2]
    assert instances.names == ("batch-1", "batch-2")


def test_whole_numbers_are_int64_and_others_float64() -> None:
    whole = coordinate_instances(POINTS, [0.0, 1.0, 2.0], 3.0)
    broken = coordinate_instances(POINTS, [0, 1, 2], 2.5)
    assert whole.demands is not None
    assert broken.demands is not None
    assert whole.demands.dtype == torch.int64
    assert broken.demands.dtype == torch.float64
    assert matrix_instances(MATRIX).matrix.dtype == torch.int64  # type: ignore[union-attr]
    assert matrix_instances(np.array(MATRIX) / 2).matrix.dtype == torch.float64  # type: ignore[union-attr]


@pytest.mark.parametrize("diagonal", [0, 7, -1, np.inf, np.nan])
def test_the_diagonal_does_not_matter(diagonal: float) -> None:
    matrix = np.array(MATRIX, dtype=float)
    np.fill_diagonal(matrix, diagonal)
    instances = matrix_instances(matrix, demands=[0, 1, 1], capacity=1)
    assert instances.matrix is not None
    assert instances.matrix.tolist() == [MATRIX]
    assert instances.rule.name == "EXPLICIT"


def test_a_matrix_with_coordinates_keeps_both() -> None:
    instances = matrix_instances(MATRIX, coords=POINTS)
    assert instances.coords.tolist() == [POINTS]
    assert instances.distance(torch.tensor([0]), torch.tensor([2])).tolist() == [2]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_small(n: int) -> None:
    assert coordinate_instances(np.zeros((n, 2))).num_nodes == n
    assert matrix_instances(np.zeros((n, n))).coords.tolist() == [[[0, 0]] * n]


BAD_COORDINATES: list[tuple[dict[str, Any], str]] = [
    ({"coords": np.zeros((3, 3))}, "coordinates have the shape (3, 3); expected (n, 2) or (B, n, 2)"),
    ({"coords": np.zeros(2)}, "coordinates have the shape (2,)"),
    ({"coords": np.zeros((0, 2))}, "there is no node; expected at least one"),
    ({"coords": np.zeros((0, 4, 2))}, "there is no node"),
    ({"coords": []}, "coordinates have the shape (0,)"),
    ({"coords": [["a", "b"]]}, "coordinates: expected numbers"),
    ({"coords": [[1, 2], [3]]}, "coordinates: expected an array of numbers"),
    ({"coords": [[10**400, 1.5]]}, "coordinates: expected"),
    ({"coords": [[True, False]]}, "coordinates: expected numbers, found bool"),
    ({"coords": [[1j, 0]]}, "coordinates: expected numbers, found complex128"),
    ({"coords": None}, "coordinates: expected numbers, found object"),
    ({"coords": [[0, 0], [np.nan, 0]]}, "node 1: coordinate nan; expected a finite number"),
    ({"coords": [[0, 0], [0, np.inf]]}, "node 1: coordinate inf; expected a finite number"),
    ({"coords": [POINTS, [[0, 0], [0, 0], [0, 1e16]]]}, "instance 1, node 2: coordinate 1e+16; expected"),
    ({"capacity": 3}, "capacity given without demands"),
    ({"vehicles": 3}, "vehicles given without demands"),
    ({"demands": [0, 1, 2]}, "demands without a capacity; expected capacity="),
    ({"demands": [0, 1], "capacity": 3}, "demand of shape (2,); expected (3,) or (1, 3)"),
    ({"demands": [0, 1, 2], "capacity": [3, 3]}, "capacity of shape (2,); expected () or (1,)"),
    ({"demands": [0, -1, 2], "capacity": 3}, "node 1: demand -1; expected 0 or more"),
    ({"demands": [0, 1, np.nan], "capacity": 3}, "node 2: demand nan; expected a finite number"),
    ({"demands": [1, 1, 2], "capacity": 3}, "node 0: the demand of the depot is 1; expected 0"),
    ({"demands": [0, 1, 4], "capacity": 3}, "node 2: demand 4 exceeds the capacity; expected at most 3"),
    ({"demands": [0, 0, 0], "capacity": 0}, "the capacity is 0; expected more than 0"),
    ({"demands": [0, 1, 2], "capacity": np.inf}, "capacity inf; expected a finite number"),
    ({"demands": [0, 1, 2], "capacity": 3, "vehicles": 0}, "0 vehicles; expected a whole number from 1 on"),
    ({"demands": [0, 1, 2], "capacity": 3, "vehicles": 1.5}, "1.5 vehicles; expected a whole number"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD_COORDINATES, ids=[words[:50] for _, words in BAD_COORDINATES])
def test_bad_coordinates(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(LehdError) as caught:
        coordinate_instances(**({"coords": POINTS} | arguments))
    assert words in str(caught.value)


BAD_MATRICES: list[tuple[dict[str, Any], str]] = [
    ({"matrix": np.zeros((2, 3))}, "the matrix has the shape (2, 3); expected (n, n)"),
    ({"matrix": np.zeros((0, 0))}, "there is no node"),
    ({"matrix": [[0, -1], [1, 0]]}, "node 0, node 1: distance -1; expected 0 or more"),
    ({"matrix": [[0, 1], [np.nan, 0]]}, "node 1, node 0: distance nan; expected a finite number"),
    ({"matrix": [[0, np.inf], [1, 0]]}, "node 0, node 1: distance inf; expected a finite number"),
    ({"matrix": [[0, 1e300], [1, 0]]}, "distance 1e+300; expected a finite number of at most 1e+15"),
    ({"coords": [[0, 0]]}, "coordinates have the shape (1, 2); expected (3, 2)"),
    ({"coords": [[0, 0], [0, 0], [0, np.nan]]}, "node 2: coordinate nan"),
    ({"demands": [0, 1, 5], "capacity": 3}, "node 2: demand 5 exceeds the capacity"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD_MATRICES, ids=[words[:50] for _, words in BAD_MATRICES])
def test_bad_matrices(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(LehdError) as caught:
        matrix_instances(**({"matrix": MATRIX} | arguments))
    assert words in str(caught.value)
