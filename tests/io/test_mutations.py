"""20,000 damaged texts: each is refused with a clear message, or read as an independent reader reads it.

The oracles are lenient where lehd is strict, so only texts that lehd accepts are compared. They also know less notation
(tsplib95: a colon after every keyword, whole ids and demands), so notation, and nothing else, is tidied up for them.
"""

from __future__ import annotations

import csv
import random
import re

import pytest
import tsplib95
from tsplib95 import fields as F
from tsplib95 import transformers as T
from vrplib.parse import parse_vrplib

from lehd.errors import LehdError
from lehd.io import read_text
from lehd.types import Instances
from tests.io.mutants import SEEDS, mutate

MUTANTS = 20_000
CAPACITY = 50  # for the table that has demands and no capacity


@pytest.mark.parametrize("name", SEEDS)
def test_mutants_are_refused_or_read_as_the_oracle_reads_them(name: str) -> None:
    rng = random.Random(f"mutants of {name}")
    accepted = refused = 0
    for _ in range(MUTANTS // len(SEEDS)):
        text = mutate(rng, SEEDS[name])
        instances, message = attempt(text, name)
        if instances is None:
            refused += 1
            assert re.match(rf"{re.escape(name)}(, line [0-9]+)?: ", message), text
            assert "expected" in message, text
            assert len(message) < 400, text
            continue
        accepted += 1
        try:
            for check in CHECKS[name.rpartition(".")[2]]:
                check(instances, text)
        except Exception as error:
            pytest.fail(f"{error!r} from the oracle for {text!r}")
    assert accepted > 100
    assert refused > 100


def attempt(text: str, name: str) -> tuple[Instances | None, str]:
    """What is read, or the message of the refusal; anything else that is raised fails the test."""
    try:
        return read_text(text, name, capacity=CAPACITY if name == "bare.tsv" else None), ""
    except LehdError as error:
        return None, str(error)


class Oracle(tsplib95.models.StandardProblem):  # type: ignore[misc]
    """tsplib95 with numbers where it knows whole numbers only, and VEHICLES."""

    _by_id = T.MapT(key=T.FuncT(func=lambda text: int(float(text))), value=T.ListT(value=T.NumberT()), sep="\n")
    capacity = F.NumberField("CAPACITY")
    vehicles = F.IntegerField("VEHICLES")
    node_coords = F.IndexedCoordinatesField("NODE_COORD_SECTION", transformer=_by_id)
    display_data = F.IndexedCoordinatesField("DISPLAY_DATA_SECTION", transformer=_by_id)
    demands = F.IndexedCoordinatesField("DEMAND_SECTION", transformer=_by_id)
    depots = F.MatrixField("DEPOT_SECTION")


def lines_of(text: str) -> list[str]:
    """Its lines that say something."""
    lines = re.split(r"\r\n|\r|\n", text.rstrip("\r\n\x1a"))
    return [line for line in lines if line.strip()]


def tidy(text: str) -> str:
    """The same keyword file as the oracles like it: first `KEY : VALUE` in capitals, then sections; no remarks; EOF."""
    tidied = []
    for line in lines_of(text.upper()):
        line = line.strip().rstrip(" :")
        if line.startswith("EOF"):
            break
        if not line.startswith(("#", "COMMENT", "NAME")):
            tidied.append(re.sub(r"^([A-Z]\w*)\b\s*:?\s*(.+)", r"\1 : \2", line))
    tidied.sort(key=lambda line: " : " not in line)
    return "\n".join([*tidied, "EOF", ""])


def check_with_tsplib95(ours: Instances, text: str) -> None:
    theirs = tsplib95.parse(tidy(text), problem_class=Oracle)
    ids = [int(name) for name in ours.node_names] or list(range(1, ours.num_nodes + 1))
    assert theirs.dimension == len(ids)
    assert theirs.edge_weight_type == ours.rule.name
    if ours.matrix is None:
        positions = ours.coords if ours.sites is None else ours.sites
        assert theirs.node_coords == dict(zip(ids, positions[0].tolist()))
    else:
        if picture := theirs.display_data or theirs.node_coords:
            assert picture == dict(zip(ids, ours.coords[0].tolist()))
        first = min(theirs.get_nodes())
        for a, row in enumerate(ours.matrix[0].tolist()):
            for b, weight in enumerate(row):
                assert a == b or weight == theirs.get_weight(ids[a] - 1 + first, ids[b] - 1 + first)
    if ours.demands is not None and ours.capacity is not None:
        assert theirs.demands == dict(zip(ids, ours.demands[0, :, None].tolist()))
        assert theirs.capacity == ours.capacity.item()
        assert theirs.depots == [[ids[0]], [-1]] or theirs.depots == [[ids[0], -1]]
        assert theirs.vehicles == (0 if ours.vehicles is None else ours.vehicles.item())


def check_with_vrplib(ours: Instances, text: str) -> None:
    """vrplib forgets the ids, so rows are compared without their order."""
    theirs = parse_vrplib(tidy(text), compute_edge_weights=False)
    assert ours.demands is not None
    assert ours.capacity is not None
    assert theirs["dimension"] == ours.num_nodes
    assert theirs["capacity"] == ours.capacity.item()
    assert sorted(theirs["demand"].tolist()) == sorted(ours.demands[0].tolist())
    if "node_coord" in theirs:
        assert sorted(theirs["node_coord"].tolist()) == sorted(ours.coords[0].tolist())


def check_with_plain_csv(ours: Instances, text: str) -> None:
    """Tables have no library to ask: read them in the most pedestrian way."""
    lines = lines_of(text)
    while lines[0].lstrip().startswith("#"):
        del lines[0]
    delimiter = next(delimiter for delimiter in ("\t", ";", ",", " ") if delimiter in lines[0])
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]
    rows = [[cell for cell in row if cell] if delimiter == " " else row for row in rows if any(row)]
    header = [cell.lower() for cell in rows[0]]
    if header[0].lstrip("+-.")[:1].isdigit():
        header, rows = ["x", "y", "demand"][: len(header)], [[], *rows]
    nodes = [dict(zip(header, row, strict=True)) for row in rows[1:]]
    nodes.sort(key=lambda node: node.get("depot", "").lower() not in ("1", "yes", "true", "x"))
    axes = ("lat", "lon") if "lat" in header else ("x", "y")
    positions = ours.coords if ours.sites is None else ours.sites
    assert positions[0].tolist() == [[float(node[axis]) for axis in axes] for node in nodes]
    assert (ours.demands is not None) == ("demand" in header)
    if ours.demands is not None and ours.capacity is not None:
        assert ours.demands[0].tolist() == [float(node["demand"] or 0) for node in nodes]
        capacities = {float(node["capacity"]) for node in nodes if node.get("capacity")} or {CAPACITY}
        assert capacities == {ours.capacity.item()}
    labels = next((column for column in ("name", "id") if column in header), None)
    assert ours.node_names == (tuple(node[labels] for node in nodes) if labels else ())


def check_by_content(ours: Instances, text: str) -> None:
    """What is left of a keyword file may be a table."""
    (check_with_tsplib95 if "_SECTION" in text.upper() else check_with_plain_csv)(ours, text)


CHECKS = {
    "tsp": [check_with_tsplib95],
    "atsp": [check_with_tsplib95],
    "txt": [check_by_content],
    "vrp": [check_with_tsplib95, check_with_vrplib],
    "csv": [check_with_plain_csv],
    "tsv": [check_with_plain_csv],
}
