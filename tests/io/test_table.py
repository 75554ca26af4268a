"""Tables: what columns mean, where the depot and the capacity come from, and what is refused."""

from __future__ import annotations

import pytest
import torch

from lehd.errors import LehdError
from lehd.io import parse_table
from tests.io.test_tsplib import with_lines

STOPS = """id,x,y,demand,depot,capacity
a,1,2,7,,
b,3,4,5,no,
c,5,6,,yes,10
d,7,8,0,0,10.0
"""


@pytest.mark.parametrize(
    "text",
    [
        "x,y\n1,2\n3,4.5\n",
        "Y;X\n2;1\n4.5;3\n",
        "1\t2\n3\t4.5\n",
        "1 2\n3   4.5\n",
        "x y\n1 2\n3 4.5\n",
        "\n# points\n\n X , Y \n\n 1 , 2 \n\t\n3,45e-1",
        '"x","y"\r\n"1","2"\r\n"3","4.5"\r\n',
        "\ufeffx,y\r1,2\r3,4.5\r",
    ],
)
def test_points(text: str) -> None:
    instances = parse_table(text, "folder/points.csv")
    assert instances.coords.tolist() == [[[1, 2], [3, 4.5]]]
    assert instances.rule.name == "euclidean"
    assert instances.names == ("points",)
    assert instances.demands is None
    assert instances.node_names == ()


@pytest.mark.parametrize("header", ["lat,lon", "Latitude,Longitude", "LAT,lng", "lat,long"])
def test_degrees(header: str) -> None:
    instances = parse_table(f"{header},name\n48.2,16.4,Wien\n47.1,15.4,\n", "towns.csv")
    assert instances.rule.name == "haversine"
    assert instances.sites is not None
    assert instances.sites.tolist() == [[[48.2, 16.4], [47.1, 15.4]]]
    assert instances.node_names == ("Wien", "")
    metres = instances.distance(torch.tensor([0]), torch.tensor([1]))
    assert 140_000 < metres < 150_000
    torch.testing.assert_close((instances.coords[:, 0] - instances.coords[:, 1]).norm(dim=1), metres, rtol=1e-3, atol=0)


def test_demands_with_the_depot_marked() -> None:
    instances = parse_table(STOPS, "stops.csv")
    assert instances.demands is not None
    assert instances.capacity is not None
    assert instances.coords.tolist() == [[[5, 6], [1, 2], [3, 4], [7, 8]]]
    assert instances.demands.tolist() == [[0, 7, 5, 0]]
    assert instances.capacity.tolist() == [10]
    assert instances.demands.dtype == instances.capacity.dtype == torch.int64
    assert instances.node_names == ("c", "a", "b", "d")


def test_demands_with_the_depot_first() -> None:
    instances = parse_table("0,0,0\n1,2,3\n4,5,0\n", "stops.csv", capacity=4.5, vehicles=2)
    assert instances.demands is not None
    assert instances.capacity is not None
    assert instances.vehicles is not None
    assert instances.coords.tolist() == [[[0, 0], [1, 2], [4, 5]]]
    assert instances.demands.tolist() == [[0, 3, 0]]
    assert instances.capacity.tolist() == [4.5]
    assert instances.vehicles.tolist() == [2]


def test_fleet_limit_in_a_column() -> None:
    text = "x,y,demand,capacity,vehicles\n0,0,,5,3\n1,1,5,,\n"
    assert parse_table(text, "stops.csv").vehicles == torch.tensor([3])
    assert parse_table(text, "stops.csv", vehicles=4).vehicles == torch.tensor([4])


def test_names_may_hold_delimiters_and_line_ends() -> None:
    text = 'name,x,y\n"Oslo, Norway",1,2\n"two\nlines",3,4\n"a ""quote""",5,bad\n'
    with pytest.raises(LehdError, match=r"t\.csv, line 5: y is 'bad'"):
        parse_table(text, "t.csv")
    names = parse_table(text.replace("bad", "6"), "t.csv").node_names
    assert names == ("Oslo, Norway", "two\nlines", 'a "quote"')


def test_names_come_before_ids() -> None:
    assert parse_table("id,name,x,y\n1,a,0,0\n2,a,1,1\n", "t.csv").node_names == ("a", "a")


