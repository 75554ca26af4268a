"""The live table of a bench on the terminal. Elsewhere a line for every record."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from lehd.bench.text import duration, percent
from lehd.bench.watch import Watch

if TYPE_CHECKING:
    from lehd.bench.store import Record

Label = Callable[["Record"], str]


class LiveTable(Watch):
    """Mean gaps so far, in rows and columns that records are sorted into; below, what is being done."""

    interval = 0.2  # seconds between two looks

    def __init__(self, title: str, row: Label, column: Label) -> None:
        self.title, self.row, self.column = title, row, column
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.cells: dict[tuple[str, str], list[Record]] = {}
        self.words = ""
        self.next_look = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()

    def working(self, words: str) -> None:
        self.words = words
        self._look()

    def measured(self, records: list[Record]) -> None:
        for record in records:
            self.cells.setdefault((self.row(record), self.column(record)), []).append(record)
        if self.console.is_terminal:
            self._look()
            return
        for (row, column), cell in _latest(self.cells, records, self.row, self.column).items():
            self.console.print(f"{row}, {column}: {self._cell(cell)}", markup=False, highlight=False, soft_wrap=True)

    def failed(self, what: str, reason: str) -> None:
        self.console.print(f"set aside: {what}: {reason}", markup=False, highlight=False, soft_wrap=True)

    def _look(self) -> None:
        now = time.monotonic()
        if self.live.is_started and now >= self.next_look:
            self.next_look = now + self.interval
            self.live.update(Group(self._table(), escape(self.words)), refresh=True)

    def _table(self) -> Table:
        columns = list(dict.fromkeys(column for _, column in self.cells))
        table = Table("", *map(escape, columns), title=self.title, title_justify="left")
        for row in dict.fromkeys(row for row, _ in self.cells):
            shown = [self.cells.get((row, column), []) for column in columns]
            table.add_row(escape(row), *(self._cell(cell) for cell in shown))
        return table

    def _cell(self, cell: list[Record]) -> str:
        from lehd.bench.summary import mean_gap

        if not cell:
            return ""
        solved = [record for record in cell if record.cost is not None]
        failed = f", {len(cell) - len(solved)} failed" if len(solved) < len(cell) else ""
        gap = mean_gap(solved) if solved else None
        return f"{percent(gap)} % ({len(cell)} in {duration(sum(r.seconds for r in cell))}{failed})"


def _latest(
    cells: dict[tuple[str, str], list[Record]], records: list[Record], row: Label, column: Label
) -> dict[tuple[str, str], list[Record]]:
    """The cells that new records went into."""
    return {key: cells[key] for key in dict.fromkeys((row(record), column(record)) for record in records)}
