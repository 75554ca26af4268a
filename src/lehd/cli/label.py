"""`lehd label`: seeded instances and a solver in, label files out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from lehd.cli.bar import LiveBar
from lehd.cli.common import reporting
from lehd.errors import LehdError
from lehd.words import count

if TYPE_CHECKING:
    from lehd.labels.pool import Progress


def label(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="uniform_tsp, shapes_tsp, uniform_cvrp, varied_cvrp or x_type_cvrp.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where each finished shard becomes a file.")],
    customers: Annotated[int, typer.Option(metavar="N", help="Nodes to visit in each instance.")] = 100,
    shards: Annotated[
        tuple[int, int], typer.Option(metavar="FIRST END", help="Shards of 100 instances, counted like Python's range.")
    ] = (0, 0),
    processes: Annotated[
        int | None, typer.Option(metavar="K", min=1, show_default="all cores", help="Instances solved at a time.")
    ] = None,
    solver: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default="fast-tsp or hgs", help="fast-tsp, hgs, ortools, or your own lkh or concorde."
        ),
    ] = None,
    binary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The program of --solver lkh or --solver concorde.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", show_default="the solver's own", help="Time for each instance.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="S", help="Start no further shard after so many seconds.")
    ] = None,
    merge: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Join all shards in the folder into one label file.")
    ] = None,
) -> None:
    """Make labels to train on: draw instances from a recipe and solve them on all cores.

    Stop it at any time; the same command goes on where it stopped. An instance that a solver fails on is left out.

    [bold]Examples[/bold]

      lehd label uniform_tsp labels --shards 0 500 --merge labels/tsp100.npz

      lehd label x_type_cvrp labels --shards 0 100 --seconds 0.4

      lehd label shapes_tsp labels --shards 0 10 --solver lkh --binary ~/bin/LKH
    """
    with reporting():
        from lehd.labels.pool import run

        if not len(range(*shards)) and merge is None:
            raise LehdError("nothing to do: give --shards FIRST END, --merge FILE or both")
        limit = float("inf") if budget is None else budget
        with Bar() as bar:
            merged = run(recipe, folder, customers, shards, processes, solver, seconds, binary, limit, merge, bar)
        if bar.last is not None:
            typer.echo(str(bar.last), err=True)
            for failure in bar.last.failures:
                typer.echo(f"no label: {failure}", err=True)
        if merged is not None:
            typer.echo(f"{count(merged, 'label')} in {merge}")


class Bar(LiveBar):
    """Called with each Progress."""

    def __init__(self) -> None:
        super().__init__(TextColumn("labelling", style="cyan"), BarColumn(bar_width=24), TimeRemainingColumn())
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        from lehd.data.dataset import SHARD

        self.last = progress
        if self.due():
            total = progress.total_shards * SHARD
            self.bars.update(self.task, completed=progress.instances, total=total, state=str(progress), refresh=True)
