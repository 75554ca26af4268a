"""`lehd bench`: the paper's tables at one command each, other solvers, speed, and reports of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lehd.cli.bench_options import words
from lehd.cli.bench_quality import cvrplib, peers, tsplib, uniform
from lehd.cli.bench_speed import speed, train
from lehd.cli.common import reporting


def report(
    results: Annotated[Path, typer.Argument(metavar="A", help="A file or folder of results.")],
    other: Annotated[Path | None, typer.Argument(metavar="[B]", help="A second one: compare B with A.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.md", show_default="printed", help="The report.")
    ] = None,
    pictures: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the report's pictures go.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="FOLDER", envvar="LEHD_DATA", help="The benchmark files, for pictures of tours."
        ),
    ] = None,
    solutions: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Solutions that a run wrote, for pictures of tours.")
    ] = None,
) -> None:
    """A Markdown report of results; of two files, a comparison instance by instance.

    [bold]Examples[/bold]

      lehd bench report results --output docs/results.md --pictures docs/pictures/results

      lehd bench report before.jsonl after.jsonl
    """
    with reporting():
        from lehd.bench.report import compare_files, read_results, write_report

        if other is not None:
            text = compare_files(results, other)
        else:
            text = write_report(read_results([results]), output, pictures, data, solutions)
        if output is None:
            typer.echo(text)
        elif other is not None:
            output.write_text(text + "\n", encoding="utf-8")


def sets(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where each set becomes a file.")],
    names: Annotated[str, typer.Option(metavar="A,B…", show_default="all", help="tsp100_s2023, cvrp200 …")] = "",
    solver: Annotated[
        str | None, typer.Option(metavar="NAME", help="Makes references: fast-tsp, hgs, ortools, lkh or concorde.")
    ] = None,
    binary: Annotated[Path | None, typer.Option(metavar="FILE", help="The program of lkh or concorde.")] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", show_default="the solver's own", help="For each reference.")
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="References that were found before, NAME-costs.npz.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Test sets that are there, NAME.npz; not drawn.")
    ] = None,
    processes: Annotated[int | None, typer.Option(metavar="K", min=1, show_default="all cores")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the first so many instances.")] = None,
) -> None:
    """Draw the test sets whose seeds are known, or take files; and compute references for them.

    [bold]Examples[/bold]

      lehd bench sets data/uniform --names cvrp200 --solver hgs --seconds 10

      lehd bench sets mine/uniform --from data/uniform --names tsp200,tsp500 --solver lkh --binary ./LKH --seconds 60
    """
    with reporting():
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        from lehd.bench.make import choose_sets, make_set
        from lehd.cli.bar import LiveBar

        chosen, left_out = choose_sets(words(names), solver, costs, source)
        for name in left_out:
            typer.echo(f"{name}: left out, not a problem that {solver} solves", err=True)
        for name in chosen:
            with LiveBar(TextColumn(name), BarColumn(bar_width=24), TimeRemainingColumn()) as bar:

                def show(done: int, total: int, bar: LiveBar = bar) -> None:
                    if bar.due():
                        state = f"{done} of {total} references"
                        bar.bars.update(bar.task, completed=done, total=total, state=state, refresh=True)

                path = make_set(name, folder, solver, seconds, limit, processes, binary, show, costs, source)
            typer.echo(str(path))


bench = typer.Typer(
    help="Measure quality and time, beside the paper's tables and other solvers.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
for command in (uniform, tsplib, cvrplib, peers, speed, train, report, sets):
    bench.command()(command)
