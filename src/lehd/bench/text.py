"""Tables in Markdown, and numbers as they are written in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean

NOTHING = "-"


def markdown(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def percent(gaps: float | Sequence[float] | None) -> str:
    """A gap, or the mean of several, with as many digits as tell something."""
    gap = (mean(gaps) if gaps else None) if isinstance(gaps, Sequence) else gaps
    if gap is None:
        return NOTHING
    return f"{gap:.4f}" if abs(gap) < 0.1 else f"{gap:.3f}"


def duration(seconds: float) -> str:
    """As the paper writes times."""
    if seconds < 60:
        return f"{seconds:.3g}s"
    return f"{seconds / 60:.3g}m" if seconds < 3600 else f"{seconds / 3600:.3g}h"