BAD = [
    ("x,y\n", 1, "nothing follows the header; expected one row for each node"),
    ("# nothing else\n", 1, "nothing but comments and empty cells; expected a table"),
    ("\n,,\n", 2, "nothing but comments and empty cells; expected a table"),
    ("x,z\n1,2\n", 1, "unknown column 'z'; expected some of x, y, lat, lon, demand"),
    ("x,y,due_date\n1,2,3\n", 1, "unknown column 'due_date'"),
    ("x,x\n1,2\n", 1, "column x is there twice"),
    ("lat,lon,lng\n1,2,3\n", 1, "column lon is there twice"),
    ("x,name\n1,2\n", 1, "expected the columns x and y, or lat and lon"),
    ("x,lat\n1,2\n", 1, "expected the columns x and y, or lat and lon"),
    ("x,y,lat,lon\n1,2,3,4\n", 1, "expected the columns x and y, or lat and lon"),
    ("x,y,depot\n1,2,1\n", 1, "column depot without a column demand"),
    ("x,y,capacity\n1,2,1\n", 1, "column capacity without a column demand"),
    ("1,2,0,9\n", 1, "4 columns without a header; expected x, y or x, y, demand"),
    ("1\n2\n", 1, "1 columns without a header; expected x, y or x, y, demand"),
    ("x,y\n1,2\n3\n", 3, "1 cell; expected 2: x, y"),
    ("x,y\n1,2\n3,4,5\n", 3, "3 cells; expected 2: x, y"),
    ("x,y\n1,2\n3,\n", 3, "y is ''; expected a number"),
    ("x,y\n1,2\n3,nan\n", 3, "y is 'nan'; expected a number"),
    ("x,y\n1,2\n3,1e400\n", 3, "y is '1e400'; expected a number"),
    ("x,y\n1,2\n3,1_0\n", 3, "y is '1_0'; expected a number"),
    ("x;y\n1;2\n3;4,5\n", 3, "y is '4,5'; expected a number"),
    ("lat,lon\n1,2\n91,0\n", 3, "latitude 91; expected a value from -90 to 90"),
    ("lat,lon\n1,2\n9,361\n", 3, "longitude 361; expected a value from -180 to 360"),
    ("id,x,y\n7,1,2\n8,1,2\n7,1,2\n", 4, "id '7' is there twice"),
    ('x,y\n1,"2\n', 2, "expected a row of cells separated by ','"),
    ('x,y\n1,"2"3\n', 2, "expected a row of cells separated by ','"),
    (with_lines(STOPS, {2: "a,1,2,7,1,"}), 4, "several depots are marked; expected one"),
    (with_lines(STOPS, {4: "c,5,6,0,,10"}), 1, "no row is marked in the column 'depot'; expected one"),
    (with_lines(STOPS, {3: "b,3,4,5,maybe,"}), 3, "depot is 'maybe'; expected 1, true, yes or x"),
    (with_lines(STOPS, {4: "c,5,6,3,yes,10"}), 4, "the demand of the depot is 3; expected 0"),
    (with_lines(STOPS, {3: "b,3,4,,no,"}), 3, "demand is ''; expected a number"),
    (with_lines(STOPS, {3: "b,3,4,-5,no,"}), 3, "demand -5; expected 0 or more"),
    (with_lines(STOPS, {3: "b,3,4,11,no,"}), 3, "demand 11 exceeds the capacity; expected at most 10"),
    (with_lines(STOPS, {5: "d,7,8,0,0,11"}), 5, "capacity is '11' here and '10' elsewhere; expected one value"),
    (with_lines(STOPS, {5: "d,7,8,0,0,ten"}), 5, "capacity is 'ten'; expected a number"),
    ("x,y,demand,capacity\n0,0,,\n1,1,1,-5\n", 3, "the capacity is -5; expected more than 0"),
    ("x,y,demand,capacity,vehicles\n0,0,,3,.5\n", 2, "0.5 vehicles; expected a whole number from 1 on"),
    ("x,y,demand,capacity\n0,0,1,5\n", 2, "the demand of the depot is 1; expected 0"),
]


@pytest.mark.parametrize(("text", "line", "words"), BAD, ids=[words[:50] for _, _, words in BAD])
def test_bad_tables(text: str, line: int, words: str) -> None:
    with pytest.raises(LehdError) as caught:
        parse_table(text, "table.csv")
    assert str(caught.value).startswith(f"table.csv, line {line}: ")
    assert words in str(caught.value)


def test_a_missing_capacity_says_how_to_give_one() -> None:
    with pytest.raises(
        LehdError, match=r"table\.csv: demands without a capacity; expected a column 'capacity', or cap"
    ):
        parse_table("x,y,demand\n0,0,0\n1,1,1\n", "table.csv")


@pytest.mark.parametrize("arguments", [{"capacity": 3}, {"vehicles": 3}])
def test_a_tsp_takes_no_capacity(arguments: dict[str, int]) -> None:
    with pytest.raises(LehdError, match="given without demands"):
        parse_table("x,y\n0,0\n1,1\n", "table.csv", **arguments)
