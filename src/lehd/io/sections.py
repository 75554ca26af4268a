"""The keyword grammar that TSPLIB and CVRPLIB files share: `KEY : value` lines and sections of numbers, in any order.

This module knows which keywords exist and what numbers look like; what they mean is for tsplib.py and cvrplib.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import PurePath
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from lehd.io.text import FOREIGN, LARGEST, fail, is_remark, parse_number, short, split_lines

VALUES = {
    "NAME", "COMMENT", "TYPE", "DIMENSION", "CAPACITY", "VEHICLES",
    "EDGE_WEIGHT_TYPE", "EDGE_WEIGHT_FORMAT", "NODE_COORD_TYPE", "DISPLAY_DATA_TYPE",
}  # fmt: skip
SECTIONS = {"NODE_COORD_SECTION", "DISPLAY_DATA_SECTION", "EDGE_WEIGHT_SECTION", "DEMAND_SECTION", "DEPOT_SECTION"}
NOT_SOLVED = {
    "BACKHAUL_SECTION": "backhauls",
    "DISTANCE": "a limit on the length of routes",
    "EDGE_DATA_FORMAT": "an incomplete graph",
    "EDGE_DATA_SECTION": "an incomplete graph",
    "FIXED_EDGES_SECTION": "fixed edges",
    "PICKUP_AND_DELIVERY_SECTION": "pickups and deliveries",
    "REQUIRED_NODES_SECTION": "optional nodes",
    "SERVICE_TIME": "service times",
    "SERVICE_TIME_SECTION": "service times",
    "TIME_WINDOW_SECTION": "time windows",
    "TOUR_SECTION": "a solution, not a problem",
}
KEYWORDS = VALUES | SECTIONS | NOT_SOLVED.keys() | {"EOF"}
_KEYWORD_LINE = re.compile(r"([A-Za-z]\w*)\s*:?\s*(.*)", re.ASCII)
_WORD = re.compile(r"(\w+)\s*(\(.*\))?", re.ASCII)  # si175 has a remark in brackets: "TYPE: TSP (M.~Hofmeister)"
_COUNT = re.compile(r"[0-9]{1,15}")


@dataclass
class Section:
    """Lines of numbers."""

    name: str
    line: int  # of the heading
    numbers: list[int] = field(default_factory=list)  # the line number of each row
    rows: list[str] = field(default_factory=list)

    @property
    def last_line(self) -> int:
        return self.numbers[-1] if self.numbers else self.line


@dataclass
class Document:
    """A keyword file taken apart."""

    source: str  # its name, for messages
    values: dict[str, tuple[int, str]]  # keyword: line and value
    sections: dict[str, Section]
    last_line: int

    def fail(self, line: int, message: str) -> NoReturn:
        fail(self.source, line, message)

    @property
    def name(self) -> str:
        _, name = self.values.get("NAME", (0, ""))
        return name or PurePath(self.source).stem

    def has(self, key: str) -> bool:
        return key in self.values or key in self.sections

    def line(self, key: str) -> int:
        """Where a keyword stands."""
        return self.sections[key].line if key in self.sections else self.values[key][0]

    def missing(self, what: str) -> NoReturn:
        self.fail(self.last_line, f"expected {what} before the end of the file")

    def word(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """The value of a keyword that must be one of a few words."""
        if key not in self.values:
            return default or self.missing(f"{key} ({_either(choices)})")
        line, value = self.values[key]
        match = _WORD.fullmatch(value)
        word = match[1].upper() if match else value
        if word not in choices:
            self.fail(line, f"{key} {short(word)} is not supported; expected {_either(choices)}")
        return word

    def count(self, key: str) -> int:
        """The value of a keyword that must be a whole number from 1 on."""
        if key not in self.values:
            self.missing(key)
        line, value = self.values[key]
        if not _COUNT.fullmatch(value) or int(value) == 0:
            self.fail(line, f"{key} is {short(value)}; expected a whole number from 1 on")
        return int(value)

    def number(self, key: str) -> float:
        if key not in self.values:
            self.missing(key)
        line, value = self.values[key]
        number = parse_number(value)
        if number is None:
            self.fail(line, f"{key} is {short(value)}; expected a number")
        return number

    def section(self, name: str) -> Section:
        return self.sections.get(name) or self.missing(name)

    def by_node(self, name: str, n: int, columns: str) -> NDArray[np.float64]:
        """A section of one row per node, such as `id x y`: what follows the ids, in the order of the ids 1..n."""
        section = self.section(name)
        values = self._rows(section, columns)
        ids = values[:, 0]
        for row in np.flatnonzero((ids < 1) | (ids > n) | (ids != np.floor(ids)))[:1]:
            self.fail(section.numbers[row], f"there is no node {ids[row]:g}; expected ids from 1 to {n} (DIMENSION)")
        order = np.argsort(ids, kind="stable")
        for row in np.sort(order[1:][ids[order][1:] == ids[order][:-1]])[:1]:
            self.fail(section.numbers[row], f"node {ids[row]:.0f} is there twice; expected each id from 1 to {n} once")
        if len(ids) < n:
            self.fail(section.last_line, f"{name} ends after {len(ids)} nodes; expected {n} (DIMENSION)")
        return values[order, 1:]

    def node_line(self, name: str, node: int) -> int:
        """The line of a node, counted from 0, in a section that `by_node` has read."""
        section = self.section(name)
        ids = (float(row.split()[0]) for row in section.rows)
        return next(line for line, id_ in zip(section.numbers, ids) if id_ == node + 1)

    def tokens(self, name: str) -> NDArray[np.float64]:
        """The numbers of a section, however they are broken into lines."""
        section = self.section(name)
        values = _fast(section, [token for row in section.rows for token in row.split()])
        if values is None:
            values = np.array([n for i in range(len(section.rows)) for n in self._row(section, i)], dtype=np.float64)
        return values

    def token_line(self, name: str, index: int) -> int:
        """The line on which a section's token stands, or the section's last line if it is not there."""
        section = self.section(name)
        ends = accumulate(len(row.split()) for row in section.rows)
        return next((line for line, end in zip(section.numbers, ends) if index < end), section.last_line)

    def _rows(self, section: Section, columns: str) -> NDArray[np.float64]:
        width = len(columns.split())
        values = _fast(section, [row.split() for row in section.rows])
        if values is None or values.shape != (len(section.rows), width):
            slow = [self._row(section, i, columns) for i in range(len(section.rows))]
            values = np.array(slow, dtype=np.float64).reshape(-1, width)
        return values

    def _row(self, section: Section, i: int, columns: str | None = None) -> list[float]:
        """One row of a section, number by number: slower than `_fast`, but it knows what is wrong."""
        line, row = section.numbers[i], section.rows[i]
        tokens = row.split()
        if columns and len(tokens) != len(columns.split()):
            self.fail(line, f"expected '{columns}' in {section.name}, found {short(row)}")
        numbers = []
        for token in tokens:
            number = parse_number(token)
            if number is None:
                self.fail(line, f"expected a number (at most {LARGEST:g}) in {section.name}, found {short(token)}")
            numbers.append(number)
        if FOREIGN.search(row):  # unusual blanks between good numbers
            self.fail(line, f"expected blanks or tabs between numbers in {section.name}, found {short(row)}")
        return numbers


def _fast(section: Section, tokens: list[str] | list[list[str]]) -> NDArray[np.float64] | None:
    """All numbers of a section at once; None where something is wrong with one of them."""
    if FOREIGN.search("\n".join(section.rows)):
        return None
    try:
        values = np.array(tokens, dtype=np.float64)
    except ValueError:
        return None
    return values if bool((np.abs(values) <= LARGEST).all()) else None


def split_keyword(line: str) -> tuple[str, str] | None:
    """The known keyword a line begins with, and the rest of the line; None where there is no such keyword."""
    match = _KEYWORD_LINE.match(line.strip())
    return (match[1].upper(), match[2]) if match and match[1].upper() in KEYWORDS else None


def parse_document(text: str, source: str) -> Document:
    """Take a keyword file apart. Keywords that nobody knows, that come twice or that ask for more than is solved
    are refused."""
    lines = split_lines(text, source)
    document = Document(source, {}, {}, len(lines))
    section: Section | None = None
    for number, raw in enumerate(lines, 1):
        if is_remark(raw):
            continue
        line = raw.strip()
        if line[0] in "0123456789+-.":
            if section is None:
                document.fail(number, f"expected a keyword, found {short(line)}")
            section.numbers.append(number)
            section.rows.append(line)
            continue
        split = split_keyword(line)
        if split is None:
            expected = f"a number, a keyword or EOF in {section.name}" if section else "a TSPLIB or CVRPLIB keyword"
            document.fail(number, f"expected {expected}, found {short(line)}")
        key, value = split
        if key == "EOF":
            document.last_line = number
            break
        if key != "COMMENT":  # a remark may stand anywhere, inside a section too
            section = _note(document, number, key, value)
    return document


def _note(document: Document, line: int, key: str, value: str) -> Section | None:
    """Add a keyword to the document; the section that it opens, if it opens one."""
    if key in NOT_SOLVED:
        document.fail(line, f"{key} is not supported ({NOT_SOLVED[key]}); expected a plain TSP or CVRP")
    if document.has(key):
        document.fail(line, f"{key} is there twice; expected it once")
    if key in SECTIONS:
        if value:
            document.fail(line, f"expected the numbers of {key} to begin on the next line, found {short(value)}")
        section = document.sections[key] = Section(key, line)
        return section
    if not value and key != "NAME":
        document.fail(line, f"{key} has no value; expected one")
    document.values[key] = line, value
    return None


def _either(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]
