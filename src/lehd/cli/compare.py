"""`lehd compare`: several trainings with the same budget, and one table of what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lehd.cli.common import reporting


def compare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The trainings and the test sets.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where each run gets a folder.")],
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the label files are.")] = Path(),
    sets: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the test sets are; tsp20 and tsp50 are made if missing.")
    ] = Path(),
    pause: Annotated[
        float | None, typer.Option(metavar="S", help="Stop after so many seconds; the same command goes on.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", show_default="chosen", help="cpu, cuda, cuda:1 …")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Replace a setting of the file; may be repeated."),
    ] = None,
) -> None:
    """Train several models with the same budget, measure them on the same test sets and print the table.

    What is done is not done again: stop it at any moment, the same command goes on.

    [bold]Examples[/bold]

      lehd compare configs/compare_norm_tsp100.toml --data labels --sets uniform --output runs/norm

      lehd compare configs/ortools_cvrp100.toml --data labels --sets uniform --output runs/or --set common.seconds=240
    """
    with reporting():
        from lehd.cli.train import Bar
        from lehd.training.compare import Compare, make_comparison
        from lehd.training.config import read_table

        comparison = make_comparison(read_table(config, changes or []), config)
        with Bar() as bar:

            def tell(words: str) -> None:
                bar.bars.stop()
                typer.echo(words, err=True)

            limit = float("inf") if pause is None else pause
            run = Compare(comparison, output, data, sets, device, bar, pause=limit, tell=tell)
            complete = run.run()
        typer.echo(run.table())
        if not complete:
            typer.echo(f"{output}: not done yet; the same command goes on", err=True)
