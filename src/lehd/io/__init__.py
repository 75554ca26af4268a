"""Reading problems: TSPLIB and CVRPLIB files, and tables. Parsers take text and return data; `read` opens the file."""

from __future__ import annotations

import os
from pathlib import PurePath

from lehd.errors import LehdError
from lehd.io import cvrplib, tsplib
from lehd.io.arrays import coordinate_instances, matrix_instances
from lehd.io.cvrplib import parse_cvrplib
from lehd.io.sections import parse_document, split_keyword
from lehd.io.table import looks_like_table, parse_table
from lehd.io.text import fail, is_remark, load, short, split_lines
from lehd.io.tsplib import parse_tsplib
from lehd.types import Instances

__all__ = [
    "coordinate_instances",
    "matrix_instances",
    "parse_cvrplib",
    "parse_table",
    "parse_tsplib",
    "read",
    "read_text",
]

KEYWORD_ENDINGS = {".tsp", ".atsp", ".vrp", ".cvrp"}
TABLE_ENDINGS = {".csv", ".tsv"}


def read(path: str | os.PathLike[str], capacity: float | None = None, vehicles: int | None = None) -> Instances:
    """The problem in a file: TSPLIB, CVRPLIB, or a table (comma, semicolon or tab separated).

    `capacity` and `vehicles`, the largest number of routes, replace what the file of a CVRP says.
    """
    return read_text(load(path), os.fspath(path), capacity, vehicles)


def read_text(text: str, name: str, capacity: float | None = None, vehicles: int | None = None) -> Instances:
    """The problem in a text. `name` is what messages call it; its ending, such as .csv, may tell what the text is."""
    if _is_table(text, name):
        return parse_table(text, name, capacity, vehicles)
    document = parse_document(text, name)
    if document.word("TYPE", tsplib.TYPES + cvrplib.TYPES) in cvrplib.TYPES:
        return cvrplib.cvrp_instances(document, capacity, vehicles)
    if capacity is not None or vehicles is not None:
        raise LehdError(f"{name}: a TSP takes neither capacity nor vehicles; expected TYPE CVRP with them")
    return tsplib.tsp_instances(document)


def _is_table(text: str, name: str) -> bool:
    """Whether a text is a table: its ending decides or, where that is unknown, its first line."""
    ending = PurePath(name).suffix.lower()
    if ending in TABLE_ENDINGS or ending in KEYWORD_ENDINGS:
        return ending in TABLE_ENDINGS
    lines = split_lines(text, name)
    number, first = next(((i, line) for i, line in enumerate(lines, 1) if not is_remark(line)), (1, ""))
    if looks_like_table(first):
        return True
    if split_keyword(first) is None:
        fail(name, number, f"expected a TSPLIB or CVRPLIB keyword or the header of a table, found {short(first)}")
    return False
