"""CVRPLIB texts: the depot's place, the dtype of loads, odd but valid ones, and bad ones with their messages."""

from __future__ import annotations

import pytest
import torch

from lehd.errors import LehdError
from lehd.io import parse_cvrplib, read_text
from tests.io.test_tsplib import with_lines

FARM = """NAME : farm
TYPE : CVRP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 10
NODE_COORD_SECTION
1 0 0
2 3 0
3 3 4
4 0 4
DEMAND_SECTION
1 0
2 7
3 10
4 0
DEPOT_SECTION
1
-1
EOF
"""


def test_fields() -> None:
    instances = parse_cvrplib(FARM, "farm.vrp")
    assert instances.demands is not None
    assert instances.capacity is not None
    assert instances.demands.tolist() == [[0, 7, 10, 0]]
    assert instances.capacity.tolist() == [10]
    assert instances.demands.dtype == instances.capacity.dtype == torch.int64
    assert instances.vehicles is None
    assert instances.names == ("farm",)


def test_fractions_make_all_loads_floats() -> None:
    for changes in ({13: "2 6.5"}, {5: "CAPACITY : 10.5"}):
        instances = parse_cvrplib(with_lines(FARM, changes), "farm.vrp")
        assert instances.demands is not None
        assert instances.capacity is not None
        assert instances.demands.dtype == instances.capacity.dtype == torch.float64


def test_the_depot_comes_first_and_the_others_keep_their_order() -> None:
    changes = {12: "1 5", 14: "3 0", 17: "3"}
    instances = parse_cvrplib(with_lines(FARM, changes), "farm.vrp")
    assert instances.coords.tolist() == [[[3, 4], [0, 0], [3, 0], [0, 4]]]
    assert instances.demands is not None
    assert instances.demands.tolist() == [[0, 5, 7, 0]]
    assert instances.node_names == ("3", "1", "2", "4")


def test_the_depot_of_a_matrix_comes_first() -> None:
    text = """TYPE: CVRP
DIMENSION: 3
CAPACITY: 1
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: FULL_MATRIX
EDGE_WEIGHT_SECTION
0 12 13 21 0 23 31 32 0
DEMAND_SECTION
1 1
2 0
3 1
DEPOT_SECTION
2 -1
"""
    instances = parse_cvrplib(text, "matrix.vrp")
    assert instances.matrix is not None
    assert instances.matrix.tolist() == [[[0, 21, 23], [12, 0, 13], [32, 31, 0]]]


def test_a_depot_alone() -> None:
    text = with_lines(FARM, {3: "DIMENSION : 1", 8: "", 9: "", 10: "", 13: "", 14: "", 15: ""})
    assert parse_cvrplib(text, "farm.vrp").num_nodes == 1


