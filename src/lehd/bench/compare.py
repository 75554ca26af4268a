"""Two files of results side by side: the same instances, methods and budgets, pair by pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lehd.bench.store import Record
from lehd.bench.summary import over_seeds
from lehd.bench.text import markdown
from lehd.errors import LehdError

SAME = 1e-9  # relative: costs that differ by no more are ties
RESAMPLES = 10_000
AT_ONCE = 1 << 20  # draws, so that many pairs need little memory
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Paired:
    """What B's costs are compared with A's, in per cent of A's; negative: B is shorter."""

    bench: str
    set: str
    problem: str
    method: str
    budget: str
    pairs: int
    mean: float
    low: float  # of the confidence interval of the mean
    high: float
    wins: int  # pairs in which B is shorter
    losses: int
    seconds: tuple[float, float]  # mean per instance, of A and of B

    @property
    def ties(self) -> int:
        return self.pairs - self.wins - self.losses

    @property
    def verdict(self) -> str:
        if self.high < 0:
            return "B shorter"
        return "A shorter" if self.low > 0 else "not told apart"


def compare(first: list[Record], second: list[Record]) -> list[Paired]:
    """One row for every set, method and budget that both have; of several seeds the mean counts."""
    ours, theirs = _by_place(over_seeds(first)), _by_place(over_seeds(second))
    groups: dict[tuple[str, ...], list[tuple[Record, Record]]] = {}
    for place in (place for place in ours if place in theirs):
        a, b = _only(ours[place], "A"), _only(theirs[place], "B")
        groups.setdefault((a.bench, a.problem, a.set, a.method, a.budget), []).append((a, b))
    if not groups:
        raise LehdError("the two files have no instance, method and budget in common")
    found = sorted(groups.values(), key=lambda pairs: (pairs[0][0].problem, pairs[0][0].nodes, pairs[0][0].order))
    return [_paired(pairs) for pairs in found]


def _place(record: Record) -> tuple[str, ...]:
    """What two measurements must share; weights, seed, device and version may differ."""
    return (record.bench, record.problem, record.set, record.instance, record.method, record.budget)


def _by_place(records: list[Record]) -> dict[tuple[str, ...], list[Record]]:
    places: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if record.cost is not None:
            places.setdefault(_place(record), []).append(record)
    return places


def _only(found: list[Record], side: str) -> Record:
    if len(found) > 1:
        first = found[0]
        ways = " and ".join(f"weights {each.weights or 'none'}, {each.device}" for each in found)
        what = f"{first.set} {first.instance}, {first.method} {first.budget}"
        raise LehdError(f"{side} has {what} more than once ({ways}): compare files that have it once")
    return found[0]


def _paired(pairs: list[tuple[Record, Record]]) -> Paired:
    a, b = (np.array([pair[side].cost for pair in pairs], np.float64) for side in (0, 1))
    change = 100 * (b / a - 1)
    low, high = confidence_interval(change)
    first = pairs[0][0]
    return Paired(
        bench=first.bench,
        set=first.set,
        problem=first.problem,
        method=first.method,
        budget=first.budget,
        pairs=len(pairs),
        mean=float(change.mean()),
        low=low,
        high=high,
        wins=int((b < a * (1 - SAME)).sum()),
        losses=int((b > a * (1 + SAME)).sum()),
        seconds=(
            float(np.mean([pair[0].seconds for pair in pairs])),
            float(np.mean([pair[1].seconds for pair in pairs])),
        ),
    )


def confidence_interval(values: np.ndarray) -> tuple[float, float]:
    """Of the mean, by drawing the pairs again and again with replacement (bootstrap)."""
    random, number = np.random.default_rng(0), len(values)
    block = max(1, AT_ONCE // number)
    sizes = (min(block, RESAMPLES - begun) for begun in range(0, RESAMPLES, block))
    means = np.concatenate([values[random.integers(number, size=(size, number))].mean(1) for size in sizes])
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [outside, 1 - outside])
    return float(low), float(high)


def table(rows: list[Paired]) -> str:
    columns = ["set", "problem", "method", "budget", "pairs", "mean difference %", "95 % interval"]
    columns += ["B shorter", "B longer", "ties", "s each (A, B)", "verdict"]
    return markdown(
        columns,
        [
            [
                row.set,
                row.problem,
                row.method,
                row.budget,
                row.pairs,
                f"{row.mean:+.4f}",
                f"{row.low:+.4f} to {row.high:+.4f}",
                row.wins,
                row.losses,
                row.ties,
                f"{row.seconds[0]:.3g}, {row.seconds[1]:.3g}",
                row.verdict,
            ]
            for row in rows
        ],
    )
