"""Numbers for the eye: how costs, counts and gaps are written on screen and in pictures."""

from __future__ import annotations


def brief(number: float) -> str:
    """Whole numbers in full, others with seven digits."""
    if isinstance(number, int) or abs(number) >= 1e6:
        return f"{number:.0f}"
    return f"{number:.7g}"


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def gap(cost: float, optimum: float) -> str:
    percent = 100 * (cost / optimum - 1)
    return f"{abs(percent):.2f} % {'below' if percent < 0 else 'above'} {brief(optimum)}"
