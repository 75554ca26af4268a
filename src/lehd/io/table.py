"""Tables: one row per node, separated by commas, semicolons, tabs or blanks.

A header names the columns: x and y, or lat and lon (degrees; distances are then metres on the sphere); `demand` makes
it a CVRP. `name` or `id` labels the rows. Without a header the columns are x, y and, where there is a third, demand.

The depot of a CVRP is the row marked in a column `depot`; where there is no such column, it is the first row. Its
demand is 0 or left empty. `capacity` and `vehicles` are arguments, or columns with one number in some or all rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import NoReturn

import numpy as np

from lehd.distance import EUCLIDEAN, HAVERSINE
from lehd.errors import LehdError
from lehd.io.arrays import Numbers, build
from lehd.io.plane import project
from lehd.io.text import LARGEST, fail, is_remark, parse_number, short, split_lines
from lehd.types import Instances
from lehd.words import count

COLUMNS = ("x", "y", "lat", "lon", "demand", "name", "id", "depot", "capacity", "vehicles")
ALIASES = {"latitude": "lat", "longitude": "lon", "lng": "lon", "long": "lon"}
YES, NO = {"1", "true", "yes", "x"}, {"0", "false", "no", ""}


@dataclass(frozen=True)
class Table:
    """Cells by column, and the line of each row."""

    source: str  # its name, for messages
    header: int  # line of the header, or of the first row
    columns: dict[str, list[str]]
    lines: list[int]

    def fail(self, row: int, message: str) -> NoReturn:
        fail(self.source, self.lines[row], message)

    def numbers(self, column: str) -> Numbers:
        numbers = [parse_number(cell) for cell in self.columns[column]]
        for row, number in enumerate(numbers):
            if number is None:
                found = short(self.columns[column][row])
                self.fail(row, f"{column} is {found}; expected a number (at most {LARGEST:g} in size)")
        return np.array(numbers, dtype=np.float64)

    def take(self, order: list[int]) -> Table:
        """Some rows, or all in another order."""
        columns = {column: [cells[row] for row in order] for column, cells in self.columns.items()}
        return replace(self, columns=columns, lines=[self.lines[row] for row in order])


def parse_table(text: str, name: str, capacity: float | None = None, vehicles: int | None = None) -> Instances:
    """The TSP or CVRP in a table; messages call the text `name`. Arguments replace what the table says."""
    table = _read(text, name)
    demands = None
    limits: dict[str, float | None] = {"capacity": capacity, "vehicles": vehicles}
    stated: dict[str, int] = {}  # the row of each limit that the table gives
    if "demand" in table.columns:
        table = _depot_first(table)
        demands = table.numbers("demand")
        for column in limits:
            filled = [row for row, cell in enumerate(table.columns.get(column, [])) if cell]
            if limits[column] is None and filled:
                limits[column], stated[column] = _one_number(table, column, filled), filled[0]
        if limits["capacity"] is None:
            expected = "a column 'capacity', or capacity=… beside the file"
            raise LehdError(f"{name}: demands without a capacity; expected {expected}")
    geographic = "lat" in table.columns
    positions = np.stack([table.numbers(axis) for axis in (("lat", "lon") if geographic else ("x", "y"))], axis=1)

    def where(what: str, instance: int, *index: int) -> str:
        row = index[0] if index else stated.get(what)
        return name if row is None else f"{name}, line {table.lines[row]}"

    return build(
        (project(positions) if geographic else positions)[None],
        PurePath(name).stem,
        rule=HAVERSINE if geographic else EUCLIDEAN,
        sites=positions[None] if geographic else None,
        demands=demands,
        capacity=limits["capacity"],
        vehicles=limits["vehicles"],
        node_names=tuple(table.columns.get("name", table.columns.get("id", ()))),
        where=where,
    )


def looks_like_table(line: str) -> bool:
    """Whether a text with this first line may be a table."""
    cells = [cell.strip(' "') for cell in line.split(_delimiter(line))]
    return len(cells) > 1 and (_all_numbers(cells) or _complaint(_names(cells)) is None)


def _depot_first(table: Table) -> Table:
    """The rows with the depot's before all others, and its demand filled in."""
    depot = 0
    if "depot" in table.columns:
        marks = [mark.lower() for mark in table.columns["depot"]]
        for row, mark in enumerate(marks):
            if mark not in YES | NO:
                table.fail(row, f"depot is {short(mark)}; expected 1, true, yes or x for the depot, else 0 or nothing")
        depots = [row for row, mark in enumerate(marks) if mark in YES]
        if not depots:
            fail(table.source, table.header, "no row is marked in the column 'depot'; expected one")
        if len(depots) > 1:
            table.fail(depots[1], "several depots are marked; expected one")
        depot = depots[0]
    ordered = table.take([depot, *(row for row in range(len(table.lines)) if row != depot)])
    ordered.columns["demand"][0] = ordered.columns["demand"][0] or "0"
    return ordered


