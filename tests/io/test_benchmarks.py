"""Every benchmark file parses, and the cost of every stored solution comes out to the unit."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest
import torch
import tsplib95
import vrplib

from lehd.errors import LehdError
from lehd.io import read
from lehd.types import Instances

DATA = Path(os.environ.get("LEHD_DATA", ""))
TSPLIB = sorted(DATA.glob("tsplib/*.tsp")) if DATA.name else []
CVRPLIB = sorted(DATA.glob("cvrplib/*/*.vrp")) if DATA.name else []

pytestmark = pytest.mark.skipif(not DATA.name, reason="LEHD_DATA does not name a folder of benchmark files")


def rows(path: Path) -> dict[str, dict[str, str]]:
    with path.open() as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def cost(instances: Instances, cycle: list[int]) -> int:
    nodes = torch.tensor([cycle])
    return int(instances.distance(nodes, nodes.roll(-1, 1)).sum())


def test_all_files_are_there() -> None:
    assert len(TSPLIB) == 110
    assert len(CVRPLIB) == 195


@pytest.mark.parametrize("path", TSPLIB, ids=lambda path: path.stem)
def test_tsplib(path: Path) -> None:
    if path.stem == "linhp318":
        with pytest.raises(LehdError, match=r"linhp318\.tsp, line 6: FIXED_EDGES_SECTION is not supported"):
            read(path)
        return
    stated = rows(DATA / "tsplib/optima.csv")[path.stem]
    instances = read(path)
    assert instances.num_nodes == int(stated["n"])
    assert instances.rule.name == stated["edge_weight_type"]
    assert instances.symmetric
    if stated["tour_length"]:
        section = (DATA / f"tsplib/tours/{path.stem}.tour").read_text().split("TOUR_SECTION")[1]
        tour = [int(token) - 1 for token in section.split("-1")[0].split()]
        assert sorted(tour) == list(range(instances.num_nodes))
        assert cost(instances, tour) == int(stated["tour_length"])


@pytest.mark.parametrize("path", CVRPLIB, ids=lambda path: path.stem)
def test_cvrplib(path: Path) -> None:
    stated = rows(DATA / "cvrplib/best_known.csv")[path.stem]
    instances = read(path)
    assert instances.demands is not None
    assert instances.capacity is not None
    assert instances.num_nodes == int(stated["n_customers"]) + 1
    assert instances.rule.name == stated["edge_weight_type"]
    assert instances.capacity.tolist() == [int(stated["capacity"])]
    assert instances.demands.dtype == instances.capacity.dtype == torch.int64
    lines = re.findall(r"Route #\d+:(.*)", path.with_suffix(".sol").read_text())
    routes = [[int(customer) for customer in line.split()] for line in lines]
    assert sorted(customer for route in routes for customer in route) == list(range(1, instances.num_nodes))
    assert sum(cost(instances, [0, *route]) for route in routes) == int(stated["sol_cost"])
    for route in routes:
        assert instances.demands[0, route].sum() <= instances.capacity[0]


SMALL = [path for path in TSPLIB if path.stat().st_size < 20_000 and path.stem != "linhp318"]


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_tsplib95_reads_the_same(path: Path) -> None:
    ours, theirs = read(path), tsplib95.load(path)
    assert ours.num_nodes == theirs.dimension
    first = min(theirs.get_nodes())
    n = min(ours.num_nodes, 12)
    for a in range(n):
        for b in range(n):
            if a != b:
                distance = ours.distance(torch.tensor([a]), torch.tensor([b])).item()
                assert distance == theirs.get_weight(a + first, b + first)
    if ours.matrix is None:
        positions = ours.coords if ours.sites is None else ours.sites
        assert theirs.node_coords == dict(enumerate(positions[0].tolist(), 1))
    elif theirs.display_data:
        assert theirs.display_data == dict(enumerate(ours.coords[0].tolist(), 1))


@pytest.mark.parametrize("path", CVRPLIB[::4], ids=lambda path: path.stem)
def test_vrplib_reads_the_same(path: Path) -> None:
    ours, theirs = read(path), vrplib.read_instance(path, compute_edge_weights=False)
    assert ours.demands is not None
    assert ours.capacity is not None
    assert ours.names == (theirs["name"],)
    assert ours.demands[0].tolist() == theirs["demand"].tolist()
    assert ours.capacity.item() == theirs["capacity"]
    assert theirs["depot"].tolist() == [0]
    if ours.matrix is None:
        assert ours.coords[0].tolist() == theirs["node_coord"].tolist()
    else:
        assert ours.matrix[0].tolist() == theirs["edge_weight"].tolist()
