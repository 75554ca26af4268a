"""The paper's tables, from published.toml. What comes from here is published: it is never shown as measured."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

PAPER = "Luo et al., NeurIPS 2023"


@dataclass(frozen=True)
class Cell:
    """As the paper prints it."""

    gap: str  # per cent; "-" where there is no result
    time: str = ""

    def __str__(self) -> str:
        return f"{self.gap} ({self.time})" if self.time else self.gap


@dataclass(frozen=True)
class PaperTable:
    name: str
    number: int
    label: str  # the table's name in the paper's source
    title: str
    note: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Cell, ...]]
    ours: tuple[str, ...] = ()  # budgets of lehd that compare with it, where its rows have other names

    def has(self, budget: str) -> bool:
        """Whether lehd with this budget is what a row of the table is about."""
        return f"LEHD {budget}" in self.rows or budget in self.ours

    @property
    def source(self) -> str:
        return f"Table {self.number} of {PAPER}"

    def cell(self, row: str, column: str) -> Cell | None:
        """None where the table has no such row or column."""
        if row not in self.rows or column not in self.columns:
            return None
        return self.rows[row][self.columns.index(column)]


@cache
def paper_tables() -> dict[str, PaperTable]:
    """All of them by name, in the paper's order."""
    text = resources.files("lehd.bench").joinpath("published.toml").read_text(encoding="utf-8")
    tables = (
        PaperTable(
            name=table["name"],
            number=table["number"],
            label=table["label"],
            title=table["title"],
            note=table.get("note", ""),
            columns=tuple(table["columns"]),
            ours=tuple(table.get("ours", ())),
            rows={name: tuple(Cell(*cell.split()) for cell in cells) for name, *cells in table["rows"]},
        )
        for table in tomllib.loads(text)["table"]
    )
    return {table.name: table for table in tables}
