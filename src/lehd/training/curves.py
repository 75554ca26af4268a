"""A picture of a run's log: loss, accuracy and greedy gap over the steps."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from lehd.errors import LehdError, writing
from lehd.training.log import NAME, read_log

INK, GREY = "#1f2933", "#52606d"
PALE, STRONG, WARM = "#9fb3c8", "#1f6f8b", "#e8871e"
# Title of a panel: for each of its lines the name in the log, the legend and the colour.
PANELS = {
    "loss": (
        ("loss", "training", PALE),
        ("validation_loss", "held out", STRONG),
        ("average_validation_loss", "held out, averaged weights", WARM),
    ),
    "accuracy": (
        ("accuracy", "training", PALE),
        ("validation_accuracy", "held out", STRONG),
        ("average_validation_accuracy", "held out, averaged weights", WARM),
    ),
    "cost": (
        ("cost", "sampled", PALE),
        ("best_cost", "best of the starts", STRONG),
        ("greedy_cost", "greedy", WARM),
        ("average_greedy_cost", "greedy, averaged weights", INK),
    ),
    "greedy gap in %": (
        ("greedy_gap", "weights", STRONG),
        ("average_greedy_gap", "averaged weights", WARM),
    ),
    "learning rate": (("learning_rate", "", STRONG),),
}
LOGARITHMIC = ("loss", "greedy gap in %")
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def plot_curves(folder: Path, path: Path) -> Figure:
    """Draw the log in a run's folder and write the picture."""
    records = read_log(folder)
    if not records:
        raise LehdError(f"{folder / NAME}: no lines to draw")
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    known = {name for record in records for name in record}
    panels = [(title, lines) for title, lines in PANELS.items() if any(name in known for name, *_ in lines)]
    grid = figure.subplots(-(-len(panels) // 2), 2, squeeze=False).flat
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, (title, lines) in zip(grid, panels, strict=False):
        curves = [([r for r in records if name in r], name, legend, colour) for name, legend, colour in lines]
        for found, name, legend, colour in filter(lambda curve: curve[0], curves):
            marker = "o" if len(found) < 30 else ""
            steps, values = [r["step"] for r in found], [r[name] for r in found]
            axes.plot(steps, values, color=colour, label=legend or None, marker=marker, markersize=3)
        if title in LOGARITHMIC and all(r[name] > 0 for found, name, *_ in curves for r in found):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(PLAIN)
            axes.yaxis.set_minor_formatter(PLAIN)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize=8)
        axes.set_title(title, loc="left", fontsize=11, color=INK)
        axes.set_xlim(left=0)
        axes.set_xlabel("step", fontsize=8, color=GREY)
        axes.tick_params(which="both", colors=GREY, labelsize=8)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with writing(path):
            figure.savefig(temporary, format=path.suffix[1:], dpi=130)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return figure
