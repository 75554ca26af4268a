"""Reading solutions back: TSPLIB .tour, CVRPLIB .sol, and the .json that lehd writes.

Parsers take text and return a tour or routes in lehd's own numbers. Numbers that no node has, nodes missed and nodes
visited twice are found here, where the line is still known; capacities are the problem's own check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lehd import problems
from lehd.errors import InfeasibleError, LehdError
from lehd.io.text import fail, load, short
from lehd.types import Instances, Solution

Visits = list[int] | list[list[int]]  # a tour, from 0, or routes of customers, from 1

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_ROUTE = re.compile(r"route\s*#?\s*[0-9]+\s*:?(?P<nodes>(\s.*)?)", re.IGNORECASE)
_STATED = re.compile(r"(cost|time|distance)\b.*", re.IGNORECASE)  # lines of a .sol beside its routes


def read_solution(path: str | Path, instances: Instances) -> Solution:
    """A checked solution of the (single) instance from a file."""
    source = str(path)
    parse = PARSERS.get(Path(path).suffix.lower())
    if parse is None:
        raise LehdError(f"{source}: not a solution file; expected one of {', '.join(PARSERS)}")
    visits = parse(load(path), instances, source)
    try:
        return problems.of(instances).solution(instances, visits)
    except InfeasibleError as error:
        raise InfeasibleError(f"{source}: {error}") from error


def node_ids(instances: Instances) -> list[int]:
    """The numbers a .tour knows the nodes by: those of the instance's file, or 1, 2, 3 …"""
    names = instances.node_names
    if len(names) == instances.num_nodes and all(name.isascii() and name.isdigit() for name in names):
        ids = [int(name) for name in names]
        if len(set(ids)) == len(ids):
            return ids
    return list(range(1, instances.num_nodes + 1))


def parse_tour(text: str, instances: Instances, source: str) -> list[int]:
    """TSPLIB: keywords, then TOUR_SECTION with one tour, ended by -1, EOF or the end of the text."""
    if instances.demands is not None:
        raise LehdError(f"{source}: a .tour file holds one tour, but this is a CVRP; expected a .sol or .json file")
    visits = _Visits(node_ids(instances), source)
    in_section = ended = False
    for number, line in enumerate(text.splitlines(), 1):
        tokens = line.split()
        if not tokens:
            continue
        if tokens[0] == "EOF":
            break
        if not in_section:
            in_section = _tour_keyword(line, number, instances.num_nodes, source)
            continue
        for token in tokens:
            if token == "-1":
                ended = True
            elif ended:
                fail(source, number, f"expected the end of the file after one tour, found {short(token)}")
            else:
                visits.add(_number(token), number)
    if not in_section:
        raise LehdError(f"{source}: expected a TOUR_SECTION, found none")
    return visits.complete()


def _tour_keyword(line: str, number: int, num_nodes: int, source: str) -> bool:
    """Check one line of a tour's head; True at the start of its section."""
    keyword, _, value = (part.strip() for part in line.partition(":"))
    match keyword.upper():
        case "NAME" | "COMMENT":
            pass
        case "TYPE":
            if value.upper() != "TOUR":
                fail(source, number, f"expected TYPE : TOUR, found {short(value)}")
        case "DIMENSION":
            if _number(value) != num_nodes:
                raise InfeasibleError(
                    f"{source}, line {number}: expected DIMENSION : {num_nodes}, found {short(value)}"
                )
        case "TOUR_SECTION":
            return True
        case _:
            expected = "NAME, COMMENT, TYPE, DIMENSION or TOUR_SECTION"
            fail(source, number, f"expected {expected}, found {short(line.strip())}")
    return False


def parse_sol(text: str, instances: Instances, source: str) -> list[list[int]]:
    """CVRPLIB: lines `Route #1: 3 1 2`, customers from 1, and `Cost 784`, which is not relied upon."""
    if instances.demands is None:
        raise LehdError(
            f"{source}: a .sol file holds vehicle routes, but this is a TSP; expected a .tour or .json file"
        )
    visits = _Visits(range(1, instances.num_nodes), source)
    routes = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if route := _ROUTE.fullmatch(line):
            routes.append([visits.add(_number(token), number) + 1 for token in route["nodes"].split()])
        elif line and not _STATED.fullmatch(line):
            fail(source, number, f"expected 'Route #1: 1 2 3' or 'Cost 123', found {short(line)}")
    visits.complete()
    return [route for route in routes if route]


def parse_json(text: str, instances: Instances, source: str) -> Visits:
    """lehd's own record: `tour` counts from 0, `routes` lists customers from 1."""
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        fail(source, error.lineno, f"expected one JSON object ({error.msg})")
    except (ValueError, RecursionError) as error:
        raise LehdError(f"{source}: expected one JSON object ({error})") from error
    key = "tour" if instances.demands is None else "routes"
    found = record.get(key) if isinstance(record, dict) else None
    if not isinstance(found, list):
        raise LehdError(f"{source}: expected a JSON object with a list {key!r}")
    if instances.demands is None:
        visits = _Visits(range(instances.num_nodes), source)
        for node in found:
            visits.add(node)
        return visits.complete()
    visits = _Visits(range(1, instances.num_nodes), source)
    routes = []
    for route in found:
        if not isinstance(route, list):
            raise LehdError(f"{source}: expected every route to be a list of customers, found {short(str(route))}")
        routes.append([visits.add(node) + 1 for node in route])
    visits.complete()
    return [route for route in routes if route]


PARSERS: dict[str, Callable[[str, Instances, str], Visits]] = {
    ".tour": parse_tour,
    ".sol": parse_sol,
    ".json": parse_json,
}


class _Visits:
    """Which nodes a solution visits, by the numbers its file uses for them."""

    def __init__(self, numbers: Iterable[int], source: str) -> None:
        self.place = {number: place for place, number in enumerate(numbers)}
        self.line: dict[int, int | None] = {}  # where each number was seen, in order
        self.source = source

    def add(self, found: Any, line: int | None = None) -> int:
        """Note a visit; the place of the node's number among all numbers."""
        where = self.source if line is None else f"{self.source}, line {line}"
        if not isinstance(found, int) or isinstance(found, bool):
            raise LehdError(f"{where}: expected the number of a node, found {short(str(found))}")
        if found not in self.place:
            expected = f"; expected {min(self.place)} to {max(self.place)}" if self.place else ""
            raise InfeasibleError(f"{where}: there is no node {found}{expected}")
        if found in self.line:
            first = "" if line is None else f", first on line {self.line[found]}"
            raise InfeasibleError(f"{where}: node {found} is visited twice{first}")
        self.line[found] = line
        return self.place[found]

    def complete(self) -> list[int]:
        """The places visited, in order, if none is missing."""
        missing = self.place.keys() - self.line.keys()
        if missing:
            count = f"{len(missing)} of {len(self.place)} missing"
            raise InfeasibleError(f"{self.source}: node {min(missing)} is not visited ({count})")
        return [self.place[number] for number in self.line]


def _number(token: str) -> int | str:
    return int(token) if _NUMBER.fullmatch(token) else token
