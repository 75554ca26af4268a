"""`lehd solve`: one file or many, each within its own time limit."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lehd.cli import paths
from lehd.cli.common import BAD_INPUT, STOPPED, Capacity, Vehicles, complain, read_instance, reporting
from lehd.errors import LehdError
from lehd.words import brief, count

if TYPE_CHECKING:
    from lehd.types import Instances, Result

PICTURE = ".png"  # the ending of pictures in a folder
LEAVING = 0.2  # seconds kept for writing the solution
DRAWING, DRAWING_PER_NODE = 0.3, 12e-6  # seconds kept for a picture
LEAST = 1e-3  # the time limit of a search for which no time is left: it returns a cheap start


def solve(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files, or folders of them.")],
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", show_default="10 without --rrc", help="Wall-clock time for each file."),
    ] = None,
    rrc: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Improve for so many iterations; 0 only constructs.")
    ] = None,
    longest: Annotated[
        int | None, typer.Option(metavar="W", show_default="chosen", help="Longest part rebuilt in one iteration.")
    ] = None,
    parallel: Annotated[
        bool | None,
        typer.Option("--parallel/--one-part", show_default="parallel under a time limit", help="Parts per iteration."),
    ] = None,
    nearest: Annotated[
        int | None, typer.Option(metavar="K", show_default="chosen", help="Show the model only the K nearest nodes.")
    ] = None,
    beam: Annotated[int | None, typer.Option(metavar="K", min=1, help="Construct by beam search of width K.")] = None,
    sample: Annotated[int | None, typer.Option(metavar="K", min=1, help="Construct K random samples.")] = None,
    start: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .tour, .sol or .json solution to improve.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(metavar="FILE", show_default="shipped", help="The model.")] = None,
    capacity: Capacity = None,
    vehicles: Vehicles = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Same seed and iterations, same result.")] = 0,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", show_default="chosen", help="cpu, cuda, cuda:1 …")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="PATH", help="A .tour, .sol, .json or .geojson file, or a folder."),
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="PATH", help="A .png, .svg or .pdf file, or a folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each file, and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only.")] = False,
) -> None:
    """Solve instances: TSPLIB, CVRPLIB or CSV files, or folders of them.

    Ctrl-C stops the search and keeps the best solution so far.

    [bold]Examples[/bold]

    [dim]Ten seconds, tour and picture:[/dim]

      lehd solve city.tsp --time-limit 10 -o city.tour --plot city.png

    [dim]A fixed amount of work, repeatable:[/dim]

      lehd solve depot.vrp --rrc 200 --seed 1 -o depot.sol

    [dim]A folder of files, one JSON line each:[/dim]

      lehd solve instances/ --time-limit 5 -o solved/ --json > costs.jsonl
    """
    began = context.obj if isinstance(context.obj, float) else time.monotonic()
    with reporting():
        if time_limit is not None and not 0 < time_limit < math.inf:
            raise LehdError(f"--time-limit {time_limit}: expected a positive number of seconds")
        sources, many = paths.inputs(files)
        if start is not None and many:
            raise LehdError("--start: expected a single file to solve")

        from lehd.io.write import FORMATS

        writes = paths.target("--output", output, sources, many, FORMATS) if output is not None else None
        draws = None
        if plot is not None:
            from lehd.plot import PICTURES  # matplotlib, too, is loaded within the time limit

            draws = paths.target("--plot", plot, sources, many, PICTURES)
        work = {"rrc": rrc, "longest": longest, "parallel": parallel, "nearest": nearest}
        work |= {"beam": beam, "sample": sample}
        options = {**work, "model": weights, "seed": seed, "device": device}
        job = Job(time_limit, capacity, vehicles, start, writes, draws, quiet, options)

    results: list[Result] = []
    failed = interrupted = False
    for source in sources:
        try:
            result = job.search(source, began)
            results.append(result)
            interrupted = result.interrupted
            try:
                job.write(result, source)
            finally:
                show(result, source, as_json, quiet)
        except LehdError as error:
            complain(error)
            failed = True
        except KeyboardInterrupt:
            complain("stopped")
            interrupted = True
        if interrupted:
            break
        began = time.monotonic()
    if many and results and not as_json and not quiet:
        show_summary(results)
    if interrupted or failed:
        raise typer.Exit(STOPPED if interrupted else BAD_INPUT)


@dataclass(frozen=True)
class Job:
    """What is asked for, the same for every file."""

    time_limit: float | None
    capacity: float | None
    vehicles: int | None
    start: Path | None
    writes: paths.Target | None
    draws: paths.Target | None
    quiet: bool
    options: dict[str, Any]  # handed on to lehd.solve as they are

    def search(self, source: Path, began: float) -> Result:
        """Read and solve a file that has been waiting since `began`."""
        from lehd.cli.progress import Bar
        from lehd.io.solution import read_solution
        from lehd.solver import DEFAULT_SECONDS, solve
        from lehd.types import Result

        instance = read_instance(source, self.capacity, self.vehicles)
        start = None if self.start is None else read_solution(self.start, instance)
        self.check_outputs(source, instance)
        limit = self.time_limit
        if limit is None and self.options["rrc"] is None:
            limit = DEFAULT_SECONDS
        left = None
        if limit is not None:
            drawing = DRAWING + DRAWING_PER_NODE * instance.num_nodes if self.draws else 0.0
            left = max(LEAST, began + limit - time.monotonic() - drawing - LEAVING)
        with Bar(source.name, left, self.quiet) as bar:
            result = solve(instance, start=start, time_limit=left, progress=bar, **self.options)
        assert isinstance(result, Result)  # a list only for a batch
        return result

    def check_outputs(self, source: Path, instance: Instances) -> None:
        """Complain before the time is spent, not after."""
        from lehd.io.write import check_ending, check_format, check_writable

        if self.writes:
            path = self.output(source, instance)
            check_format(path, instance)
            check_writable(path)
        if self.draws:
            from lehd.plot import PICTURES

            path = self.draws.file(source, PICTURE)
            check_ending(path, PICTURES)
            check_writable(path)

    def write(self, result: Result, source: Path) -> None:
        if self.writes:
            result.write(self.output(source, result.instance))
        if self.draws:
            result.plot(self.draws.file(source, PICTURE))

    def output(self, source: Path, instance: Instances) -> Path:
        assert self.writes is not None
        return self.writes.file(source, ".tour" if instance.demands is None else ".sol")


def show(result: Result, source: Path, as_json: bool, quiet: bool) -> None:
    from lehd.io.write import result_record

    if as_json:
        typer.echo(json.dumps({"file": str(source), **result_record(result)}))
    elif not quiet:
        work = f"{result.seconds:.1f} s, {count(result.iterations, 'iteration')}"
        routes = f", {count(len(result.routes), 'route')}" if result.problem == "CVRP" else ""
        typer.echo(f"{result.name}: cost {brief(result.cost)}{routes} ({work}{', stopped' * result.interrupted})")
        for note in result.notes:
            typer.echo(f"  note: {note}")


def show_summary(results: list[Result]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=count(len(results), "file") + " solved", title_justify="left", box=None, pad_edge=False)
    for heading in ("name", "n", "cost", "seconds", "iterations", "notes"):
        table.add_column(
            heading, justify="left" if heading in ("name", "notes") else "right", no_wrap=heading != "notes"
        )
    for result in results:
        size = result.solution.nodes.shape[1]
        cells = [str(size), brief(result.cost), f"{result.seconds:.1f}", str(result.iterations)]
        table.add_row(*map(Text, [result.name, *cells, "; ".join(result.notes)]))
    Console().print(table)
