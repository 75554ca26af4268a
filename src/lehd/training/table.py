"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Sequence


def lay_out(rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side; the first one flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
