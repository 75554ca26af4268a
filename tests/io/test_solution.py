from __future__ import annotations

import csv
import itertools
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lehd
from lehd import distance, problems
from lehd.errors import InfeasibleError, LehdError
from lehd.io.solution import parse_json, parse_sol, parse_tour, read_solution
from lehd.io.write import json_text, sol_text, tour_text
from lehd.types import Instances
from tests import samples

TOUR = "NAME : x\nTYPE : TOUR\nDIMENSION : 4\nTOUR_SECTION\n"


def tour(text: str) -> list[int]:
    return parse_tour(text, samples.square(), "x.tour")


@pytest.mark.parametrize(
    "text",
    [
        TOUR + "1\n4\n2\n3\n-1\nEOF\n",
        TOUR + "1 4 2 3 -1\n",  # on one line, and no EOF
        TOUR + "1\n4\n2\n3\n-1\n-1\nEOF\n",  # a second -1 ends the section
        TOUR + "1\n4\n2\n3\n",  # no end at all
        "TOUR_SECTION\r\n1\r\n4\r\n2\r\n3\r\n-1\r\n",
        "COMMENT : by hand\n\ntour_section :\n1 4\n2 3\nEOF\nwhatever follows",
    ],
)
def test_tours(text):
    assert tour(text) == [0, 3, 1, 2]


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", LehdError, "TOUR_SECTION"),
        (TOUR + "1\n4\nx\n3\n-1\n", LehdError, r"x\.tour, line 7: expected the number of a node, found 'x'"),
        (TOUR + "1\n4\n2.0\n3\n-1\n", LehdError, "line 7"),
        (TOUR + "1\n٤\n2\n3\n-1\n", LehdError, "line 6"),  # a four, but not an ASCII one
        (TOUR + "1\n4\n2\n5\n-1\n", InfeasibleError, "line 8: there is no node 5; expected 1 to 4"),
        (TOUR + "1\n4\n0\n3\n-1\n", InfeasibleError, "line 7: there is no node 0"),
        (TOUR + "1\n4\n1\n3\n-1\n", InfeasibleError, "line 7: node 1 is visited twice, first on line 5"),
        (TOUR + "1\n4\n-1\n", InfeasibleError, r"node 2 is not visited \(2 of 4 missing\)"),
        (TOUR + "1 4 2 3 -1 1 2 3 4 -1\n", LehdError, "after one tour"),
        ("DIMENSION : 5\nTOUR_SECTION\n", InfeasibleError, "line 1: expected DIMENSION : 4, found '5'"),
        ("TYPE : TSP\n", LehdError, "line 1: expected TYPE : TOUR"),
        ("NAME : a\nWHAT : 3\n", LehdError, "line 2: expected NAME"),
    ],
)
def test_bad_tours(text, kind, words):
    with pytest.raises(LehdError, match=words) as complaint:
        tour(text)
    assert type(complaint.value) is kind
    assert str(complaint.value).startswith("x.tour")


@pytest.mark.parametrize(
    "text",
    [
        "Route #1: 1 2\nRoute #2: 4 3\nCost 40\n",
        "Route #1:\t1 2 \nRoute #2:\nRoute #3: 4 3\ncost 40.0\ntime 3",  # an empty route
        "route 1 : 1 2\nroute 2 : 4 3",
    ],
)
def test_sols(text):
    assert parse_sol(text, samples.cross(), "x.sol") == [[1, 2], [4, 3]]


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", InfeasibleError, r"node 1 is not visited \(4 of 4 missing\)"),
        ("Route #1: 1 2\nRoute #2: 4\n", InfeasibleError, "node 3 is not visited"),
        ("Route #1: 1 2\nRoute #2: 4 3 2\n", InfeasibleError, "line 2: node 2 is visited twice, first on line 1"),
        ("Route #1: 0 1 2 0\n", InfeasibleError, "there is no node 0; expected 1 to 4"),
        ("Route #1: 1 two\n", LehdError, "line 1: expected the number of a node, found 'two'"),
        ("1 2\n3 4\n", LehdError, "line 1: expected 'Route #1: 1 2 3'"),
    ],
)
def test_bad_sols(text, kind, words):
    with pytest.raises(LehdError, match=words) as complaint:
        parse_sol(text, samples.cross(), "x.sol")
    assert type(complaint.value) is kind


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", LehdError, r"x\.json, line 1: expected one JSON object"),
        ('{"tour":\n oops}', LehdError, "line 2"),
        ("[0, 1, 2, 3]", LehdError, "with a list 'tour'"),
        ('{"routes": [[1, 2]]}', LehdError, "with a list 'tour'"),
        ('{"tour": [0, 3, 1]}', InfeasibleError, "node 2 is not visited"),
        ('{"tour": [0, 3, 1, 1]}', InfeasibleError, "node 1 is visited twice"),
        ('{"tour": [0, 3, 1, 4]}', InfeasibleError, "there is no node 4; expected 0 to 3"),
        ('{"tour": [0, 3, true, 2]}', LehdError, "found 'True'"),
        ('{"tour": [0, 3, "1", 2]}', LehdError, "found '1'"),
        ('{"tour": [0, 3, 1.0, 2]}', LehdError, "found '1.0'"),
        ("[" * 100_000, LehdError, "JSON"),
    ],
)
def test_bad_json(text, kind, words):
    with pytest.raises(LehdError, match=words) as complaint:
        parse_json(text, samples.square(), "x.json")
    assert type(complaint.value) is kind


