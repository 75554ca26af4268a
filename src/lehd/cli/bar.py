"""A line on the terminal that shows how far something is. Elsewhere it shows nothing."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn


class LiveBar:
    """The columns, then a state in words; drawn by whoever calls `bars.update`, as often as `due` says."""

    interval = 0.1  # seconds between two looks

    def __init__(self, *columns: ProgressColumn, total: float | None = None, hidden: bool = False) -> None:
        console = Console(stderr=True)
        self.bars = Progress(
            *columns,
            TextColumn("{task.fields[state]}"),
            console=console,
            auto_refresh=False,  # a thread of its own would not go well with starting processes
            transient=True,
            disable=hidden or not console.is_terminal,
        )
        self.task = self.bars.add_task("", total=total, state="")
        self.next_look = 0.0

    def due(self) -> bool:
        now = time.monotonic()
        if self.bars.disable or now < self.next_look:
            return False
        self.next_look = now + self.interval
        return True

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()