def _one_number(table: Table, column: str, rows: list[int]) -> float:
    """The number that some rows of a column agree on."""
    cells, numbers = table.columns[column], table.take(rows).numbers(column)
    for i in np.flatnonzero(numbers != numbers[0])[:1]:
        here, there = short(cells[rows[i]]), short(cells[rows[0]])
        table.fail(rows[i], f"{column} is {here} here and {there} elsewhere; expected one value")
    return float(numbers[0])


def _read(text: str, source: str) -> Table:
    """Take a table apart into columns."""
    lines = split_lines(text, source)
    rows = list(_rows(lines, source))
    if not rows:
        fail(source, len(lines), "nothing but comments and empty cells; expected a table")
    header, first = rows[0]
    if _all_numbers(first):
        names = ["x", "y", "demand"][: len(first)]
        if not 2 <= len(first) <= 3:
            fail(source, header, f"{len(first)} columns without a header; expected x, y or x, y, demand")
    else:
        names = _names(first)
        if complaint := _complaint(names):
            fail(source, header, complaint)
        rows = rows[1:]
        if not rows:
            fail(source, header, "nothing follows the header; expected one row for each node")
    for line, cells in rows:
        if len(cells) != len(names):
            fail(source, line, f"{count(len(cells), 'cell')}; expected {len(names)}: {', '.join(names)}")
    columns = {name: [cells[i] for _, cells in rows] for i, name in enumerate(names)}
    table = Table(source, header, columns, [line for line, _ in rows])
    seen: dict[str, int] = {}
    for row, label in enumerate(columns.get("id", [])):
        if seen.setdefault(label, row) != row:
            table.fail(row, f"id {short(label)} is there twice; expected it once")
    return table


def _rows(lines: list[str], source: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row that is not empty. Lines before the header may be comments."""
    start = next((i for i, line in enumerate(lines) if not is_remark(line)), None)
    if start is None:
        return
    delimiter = _delimiter(lines[start])
    if delimiter is None:
        for number, line in enumerate(lines[start:], start + 1):
            if line.strip():
                yield number, line.split()
        return
    reader = csv.reader(
        [f"{line}\n" for line in lines[start:]], delimiter=delimiter, strict=True, skipinitialspace=True
    )
    number = start + 1
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if any(cells):
                yield number, cells
            number = start + reader.line_num + 1  # a quoted cell may span lines
    except csv.Error as error:
        fail(source, number, f"expected a row of cells separated by {delimiter!r}, found something else ({error})")


def _delimiter(line: str) -> str | None:
    """What separates the columns; None for blanks."""
    return next((delimiter for delimiter in "\t;," if delimiter in line), None)


def _names(cells: list[str]) -> list[str]:
    names = [cell.strip().lower() for cell in cells]
    return [ALIASES.get(name, name) for name in names]


def _complaint(names: list[str]) -> str | None:
    """What is wrong with a header, if anything."""
    for i, name in enumerate(names):
        if name not in COLUMNS:
            return f"unknown column {short(name)}; expected some of {', '.join(COLUMNS)}"
        if name in names[:i]:
            return f"column {name} is there twice; expected it once"
    if {"x", "y", "lat", "lon"} & set(names) not in ({"x", "y"}, {"lat", "lon"}):
        return "expected the columns x and y, or lat and lon, in the header"
    for name in ("depot", "capacity", "vehicles"):
        if name in names and "demand" not in names:
            return f"column {name} without a column demand; expected both for a CVRP, neither for a TSP"
    return None


def _all_numbers(cells: list[str]) -> bool:
    return all(parse_number(cell) is not None for cell in cells)
