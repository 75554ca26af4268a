"""TSPLIB95 problems of TYPE TSP and ATSP, and what CVRPLIB files share with them: where the nodes are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lehd.distance import EXPLICIT, GEO, RULES, Rule
from lehd.io.arrays import Numbers, build
from lehd.io.plane import project
from lehd.io.sections import Document, parse_document
from lehd.types import Instances

TYPES = ("TSP", "ATSP")
WEIGHT_TYPES = ("EUC_2D", "CEIL_2D", "ATT", "GEO", "EXPLICIT")
# For each layout the triangle that it lists row by row, and whether with the diagonal. The columns of one triangle
# are the rows of the other, so that each COL layout is a ROW layout too.
LAYOUTS = {
    "FULL_MATRIX": ("full", True),
    "UPPER_ROW": ("upper", False),
    "LOWER_ROW": ("lower", False),
    "UPPER_DIAG_ROW": ("upper", True),
    "LOWER_DIAG_ROW": ("lower", True),
    "UPPER_COL": ("lower", False),
    "LOWER_COL": ("upper", False),
    "UPPER_DIAG_COL": ("lower", True),
    "LOWER_DIAG_COL": ("upper", True),
}


@dataclass(frozen=True)
class Geometry:
    """Where N nodes are, or how far from each other."""

    rule: Rule
    coords: Numbers | None  # (N, 2); None where there is only a matrix
    sites: Numbers | None = None  # (N, 2)
    matrix: Numbers | None = None  # (N, N)


def parse_tsplib(text: str, name: str) -> Instances:
    """The TSP or ATSP in a TSPLIB text; messages call the text `name`."""
    return tsp_instances(parse_document(text, name))


def tsp_instances(document: Document) -> Instances:
    document.word("TYPE", TYPES)
    for key in ("CAPACITY", "VEHICLES", "DEMAND_SECTION", "DEPOT_SECTION"):
        if document.has(key):
            document.fail(document.line(key), f"{key} does not belong in a TSP; expected it with TYPE CVRP")
    geometry = read_geometry(document)
    return put_together(document, geometry, np.arange(document.count("DIMENSION")))


def read_geometry(document: Document) -> Geometry:
    """The positions or distances in a keyword file, in the order of its node ids."""
    n = document.count("DIMENSION")
    weight_type = document.word("EDGE_WEIGHT_TYPE", WEIGHT_TYPES)
    coordinates = document.word("NODE_COORD_TYPE", ("TWOD_COORDS", "NO_COORDS"), "TWOD_COORDS")
    display = document.word("DISPLAY_DATA_TYPE", ("COORD_DISPLAY", "TWOD_DISPLAY", "NO_DISPLAY"), "NO_DISPLAY")
    positions = picture = None
    if weight_type != "EXPLICIT" or document.has("NODE_COORD_SECTION"):
        positions = document.by_node("NODE_COORD_SECTION", n, "id x y")
    if display == "TWOD_DISPLAY" or document.has("DISPLAY_DATA_SECTION"):
        picture = document.by_node("DISPLAY_DATA_SECTION", n, "id x y")
    if weight_type == "EXPLICIT":
        return Geometry(EXPLICIT, positions if picture is None else picture, matrix=_matrix(document, n))
    assert positions is not None
    if coordinates == "NO_COORDS":
        document.fail(document.line("NODE_COORD_TYPE"), f"NO_COORDS with {weight_type}; expected TWOD_COORDS")
    document.word("EDGE_WEIGHT_FORMAT", ("FUNCTION",), "FUNCTION")
    if document.has("EDGE_WEIGHT_SECTION"):
        line = document.line("EDGE_WEIGHT_SECTION")
        document.fail(line, f"EDGE_WEIGHT_SECTION with {weight_type}; expected it with EXPLICIT only")
    if weight_type == "GEO":
        degrees = np.trunc(positions)
        return Geometry(GEO, project(degrees + (positions - degrees) * 5 / 3), sites=positions)  # DDD.MM: minutes
    return Geometry(RULES[weight_type], positions)


def put_together(
    document: Document,
    geometry: Geometry,
    order: NDArray[np.int64],  # (N,) the file's node for each of ours
    demands: Numbers | None = None,
    capacity: float | None = None,
    vehicles: int | None = None,
) -> Instances:
    """The checked instance; complaints name the line of the file."""

    def where(what: str, instance: int, *index: int) -> str:
        line = _line(document, what, [int(order[i]) for i in index if i < len(order)])
        return document.source if line is None else f"{document.source}, line {line}"

    coords, sites, matrix = geometry.coords, geometry.sites, geometry.matrix
    moved = bool((order != np.arange(len(order))).any())
    return build(
        None if coords is None else coords[None, order],
        document.name,
        rule=geometry.rule,
        sites=None if sites is None else sites[None, order],
        matrix=None if matrix is None else matrix[None, order][:, :, order],
        demands=demands,
        capacity=capacity,
        vehicles=vehicles,
        node_names=tuple(str(node + 1) for node in order) if moved else (),
        where=where,
    )


def _line(document: Document, what: str, nodes: list[int]) -> int | None:
    """The line that says what `build` complains about, if the file does."""
    if what == "distance":
        layout, n = document.word("EDGE_WEIGHT_FORMAT", tuple(LAYOUTS)), document.count("DIMENSION")
        place = _fill(layout, n, np.arange(_size(layout, n)))
        return document.token_line("EDGE_WEIGHT_SECTION", place[nodes[0], nodes[1]])
    if what == "coordinate":
        shown_only = document.has("DISPLAY_DATA_SECTION") and document.has("EDGE_WEIGHT_SECTION")
        return document.node_line("DISPLAY_DATA_SECTION" if shown_only else "NODE_COORD_SECTION", nodes[0])
    if what == "demand":
        return document.node_line("DEMAND_SECTION", nodes[0])
    return document.line(what.upper()) if document.has(what.upper()) else None


def _matrix(document: Document, n: int) -> Numbers:
    layout = document.word("EDGE_WEIGHT_FORMAT", tuple(LAYOUTS))
    tokens, size = document.tokens("EDGE_WEIGHT_SECTION"), _size(layout, n)
    if len(tokens) != size:
        line = document.token_line("EDGE_WEIGHT_SECTION", size)
        document.fail(line, f"EDGE_WEIGHT_SECTION has {len(tokens)} numbers; expected {size} for {layout} of {n} nodes")
    return _fill(layout, n, tokens)


def _size(layout: str, n: int) -> int:
    """How many numbers a layout takes."""
    shape, diagonal = LAYOUTS[layout]
    return n * n if shape == "full" else n * (n + 1) // 2 if diagonal else n * (n - 1) // 2


def _fill(layout: str, n: int, numbers: NDArray[Any]) -> NDArray[Any]:
    """The matrix (n, n) that a layout's numbers stand for."""
    shape, diagonal = LAYOUTS[layout]
    if shape == "full":
        return numbers.reshape(n, n)
    row, column = (
        np.triu_indices(n, 0 if diagonal else 1) if shape == "upper" else np.tril_indices(n, 0 if diagonal else -1)
    )
    matrix = np.zeros((n, n), dtype=numbers.dtype)
    matrix[row, column] = matrix[column, row] = numbers
    return matrix