def test_json_routes_must_be_lists():
    with pytest.raises(LehdError, match="every route to be a list"):
        parse_json('{"routes": [1, 2, 3, 4]}', samples.cross(), "x.json")


@pytest.mark.parametrize(
    ("name", "text", "instance", "words"),
    [
        ("a.sol", "Route #1: 1 2 3 4\n", samples.cross(), "more than the capacity 4"),
        ("a.sol", "Route #1: 1\n", samples.square(), "this is a TSP"),
        ("a.tour", TOUR, samples.cross(), "this is a CVRP"),
        ("a.txt", "", samples.square(), r"expected one of \.tour, \.sol, \.json"),
    ],
)
def test_refused_files(tmp_path, name, text, instance, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(LehdError, match=words) as complaint:
        read_solution(tmp_path / name, instance)
    assert str(complaint.value).startswith(str(tmp_path / name))


def test_missing_file(tmp_path):
    with pytest.raises(LehdError, match="No such file"):
        read_solution(tmp_path / "a.tour", samples.square())


@given(st.permutations(range(9)), st.sets(st.integers(1, 8)))
def test_what_is_written_is_read_back(order, cuts):
    coords = torch.rand(1, 9, 2, dtype=torch.float64)
    tsp = Instances(coords, distance.EUCLIDEAN)
    result = samples.result(tsp, list(order))
    assert parse_tour(tour_text(result), tsp, "") == order
    assert parse_json(json_text(result), tsp, "") == order

    demands = torch.ones(1, 9, dtype=torch.long)
    demands[0, 0] = 0
    cvrp = Instances(coords, distance.EUCLIDEAN, demands=demands, capacity=torch.tensor([8]))
    customers = [node for node in order if node != 0]
    bounds = [0, *sorted(cuts), len(customers)]
    routes = [customers[a:b] for a, b in itertools.pairwise(bounds) if a < b]
    result = samples.result(cvrp, routes)
    assert parse_sol(sol_text(result), cvrp, "") == routes
    assert parse_json(json_text(result), cvrp, "") == routes


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("LEHD_DATA")
    if not folder:
        pytest.skip("LEHD_DATA is not set")
    return Path(folder)


def stored_cost(problem_file: Path, solution_file: Path) -> int:
    instance = lehd.read(problem_file)
    cost = problems.of(instance).cost(instance, read_solution(solution_file, instance))
    return int(cost.item())


def test_tsplib_tours_have_their_stated_length(data):
    with (data / "tsplib" / "optima.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (data / "tsplib" / "tours" / f"{row['name']}.tour").exists()]
    assert len(rows) > 100
    for row in rows:
        if row["name"] == "linhp318":  # fixed edges: not solved, so not read
            continue
        stem = data / "tsplib" / row["name"]
        found = stored_cost(
            next(data.glob(f"tsplib/{stem.name}.*tsp")), data / "tsplib" / "tours" / f"{stem.name}.tour"
        )
        assert found == int(row["tour_length"]), row["name"]


def test_cvrplib_solutions_have_their_stated_cost(data):
    files = sorted(data.glob("cvrplib/*/*.sol"))
    assert len(files) > 190
    for file in files:
        stated = next(line.split()[1] for line in file.read_text().splitlines() if line.startswith("Cost"))
        assert stored_cost(file.with_suffix(".vrp"), file) == round(float(stated)), file.name
