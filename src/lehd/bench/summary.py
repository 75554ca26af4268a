"""Many records in one row: mean gap, its uncertainty, and time.

The gap of a set of generated instances is the ratio of mean costs, that of a library the mean of the instances' gaps.
An instance that was measured with several seeds counts once, with the mean of its costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt
from statistics import mean, stdev
from typing import Any

from lehd.bench.store import LEHD, Key, Record

RATIO_OF_MEANS = ("uniform",)


@dataclass(frozen=True)
class Summary:
    """Records of one set, method and budget."""

    set: str
    problem: str
    nodes: int  # the most any instance has
    method: str
    budget: str
    instances: int  # with a solution
    seeds: int  # that each of them was measured with, at least
    failed: int
    cost: float | None
    gap: float | None
    standard_error: float | None  # of the gap of a set of generated instances: another set, or seed, may differ so much
    seconds: float  # all instances together, with one seed
    cpu_seconds: float | None  # the same on CPU cores, where looked at
    weights: str
    device: str
    batch: int

    @property
    def label(self) -> str:
        return self.budget if self.method == LEHD else f"{self.method} {self.budget}"

    def line(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {
            "set": self.set,
            "instances": self.instances,
            "weights": self.weights,
            "device": self.device,
            "method": self.label,
            "cost": self.cost,
            "gap": self.gap,
            "standard_error": self.standard_error,
            "seconds": round(self.seconds, 2),
        }


def summarise(records: Iterable[Record], paper: bool = False) -> list[Summary]:
    """A summary for every set, method, budget, weights and device, by size and budget.

    With `paper` gaps are in the paper's convention, of the paper's instances alone.
    """
    groups: dict[Key, list[Record]] = {}
    for record in records:
        if paper and record.paper_reference is None:
            continue
        groups.setdefault(record.run, []).append(record)
    summaries = [(_summary(group, paper), group[0].order) for group in groups.values()]
    ordered = sorted(summaries, key=lambda pair: (pair[0].problem, pair[0].nodes, pair[0].set, pair[1]))
    return [summary for summary, _ in ordered]


def _summary(group: list[Record], paper: bool) -> Summary:
    seeds = min(Counter(record.instance for record in group).values())
    by_seed: dict[int, list[Record]] = {}
    for record in group if seeds > 1 else []:  # of other instances a seed's gap would differ for another reason
        by_seed.setdefault(record.seed, []).append(record)
    group = over_seeds(group)
    solved = [record for record in group if record.cost is not None]
    first = group[0]
    costs = [record.cost for record in solved if record.cost is not None]
    return Summary(
        set=first.set,
        problem=first.problem,
        nodes=max(record.nodes for record in group),
        method=first.method,
        budget=first.budget,
        instances=len(solved),
        seeds=seeds,
        failed=len(group) - len(solved),
        cost=mean(costs) if costs else None,
        gap=mean_gap(solved, paper),
        standard_error=standard_error(solved, list(by_seed.values())),
        seconds=sum(record.seconds for record in group),
        cpu_seconds=sum(cpu) if (cpu := [r.cpu_seconds for r in solved if r.cpu_seconds is not None]) else None,
        weights=first.weights,
        device=first.device,
        batch=max(record.batch for record in group),
    )


def over_seeds(records: Iterable[Record]) -> list[Record]:
    """Records that differ in their seeds alone as one: the mean of those with a solution."""
    same: dict[Key, list[Record]] = {}
    for record in records:
        same.setdefault((record.instance, *record.run), []).append(record)
    return [_mean([each for each in found if each.cost is not None] or found[:1]) for found in same.values()]


def _mean(records: list[Record]) -> Record:
    if len(records) == 1:
        return records[0]

    def over(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return mean(known) if known else None

    return replace(
        records[0],
        cost=over(record.cost for record in records),
        paper_cost=over(record.paper_cost for record in records),
        seconds=mean(record.seconds for record in records),
        cpu_seconds=over(record.cpu_seconds for record in records),
    )


def mean_gap(records: list[Record], paper: bool = False) -> float | None:
    """The gap of a set, in per cent; None where there are no references."""
    if paper:
        gaps = [record.paper_gap for record in records if record.paper_gap is not None]
        return mean(gaps) if gaps else None
    known = _known(records)
    if not known:
        return None
    if records[0].bench in RATIO_OF_MEANS:
        return 100 * (sum(cost for cost, _ in known) / sum(reference for _, reference in known) - 1)
    return mean(100 * (cost / reference - 1) for cost, reference in known)


def standard_error(records: list[Record], by_seed: Sequence[list[Record]] = ()) -> float | None:
    """Of the ratio of mean costs, in per cent; None for files, which nobody drew at random, and for less than two.

    All instances of a run share some of its draws, such as the lengths of RRC's parts: with several seeds the spread of
    their gaps counts, too.
    """
    known = _known(records)
    if len(known) < 2 or records[0].bench not in RATIO_OF_MEANS:
        return None
    total, n = sum(reference for _, reference in known), len(known)
    ratio = sum(cost for cost, _ in known) / total
    squares = sum((cost - ratio * reference) ** 2 for cost, reference in known)
    over_instances = 100 * sqrt(squares / (n * (n - 1))) * n / total
    gaps = [gap for each in by_seed if (gap := mean_gap(each)) is not None]
    return hypot(over_instances, stdev(gaps) / sqrt(len(gaps))) if len(gaps) > 1 else over_instances


def _known(records: list[Record]) -> list[tuple[float, float]]:
    """Costs and references, where there are both."""
    return [(record.cost, record.reference) for record in records if record.cost and record.reference]
