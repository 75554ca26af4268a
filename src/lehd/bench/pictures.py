"""The pictures of a report: gap over time, gap over size, and tours as in the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lehd import problems
from lehd.bench.library import CASES, SHOWN, Case
from lehd.bench.peers_table import BENCH as PEERS
from lehd.bench.peers_table import TOGETHER
from lehd.bench.store import BUDGET, LEHD, TURNED, Key, Record, order
from lehd.bench.summary import Summary, summarise
from lehd.io import read
from lehd.io.solution import read_solution
from lehd.io.write import replacing
from lehd.plot import FRAME, GREY, HUES, INK, draw_routes, draw_tour
from lehd.types import Result
from lehd.words import brief, count, gap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 2000  # an axis from 1 to more than this names powers of ten alone


def draw_all(
    records: list[Record], folder: Path, data: Path | None = None, solutions: Path | None = None
) -> list[Path]:
    """Every picture there is something to draw for, as PNG in a folder; their paths.

    Tours need the folder `data` of the benchmark files and the folder `solutions` that a run wrote.
    """
    pictures = {
        "gap-over-time": gap_over_time(records),
        "gap-over-size": gap_over_size(records),
        "solvers-over-time": solvers_over_time(records),
    }
    if data is not None and solutions is not None:
        pictures |= {f"tours-{name}": tours(name, data, solutions) for name in SHOWN}
    written = []
    for name, figure in pictures.items():
        if figure is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.png"
            with replacing(path) as temporary:
                figure.savefig(temporary, format="png", dpi=110)
            written.append(path)
    return written


def gap_over_time(records: list[Record]) -> Figure | None:
    """The points of the runs on uniform sets."""

    def run(each: Record | Summary) -> tuple[str, ...]:
        name, _, nearest = each.budget.partition(", ")
        kinds = [", search" if name.endswith(" s") else "", f",{TURNED}" if name.endswith(TURNED) else ""]
        kind = "".join(kinds) + (f", {nearest}" if nearest else "")
        return each.problem, each.set, f"{each.device}{kind}, {each.weights}"

    curves = _by(summarise(_shared((record for record in records if record.bench == "uniform"), run)), run)
    curves = {key: points for key, points in curves.items() if len(points) > 1}
    return _curves(curves, "Uniform sets: greedy, then RRC; or search") if curves else None


def solvers_over_time(records: list[Record]) -> Figure | None:
    """lehd and the others, by what they need for an instance."""
    alone = (record for record in records if record.bench == PEERS and not record.budget.endswith(TOGETHER))

    def line(each: Summary) -> tuple[str, ...]:
        return f"{each.problem}, {count(each.instances, 'instance')}", each.set, each.method

    curves = _by(summarise(_shared(alone, lambda record: (record.problem, record.set))), line)
    return _curves(curves, "Solvers on the same instances") if curves else None


def _shared(records: Iterable[Record], beside: Callable[[Record], tuple[str, ...]]) -> list[Record]:
    """Of the records that are seen beside each other, those of instances that were solved with every method and budget:
    points of others would show how instances differ."""
    solved = [record for record in records if record.gap is not None]
    points: dict[tuple[str, ...], dict[Key, set[str]]] = {}
    for record in solved:
        points.setdefault(beside(record), {}).setdefault(record.key[4:], set()).add(record.instance)
    shared = {place: set.intersection(*found.values()) for place, found in points.items()}
    return [record for record in solved if record.instance in shared[beside(record)]]


def _by(summaries: list[Summary], key: Callable[[Summary], tuple[str, ...]]) -> dict[tuple[str, ...], list[Summary]]:
    groups: dict[tuple[str, ...], list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(key(summary), []).append(summary)
    return groups


def _curves(curves: dict[tuple[str, ...], list[Summary]], title: str) -> Figure:
    """A panel for each problem and, where solvers are compared, set; a line for each last part of the key."""
    compared = any(summary.method != LEHD for points in curves.values() for summary in points)
    panels = list(dict.fromkeys(key[:2] if compared else key[:1] for key in curves))
    labels = list(dict.fromkeys(key[len(panels[0]) :] for key in curves))
    figure, all_axes = _figure(len(panels), title)
    for axes, panel in zip(all_axes, panels, strict=True):
        inside = [(key, points) for key, points in curves.items() if key[: len(panel)] == panel]
        for key, points in inside:
            number = labels.index(key[len(panel) :])  # one colour in all panels
            seconds = [each.seconds / max(1, each.instances) for each in points]
            gaps = [each.gap for each in points if each.gap is not None]
            label = ", ".join(key[len(panel) :])
            width = 2.4 if compared and key[-1] == LEHD else 1.4
            axes.plot(seconds, gaps, "o-", color=HUES[number % len(HUES)], linewidth=width, markersize=4, label=label)
        _finish(axes, " ".join(reversed(panel)), "seconds per instance", "gap, %")
    return figure


def gap_over_size(records: list[Record]) -> Figure | None:
    """Every benchmark file a dot, by its number of nodes."""
    libraries = [name for name in CASES if any(record.bench == name for record in records)]
    if not libraries:
        return None
    figure, all_axes = _figure(len(libraries), "Benchmark files: gap to the best known, by the files' own rule")
    for axes, name in zip(all_axes, libraries, strict=True):
        inside = [record for record in records if record.bench == name and record.gap is not None]
        for number, budget in enumerate(dict.fromkeys(each.budget for each in sorted(inside, key=lambda e: e.order))):
            chosen = [record for record in inside if record.budget == budget]
            sizes, gaps = [record.nodes for record in chosen], [record.gap or 0.0 for record in chosen]
            axes.scatter(sizes, gaps, s=14, color=HUES[number % len(HUES)], alpha=0.75, linewidths=0, label=budget)
        _finish(axes, name.upper(), "nodes to visit", "gap, %")
    return figure


def tours(name: str, data: Path, solutions: Path) -> Figure | None:
    """Reference, greedy, the longest RRC and the longest search side by side; None where nothing of this is there."""
    case = next((case for library in CASES for case in _cases(library, data) if case.path.stem == name), None)
    found = {path.stem.removeprefix(f"{name}."): path for path in solutions.glob(f"{name}.*")}
    found = {budget: path for budget, path in found.items() if BUDGET.fullmatch(budget)}  # others are not ours
    if case is None or not found:
        return None
    longest: dict[str, str] = {}  # by the kind of budget: greedy, RRC, or seconds
    for budget in sorted(found, key=order):
        longest["s" if budget.endswith(" s") else budget.partition(" ")[0]] = budget
    files = {"reference": _reference(case), **{budget: found[budget] for budget in longest.values()}}
    figure, all_axes = _figure(len(files), f"{name}, {case.nodes} nodes")
    for axes, (title, path) in zip(all_axes, files.items(), strict=True):
        instance = read(case.path)
        solution = read_solution(path, instance)
        cost = problems.of(instance).cost(instance, solution)[0].item()
        draw = draw_tour if instance.demands is None else draw_routes
        draw(axes, Result(instance, solution, cost, (), 0.0, 0, 0, ""))
        axes.set(xticks=[], yticks=[], xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
        axes.spines[:].set_color(FRAME)
        words = "" if title == "reference" else f" ({gap(cost, case.best_known)})"
        axes.set_title(f"{title}: {brief(cost)}{words}", fontsize=9.5, color=INK)
    return figure


def _cases(library: str, data: Path) -> list[Case]:
    return list(CASES[library](data / library)) if (data / library).is_dir() else []


def _reference(case: Case) -> Path:
    if case.library == "tsplib":
        return case.path.parent / "tours" / f"{case.path.stem}.tour"
    return case.path.with_suffix(".sol")


def _figure(panels: int, title: str) -> tuple[Figure, list[Axes]]:
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = Figure(figsize=(5.2 * columns, 4.2 * rows + 0.4), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12, color=INK, x=0.01, ha="left")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in grid[panels:]:
        unused.remove()
    return figure, grid[:panels]


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < WIDE * low else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel(x, fontsize=9, color=GREY)
    axes.set_ylabel(y, fontsize=9, color=GREY)
    axes.grid(color="#e8ebef", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5, colors=GREY)
    axes.spines[:].set_color(FRAME)
    axes.legend(fontsize=8, framealpha=0.85, edgecolor=FRAME)
