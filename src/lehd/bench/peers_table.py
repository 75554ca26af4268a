"""The table of `lehd bench peers`."""

from __future__ import annotations

from lehd.bench.store import Record
from lehd.bench.summary import Summary, summarise
from lehd.bench.text import NOTHING, duration, markdown, percent
from lehd.words import count

BENCH = "peers"
TOGETHER = "throughput"  # in a budget: the instances of a set were solved together


def peers_table(records: list[Record], missing: dict[str, str] | None = None) -> str:
    """One row for each solver and budget, a column for each set; the best of a budget in bold, whoever it is.

    A cell says how many instances it is about: some sets have fewer with long budgets.
    """
    summaries = summarise(record for record in records if record.bench == BENCH)
    sets = list(dict.fromkeys(f"{each.set} ({each.problem})" for each in summaries))
    budgets = sorted({(record.order, record.budget) for record in records if record.bench == BENCH})
    rows: list[list[object]] = []
    for _, budget in budgets:
        inside = [each for each in summaries if each.budget == budget]
        best = {name: min((_gap(e) for e in inside if f"{e.set} ({e.problem})" == name), default=0) for name in sets}
        for method, device in dict.fromkeys((each.method, each.device) for each in inside):
            cells: list[object] = []
            mine = [each for each in inside if (each.method, each.device) == (method, device)]
            for name in sets:
                found = [_cell(each, best[name]) for each in mine if f"{each.set} ({each.problem})" == name]
                cells.append("; ".join(found) or NOTHING)
            rows.append([method, budget, device, *cells])
    rows += [[method, reason, NOTHING, *[NOTHING] * len(sets)] for method, reason in (missing or {}).items()]
    columns = [f"{name}: gap % (s each)" for name in sets]
    return markdown(["solver", "seconds", "on", *columns], rows)


def _gap(summary: Summary) -> float:
    return float("inf") if summary.gap is None else summary.gap


def _cell(summary: Summary, best: float) -> str:
    if summary.gap is None:
        return "failed"
    words = percent(summary.gap)
    if float(words) <= float(percent(best)):  # what reads the same is as good
        words = f"**{words}**"
    failed = f", {summary.failed} failed" if summary.failed else ""
    cpu = "" if summary.cpu_seconds is None else f", {duration(summary.cpu_seconds / summary.instances)} CPU"
    tried = summary.instances + summary.failed
    return f"{words} ({duration(summary.seconds / tried)}{cpu}, {count(tried, 'instance')}{failed})"
