"""CVRPLIB problems of TYPE CVRP: TSPLIB's keywords, demands, a capacity and one depot."""

from __future__ import annotations

import numpy as np

from lehd.io.sections import Document, parse_document
from lehd.io.tsplib import put_together, read_geometry
from lehd.types import Instances

TYPES = ("CVRP",)


def parse_cvrplib(text: str, name: str, capacity: float | None = None, vehicles: int | None = None) -> Instances:
    """The CVRP in a CVRPLIB text; messages call the text `name`. Arguments replace what the text says."""
    return cvrp_instances(parse_document(text, name), capacity, vehicles)


def cvrp_instances(document: Document, capacity: float | None = None, vehicles: int | None = None) -> Instances:
    """The depot becomes node 0; the other nodes keep the order of their ids."""
    document.word("TYPE", TYPES)
    geometry = read_geometry(document)
    n = document.count("DIMENSION")
    demands = document.by_node("DEMAND_SECTION", n, "id demand")[:, 0]
    depot = _depot(document, n)
    if capacity is None:
        capacity = document.number("CAPACITY")
    else:
        document.values.pop("CAPACITY", None)  # no longer the line to complain about
    if vehicles is None:
        vehicles = document.count("VEHICLES") if document.has("VEHICLES") else None
    else:
        document.values.pop("VEHICLES", None)
    order = np.concatenate([[depot], np.delete(np.arange(n), depot)])
    return put_together(document, geometry, order, demands[order], capacity, vehicles)


def _depot(document: Document, n: int) -> int:
    """The one depot, counted from 0."""
    section, name = document.section("DEPOT_SECTION"), "DEPOT_SECTION"
    tokens = document.tokens(name).tolist()
    if -1 not in tokens:
        document.fail(section.last_line, f"{name} does not end; expected the id of the depot, then -1")
    depots = tokens[: tokens.index(-1)]
    if len(depots) != 1:
        line = document.token_line(name, 1 if depots else 0)
        document.fail(line, f"{len(depots)} depots; expected one, since only problems with a single depot are solved")
    if len(tokens) > 2:
        document.fail(document.token_line(name, 2), f"{name} goes on after -1; expected its end")
    if depots[0] not in range(1, n + 1):
        line = document.token_line(name, 0)
        document.fail(line, f"there is no node {depots[0]:g} to be the depot; expected an id from 1 to {n}")
    return int(depots[0]) - 1