def test_fleet_limit_and_arguments() -> None:
    text = with_lines(FARM, {1: "VEHICLES : 3"})
    stated = parse_cvrplib(text, "farm.vrp").vehicles
    assert stated is not None
    assert stated.tolist() == [3]
    replaced = read_text(text, "farm.vrp", capacity=12, vehicles=5)
    assert replaced.capacity is not None
    assert replaced.vehicles is not None
    assert (replaced.capacity.tolist(), replaced.vehicles.tolist()) == ([12], [5])
    without = parse_cvrplib(with_lines(FARM, {5: ""}), "farm.vrp", capacity=12.5).capacity
    assert without is not None
    assert without.tolist() == [12.5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"capacity": 0}, "farm.vrp: the capacity is 0; expected more than 0"),
        ({"capacity": 9}, "farm.vrp, line 14: demand 10 exceeds the capacity; expected at most 9"),
        ({"capacity": float("nan")}, "farm.vrp: capacity nan; expected a finite number"),
        ({"capacity": "10"}, "farm.vrp: capacity: expected numbers"),
        ({"vehicles": 0}, "farm.vrp: 0 vehicles; expected a whole number from 1 on"),
        ({"vehicles": 1.5}, "farm.vrp: 1.5 vehicles; expected a whole number from 1 on"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(LehdError) as caught:
        read_text(FARM, "farm.vrp", **arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)


BAD = [
    ({5: "CAPACITY : 0"}, 5, "the capacity is 0; expected more than 0"),
    ({5: "CAPACITY : -10"}, 5, "the capacity is -10; expected more than 0"),
    ({5: "CAPACITY : nan"}, 5, "CAPACITY is 'nan'; expected a number"),
    ({5: "CAPACITY : 9"}, 14, "demand 10 exceeds the capacity; expected at most 9"),
    ({5: ""}, 19, "expected CAPACITY before the end"),
    ({12: "1 1"}, 12, "the demand of the depot is 1; expected 0"),
    ({13: "2 -7"}, 13, "demand -7; expected 0 or more"),
    ({13: "2"}, 13, "expected 'id demand' in DEMAND_SECTION, found '2'"),
    ({13: "2 1 1"}, 13, "expected 'id demand' in DEMAND_SECTION, found '2 1 1'"),
    ({13: "2 inf"}, 13, "found 'inf'"),
    ({13: ""}, 15, "DEMAND_SECTION ends after 3 nodes; expected 4"),
    ({13: "3 7"}, 14, "node 3 is there twice"),
    ({13: "5 7"}, 13, "no node 5; expected ids from 1 to 4"),
    ({16: "EOF"}, 16, "expected DEPOT_SECTION before the end"),
    ({11: "", 12: "", 13: "", 14: "", 15: ""}, 19, "expected DEMAND_SECTION before the end"),
    ({17: "1\n2"}, 18, "2 depots; expected one"),
    ({17: "1 1"}, 17, "2 depots; expected one"),
    ({17: ""}, 18, "0 depots; expected one"),
    ({17: "5"}, 17, "no node 5 to be the depot; expected an id from 1 to 4"),
    ({17: "1.5"}, 17, "no node 1.5 to be the depot"),
    ({17: "0"}, 17, "no node 0 to be the depot"),
    ({18: ""}, 17, "DEPOT_SECTION does not end; expected the id of the depot, then -1"),
    ({18: "-1\n2"}, 19, "DEPOT_SECTION goes on after -1; expected its end"),
    ({2: "TYPE : TSP"}, 2, "TYPE 'TSP' is not supported; expected CVRP"),
    ({2: "TYPE : VRPTW"}, 2, "TYPE 'VRPTW' is not supported; expected CVRP"),
    ({1: "DISTANCE : 200"}, 1, "DISTANCE is not supported (a limit on the length of routes)"),
    ({1: "SERVICE_TIME : 0"}, 1, "SERVICE_TIME is not supported"),
    ({1: "VEHICLES : 0"}, 1, "VEHICLES is '0'; expected a whole number"),
    ({1: "VEHICLES : 2.5"}, 1, "VEHICLES is '2.5'; expected a whole number"),
    ({19: "TIME_WINDOW_SECTION"}, 19, "TIME_WINDOW_SECTION is not supported (time windows)"),
]


@pytest.mark.parametrize(("changes", "line", "words"), BAD, ids=[words[:50] for _, _, words in BAD])
def test_bad_farm(changes: dict[int, str], line: int, words: str) -> None:
    with pytest.raises(LehdError) as caught:
        parse_cvrplib(with_lines(FARM, changes), "farm.vrp")
    assert str(caught.value).startswith(f"farm.vrp, line {line}: ")
    assert words in str(caught.value)


def test_lines_are_right_when_the_depot_moves() -> None:
    changes = {12: "1 11", 14: "3 0", 17: "3"}
    with pytest.raises(LehdError, match="line 12: demand 11 exceeds"):
        parse_cvrplib(with_lines(FARM, changes), "farm.vrp")
