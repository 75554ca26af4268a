"""`lehd label`: seeded instances and a solver in, label files out; or labels and a model in, better labels out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from lehd.cli.bar import LiveBar
from lehd.cli.common import reporting
from lehd.cli.work_options import Cluster, Gpus
from lehd.errors import LehdError
from lehd.words import count
from lehd.work.engines import LOCAL, PROCESSES_HELP, find_crew, find_engine

if TYPE_CHECKING:
    from lehd.labels.improve import Progress as Parts
    from lehd.labels.parts import Settings
    from lehd.labels.pool import Progress
    from lehd.work.units import Engine, Needs


def label(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|FILE",
            help="uniform_tsp, shapes_tsp, uniform_cvrp, varied_cvrp or x_type_cvrp; with --improve also a label file.",
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where each finished shard or part becomes a file.")],
    customers: Annotated[int, typer.Option(metavar="N", help="Nodes to visit in each instance.")] = 100,
    shards: Annotated[
        tuple[int, int], typer.Option(metavar="FIRST END", help="Shards of 100 instances, counted like Python's range.")
    ] = (0, 0),
    processes: Annotated[
        int | None, typer.Option(metavar="K", min=1, show_default="all cores; 1 with --improve", help=PROCESSES_HELP)
    ] = None,
    cluster: Cluster = LOCAL,
    gpus: Gpus = 0.0,
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
        Path | None, typer.Option(metavar="FILE", help="Join all shards or parts in the folder into one label file.")
    ] = None,
    improve: Annotated[
        Path | None,
        typer.Option(metavar="WEIGHTS", help="Label with a model: RRC on the labels of FILE, the shorter one is kept."),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            show_default="100 with --improve",
            help="RRC iterations; of hgs: so many without progress, in place of --seconds.",
        ),
    ] = None,
    parallel: Annotated[
        bool, typer.Option("--parallel", help="Many parts of a solution in an iteration, with --improve.")
    ] = False,
    batch: Annotated[
        int | None, typer.Option(metavar="K", min=1, show_default="chosen", help="Instances at once, with --improve.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="K", min=0, help="With --improve.")] = 0,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", show_default="chosen", help="cpu, cuda …, with --improve.")
    ] = None,
) -> None:
    """Make labels to train on: draw instances from a recipe and solve them on all cores, or let a model improve them.

    Stop it at any time; the same command goes on where it stopped. An instance that a solver fails on is left out.
    --improve takes the labels of a file and keeps whichever is shorter, theirs or the model's; fresh instances of a
    recipe it labels with the model alone.

    [bold]Examples[/bold]

      lehd label uniform_tsp labels --shards 0 500 --merge labels/tsp100.npz

      lehd label x_type_cvrp labels --shards 0 100 --seconds 0.4

      lehd label shapes_tsp labels --shards 0 10 --solver lkh --binary ~/bin/LKH

      lehd label x_type_cvrp labels --shards 0 10000 --iterations 500 --cluster auto

      lehd label cvrp100.npz parts --improve weights.safetensors --iterations 200 --merge better.npz
    """
    with reporting():
        limit = float("inf") if budget is None else budget
        if improve is not None:
            if any(option is not None for option in (solver, binary, seconds)):
                raise LehdError("--solver, --binary and --seconds are for solvers; --improve uses a model")
            from lehd.labels.parts import ITERATIONS, Settings

            rounds = ITERATIONS if iterations is None else iterations
            settings = Settings(rounds, parallel, batch, seed)
            crew = find_crew(cluster, processes, gpus)
            _improve(recipe, folder, improve, customers, shards, settings, limit, merge, device, *crew)
            return
        if parallel or batch is not None or device is not None or gpus:
            raise LehdError("--parallel, --batch, --device and --gpus go with --improve WEIGHTS")
        from lehd.labels.pool import run

        if not len(range(*shards)) and merge is None:
            raise LehdError("nothing to do: give --shards FIRST END, --merge FILE or both")
        engine = find_engine(cluster, processes)
        with Bar() as bar:
            merged = run(
                recipe, folder, customers, shards, engine, solver, seconds, iterations, binary, limit, merge, bar
            )
        if bar.last is not None:
            typer.echo(str(bar.last), err=True)
            for failure in bar.last.failures:
                typer.echo(f"no label: {failure}", err=True)
        if merged is not None:
            typer.echo(f"{count(merged, 'label')} in {merge}")


def _improve(
    source: str,
    folder: Path,
    weights: Path,
    customers: int,
    shards: tuple[int, int],
    settings: Settings,
    budget: float,
    merge: Path | None,
    device: str | None,
    engine: Engine | None,
    needs: Needs,
) -> None:
    from lehd.labels.improve import run

    with PartsBar() as bar:
        progress, labels = run(
            source, folder, weights, customers, shards, settings, budget, merge, device, bar, engine, needs
        )
    typer.echo(str(progress), err=True)
    for failure in progress.failures:
        typer.echo(f"failed: {failure}", err=True)
    if not progress.complete:
        left = count(progress.total_parts - progress.parts, "part")
        typer.echo(f"{left} left: the same command goes on", err=True)
    if merge is not None:
        typer.echo(f"{count(labels, 'label')} in {merge}")


class PartsBar(LiveBar):
    """Called with each Progress of a model's labels."""

    def __init__(self) -> None:
        super().__init__(TextColumn("improving", style="cyan"), BarColumn(bar_width=24), TimeRemainingColumn(), total=1)

    def __enter__(self) -> Self:
        return self  # the display starts with the first look: other steps may come before

    def __call__(self, progress: Parts) -> None:
        if self.due():
            self.bars.start()
            self.bars.update(self.task, completed=progress.share, state=str(progress), refresh=True)


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
