"""The progress bar of one search, on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, TextColumn

from lehd.cli.bar import LiveBar
from lehd.words import brief

if TYPE_CHECKING:
    from lehd.solver import Progress

WORDS = {"construct": "constructing", "reconstruct": "improving"}


class Bar(LiveBar):
    """Called with each Progress."""

    def __init__(self, name: str, limit: float | None, quiet: bool) -> None:
        words = TextColumn("{task.description}", style="cyan")
        super().__init__(TextColumn(escape(name)), words, BarColumn(bar_width=24), hidden=quiet)
        self.limit = limit

    def __call__(self, progress: Progress) -> None:
        if not self.due():
            return
        by_time = progress.total is None
        self.bars.update(
            self.task,
            description=WORDS.get(progress.phase, progress.phase),
            completed=progress.seconds if by_time else progress.done,
            total=self.limit if by_time else progress.total,
            state=state_words(progress),
            refresh=True,
        )


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
