"""Pictures of results: the tour or the routes, and the cost over time.

Figures are built with matplotlib's objects alone, without pyplot, so that drawing leaves no global state behind and
works in threads and notebooks alike.
"""

from __future__ import annotations

import colorsys
import math
import warnings
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from lehd import problems
from lehd.io.write import check_ending, replacing
from lehd.problems.base import unit_box
from lehd.types import Result
from lehd.words import brief, count, gap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from lehd.types import Instances, Solution

PICTURES = (".png", ".svg", ".pdf")

INK, GREY, FRAME, TOUR = "#1f2933", "#52606d", "#d9dee4", "#1f6f8b"
# Ten hues that stay apart from their neighbours; more routes take them again in lighter and darker tones.
HUES = ("#1f77b4", "#e8871e", "#2a9d4a", "#c8372d", "#7d5ba6", "#8c564b", "#d45fa8", "#17a2b8", "#8a9a13", "#3d4f9e")
TONES = (1.0, 0.72, 1.25)

MARKED = 3_000  # above so many nodes their markers would cover the lines
FILLED = 10_000  # above so many nodes the inside of a tour is no longer shaded
DASHED = 30_000  # above so many nodes dashes are no longer than a pixel, and take most of the time
NAMED = 30  # up to so many nodes each shows its name


def plot_result(result: Result, path: str | Path | None = None, optimum: float | None = None) -> Figure:
    """Draw a result; write it where `path` (PNG, SVG or PDF) is given. `optimum` adds the gap to the title."""
    title = f"{result.name}: cost {brief(result.cost)}"
    if optimum is not None and optimum > 0:
        title += f", {gap(result.cost, optimum)}"
    return _picture(result, title, path)


def picture_of(result: Result, ending: str = ".png") -> bytes:
    """The drawing of a result as the content of a file, for others to write."""
    content = BytesIO()
    _save(plot_result(result), content, ending)
    return content.getvalue()


def plot_solution(
    instances: Instances, solution: Solution, title: str | None = None, path: str | Path | None = None
) -> Figure:
    """Draw a solution that has no history, such as one read from a file."""
    cost = problems.of(instances).cost(instances, solution)[0].item()
    result = Result(instances, solution, cost, history=(), seconds=0.0, iterations=0, seed=0, model="")
    return _picture(result, f"{result.name}: cost {brief(cost)}" if title is None else title, path)


def _picture(result: Result, title: str, path: str | Path | None) -> Figure:
    if path is not None:
        check_ending(Path(path), PICTURES)
    figure, solution_axes, history_axes = _layout(result)
    solution_axes.set_title(_literal(title), loc="left", fontsize=13, fontweight="bold", color=INK, pad=24)
    solution_axes.annotate(
        _caption(result), (0, 1), (0, 7), "axes fraction", textcoords="offset points", fontsize=9.5, color=GREY
    )
    if result.problem == "TSP":
        draw_tour(solution_axes, result)
    else:
        draw_routes(solution_axes, result)
    _draw_names(solution_axes, result)
    if history_axes is not None:
        _draw_history(history_axes, result)
    if path is not None:
        with replacing(Path(path)) as temporary:
            _save(figure, temporary, Path(path).suffix)
    return figure


