"""`lehd label`: seeded instances and a solver in, label files out; or labels in, better labels out."""

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
from lehd.work.engines import LOCAL, PROCESSES_HELP, find_engine

if TYPE_CHECKING:
    from lehd.labels.improve import Progress as Parts
    from lehd.labels.improve import Wish
    from lehd.labels.pool import Progress


def label(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|FILE",
            help="uniform_tsp, shapes_tsp, uniform_cvrp, varied_cvrp or x_type_cvrp; or a file of labels or instances.",
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
        float | None, typer.Option(metavar="S", help="Start no further shard or part after so many seconds.")
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
        int | None,
        typer.Option(metavar="K", min=1, show_default="chosen", help="Instances in a part, with --improve or a FILE."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="K", min=0, help="With --improve.")] = 0,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", show_default="chosen", help="cpu, cuda …, with --improve.")
    ] = None,
) -> None:
    """Make labels to train on: draw instances from a recipe and solve them on all cores, or improve those of a file.

    Stop it at any time; the same command goes on where it stopped. An instance that a solver fails on is left out.
    With a FILE in place of a recipe, its instances are solved again, and of old and new label the shorter one is kept.
    --improve WEIGHTS does so with a model in place of a solver; fresh instances of a recipe it labels with the model
    alone.

    [bold]Examples[/bold]

      lehd label uniform_tsp labels --shards 0 500 --merge labels/tsp100.npz

      lehd label x_type_cvrp labels --shards 0 100 --seconds 0.4

      lehd label shapes_tsp labels --shards 0 10 --solver lkh --binary ~/bin/LKH

      lehd label x_type_cvrp labels --shards 0 10000 --iterations 500 --cluster auto

      lehd label tsp100.npz parts --solver fast-tsp --seconds 0.1 --merge better.npz

      lehd label cvrp100.npz parts --improve weights.safetensors --iterations 200 --merge better.npz
    """
    with reporting():
        from lehd.data.label_file import names_a_file

        limit = float("inf") if budget is None else budget
        if improve is not None or names_a_file(recipe):
            from lehd.labels.improve import Wish

            wish = Wish(
                source=recipe,
                folder=folder,
                weights=improve,
                solver=solver,
                binary=binary,
                seconds=seconds,
                customers=customers,
                shards=shards,
                iterations=iterations,
                parallel=parallel,
                batch=batch,
                seed=seed,
                device=device,
                processes=processes,
                cluster=cluster,
                gpus=gpus,
                budget=limit,
                merge=merge,
            )
            _improve(wish)
            return
        if parallel or batch is not None or seed or device is not None or gpus:
            raise LehdError(
                "--parallel, --batch, --seed, --device and --gpus go with --improve WEIGHTS; --batch also with a FILE"
            )
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


def _improve(wish: Wish) -> None:
    from lehd.labels.improve import run

    with PartsBar() as bar:
        progress, labels = run(wish, bar)
    for line in (str(progress), *progress.troubles()):
        typer.echo(line, err=True)
    if wish.merge is not None:
        typer.echo(f"{count(labels, 'label')} in {wish.merge}")


class PartsBar(LiveBar):
    """Called with each Progress of better labels."""

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
