"""The progress bar of one search, on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from lehd.words import brief

if TYPE_CHECKING:
    from lehd.solver import Progress

WORDS = {"construct": "constructing", "reconstruct": "improving"}
INTERVAL = 0.1  # seconds between two looks


class Bar:
    """Called with each Progress; draws at most ten times a second, and only on a terminal."""

    def __init__(self, name: str, limit: float | None, quiet: bool) -> None:
        console = Console(stderr=True)
        self.limit = limit
        self.bars = Bars(
            TextColumn(escape(name)),
            TextColumn("{task.description}", style="cyan"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self.task = self.bars.add_task("reading", total=None, state="")
        self.next_look = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if self.bars.disable or now < self.next_look:
            return
        self.next_look = now + INTERVAL
        by_time = progress.total is None
        self.bars.update(
            self.task,
            description=WORDS.get(progress.phase, progress.phase),
            completed=progress.seconds if by_time else progress.done,
            total=self.limit if by_time else progress.total,
            state=state_words(progress),
            refresh=True,
        )

    def __enter__(self) -> Bar:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()


def state_words(progress: Progress) -> str:
    words = []
    if progress.cost is not None:
        words.append(f"cost {brief(progress.cost)}")
    if progress.gain:
        words.append(f"{100 * progress.gain:.2f} % gained")
    if progress.phase == "reconstruct":
        words.append(f"iteration {progress.done}")
    words.append(f"{progress.seconds:.1f} s")
    return ", ".join(words)