def _save(figure: Figure, target: Any, ending: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script the font lacks is no reason to complain
        figure.savefig(target, format=ending[1:].lower(), dpi=150)


def _layout(result: Result) -> tuple[Figure, Axes, Axes | None]:
    """A figure that fits the instance's shape: the history goes beside it, below where the instance is wide."""
    extent = _positions(result).max(0)
    width, height = (max(float(part), 0.4) for part in extent)
    side = 7.0  # inches of the longer side
    margins = ConstrainedLayoutEngine(compress=True, w_pad=0.12, h_pad=0.12)
    history = None
    if not result.history:
        figure = Figure(figsize=(side * width + 0.6, side * height + 0.9), layout=margins)
        axes = figure.add_subplot()
    elif width > 1.6 * height:
        figure = Figure(figsize=(side + 2.0, side * height + 3.9), layout=margins)
        axes, history = figure.subplots(2, 1, height_ratios=[side * height, 2.2])
    else:
        figure = Figure(figsize=(side * width + 4.2, side * height + 0.9), layout=margins)
        axes, history = figure.subplots(1, 2, width_ratios=[side * width, 3.4])
    FigureCanvasAgg(figure)

    axes.set_aspect("equal")
    for limits, middle, part in ((axes.set_xlim, extent[0] / 2, width), (axes.set_ylim, extent[1] / 2, height)):
        limits(middle - part / 2 - 0.04, middle + part / 2 + 0.04)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(FRAME)
    return figure, axes, history


def _caption(result: Result) -> str:
    instance = result.instance
    if instance.demands is None:
        words = count(instance.num_nodes, "node")
    else:
        assert instance.capacity is not None
        words = f"{count(instance.num_nodes - 1, 'customer')}, {count(len(result.routes), 'route')}"
        words += f" of capacity {brief(instance.capacity[0].item())}"
    words += f", {instance.rule.name} distances"
    if instance.matrix is not None:
        words += " from a matrix; positions are a sketch"
    return words


def _literal(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _positions(result: Result) -> NDArray[Any]:
    """Positions scaled to the unit box: the axes show no numbers, and no span is too large or too small to draw."""
    positions: NDArray[Any] = unit_box(result.instance.coords)[0].cpu().numpy()
    return positions


def _line_width(nodes: int) -> float:
    return max(0.15, 1.7 * math.pow(min(1.0, 100 / nodes), 0.32))


def draw_tour(axes: Axes, result: Result) -> None:
    positions, nodes = _positions(result), result.instance.num_nodes
    tour = result.tour
    path = positions[[*tour, tour[0]]]
    if nodes <= FILLED:
        axes.add_collection(PolyCollection([path], facecolor=TOUR, alpha=0.07, zorder=1), autolim=False)
    lines = LineCollection([path], colors=TOUR, linewidths=_line_width(nodes), joinstyle="round", zorder=2)
    axes.add_collection(lines, autolim=False)
    _draw_nodes(axes, positions, INK)


def draw_routes(axes: Axes, result: Result) -> None:
    positions, nodes = _positions(result), result.instance.num_nodes
    depot = positions[0]
    width = _line_width(nodes)

    def bearing(route: list[int]) -> float:
        middle = positions[route].mean(0) - depot
        return math.atan2(middle[1], middle[0])

    # Neighbours around the depot take neighbouring colours of the cycle, which differ most.
    routes = sorted(result.routes, key=bearing)
    colours = _colours(len(routes))
    inner = LineCollection([positions[route] for route in routes], colors=colours, linewidths=width, zorder=3)
    axes.add_collection(inner, autolim=False)
    # The way from and to the depot is drawn lightly: there all routes meet.
    ends = positions[[end for route in routes for end in (route[0], route[-1])]]
    legs = list(np.stack([np.broadcast_to(depot, ends.shape), ends], 1))
    leg_colours = [colour for colour in colours for _ in range(2)]
    dashed = nodes <= DASHED
    outer = LineCollection(
        legs,
        colors=leg_colours,
        linewidths=0.6 * width,
        alpha=0.55 if dashed else 0.55 * 4 / 6,  # as much ink
        linestyles=[(0, (4, 2))] if dashed else "solid",
        zorder=2,
    )
    axes.add_collection(outer, autolim=False)
    if 1 < nodes <= MARKED + 1:
        colour_of = {node: colour for route, colour in zip(routes, colours, strict=True) for node in route}
        _draw_nodes(axes, positions[1:], [colour_of[node] for node in range(1, nodes)])
    axes.scatter(
        depot[0], depot[1], s=90, marker="s", color=INK, edgecolors="white", linewidths=1.2, zorder=6, label="depot"
    )
    axes.legend(loc="best" if nodes <= MARKED else "upper right", fontsize=9, framealpha=0.85, edgecolor=FRAME)


def _draw_nodes(axes: Axes, positions: NDArray[Any], colours: Any) -> None:
    if len(positions) <= MARKED:
        size = min(26.0, max(1.2, 2600 / len(positions)))
        edge = 0.5 if size > 6 else 0.0
        axes.scatter(positions[:, 0], positions[:, 1], s=size, c=colours, edgecolors="white", linewidths=edge, zorder=4)


def _draw_names(axes: Axes, result: Result) -> None:
    nodes = result.instance.num_nodes
    if nodes > NAMED:
        return
    names = result.instance.node_names or [str(node) for node in range(nodes)]
    for name, position in zip(names, _positions(result), strict=True):
        axes.annotate(_literal(name), position, (4, 4), textcoords="offset points", fontsize=7.5, color=GREY, zorder=5)


def _draw_history(axes: Axes, result: Result) -> None:
    """Costs as steps: an incumbent holds until a better one comes, the last until the end."""
    seconds = [point.seconds for point in result.history]
    costs = [point.cost for point in result.history]
    end = max(result.seconds, seconds[-1])
    axes.step([*seconds, end], [*costs, costs[-1]], where="post", color=TOUR, linewidth=1.6)
    axes.scatter([seconds[0], end], [costs[0], costs[-1]], s=18, color=TOUR, zorder=3)
    axes.set_xlim(0, 1.04 * end if end > 0 else 1.0)
    gain = 1 - costs[-1] / costs[0] if costs[0] > 0 else 0.0
    words = f"cost over time: {100 * gain:.2f} % gained" if gain > 0 else "cost over time"
    axes.set_title(words, loc="left", fontsize=9.5, color=GREY)
    axes.set_xlabel("seconds", fontsize=9, color=GREY)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    if max(map(abs, costs)) >= 1e7 or 0 < max(map(abs, costs)) < 1e-3:
        axes.ticklabel_format(axis="y", useOffset=False, style="sci", scilimits=(0, 0))
    axes.tick_params(labelsize=8.5, colors=GREY)
    axes.grid(color="#e8ebef", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_color(FRAME)
    axes.spines[["top", "right"]].set_visible(False)


def _colours(count: int) -> list[tuple[float, float, float]]:
    """So many colours, neighbours always of different hue."""
    return [_tone(HUES[number % len(HUES)], TONES[number // len(HUES) % len(TONES)]) for number in range(count)]


@cache
def _tone(colour: str, factor: float) -> tuple[float, float, float]:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    return colorsys.hls_to_rgb(hue, min(0.75, lightness * factor), saturation)
