"""`lehd solve`: one file or many, each within its own time limit."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lehd.cli import paths
from lehd.cli.common import BAD_INPUT, STOPPED, Capacity, Vehicles, exact, read_instance, reporting
from lehd.cli.results import show
from lehd.cli.work_options import Cluster, Gpus
from lehd.errors import LehdError
from lehd.work.engines import LOCAL

if TYPE_CHECKING:
    from lehd.bulk import SolveFile
    from lehd.types import Instances, Result


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
        int | None, typer.Option(metavar="K", show_default="chosen", help="Show the model only K near nodes.")
    ] = None,
    beam: Annotated[int | None, typer.Option(metavar="K", min=1, help="Construct by beam search of width K.")] = None,
    sample: Annotated[int | None, typer.Option(metavar="K", min=1, help="Construct K random samples.")] = None,
    views: Annotated[
        str | None, typer.Option(metavar="average|best", help="Construct by the eight symmetries of the square.")
    ] = None,
    turn: Annotated[
        bool | None,
        typer.Option(
            "--turn/--upright", show_default="turned under a time limit", help="How the model sees each part."
        ),
    ] = None,
    half: Annotated[
        bool | None, typer.Option("--half/--single", show_default="chosen", help="Precision of the matrix products.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(metavar="GIB", show_default="no limit", help="What the process may hold.")
    ] = None,
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
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            show_default="one per core; 1 with a GPU",
            help="Of many files, so many at a time. By default each search has one core; N searches share them all.",
        ),
    ] = None,
    cluster: Cluster = LOCAL,
    gpus: Gpus = 0.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Of many files, solve those that --output has no solution of yet.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each file, and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only.")] = False,
) -> None:
    """Solve instances: TSPLIB, CVRPLIB or CSV files, or folders of them.

    Ctrl-C stops the search and keeps the best solution so far. Many files are solved on all cores at once; a run over
    them that was stopped goes on with --resume.

    [bold]Examples[/bold]

    [dim]Ten seconds, tour and picture:[/dim]

      lehd solve city.tsp --time-limit 10 -o city.tour --plot city.png

    [dim]A fixed amount of work, repeatable:[/dim]

      lehd solve depot.vrp --rrc 200 --seed 1 -o depot.sol

    [dim]A folder of files, one JSON line each:[/dim]

      lehd solve instances/ --time-limit 5 -o solved/ --json > costs.jsonl

    [dim]The same on a Ray cluster, going on where it stopped:[/dim]

      lehd solve instances/ --time-limit 5 -o solved/ --cluster auto --resume
    """
    began = context.obj if isinstance(context.obj, float) else time.monotonic()
    with reporting():
        if time_limit is not None and not 0 < time_limit < math.inf:
            raise LehdError(f"--time-limit {time_limit}: expected a positive number of seconds")
        sources, many = paths.inputs(files)
        if start is not None and many:
            raise LehdError("--start: expected a single file to solve")
        if not many and (processes is not None or cluster != LOCAL or gpus or resume):
            raise LehdError("--processes, --cluster, --gpus and --resume: expected several files to solve, or a folder")
        if resume and output is None:
            raise LehdError("--resume: expected --output, the folder of the run that was stopped")

        from lehd.bulk import SolveFile
        from lehd.io.write import FORMATS
        from lehd.solver import DEFAULT_SECONDS

        writes = paths.target("--output", output, sources, many, FORMATS) if output is not None else None
        draws = None
        if plot is not None:
            from lehd.plot import PICTURES  # matplotlib, too, is loaded within the time limit

            draws = paths.target("--plot", plot, sources, many, PICTURES)
        work = {"rrc": rrc, "longest": longest, "parallel": parallel, "nearest": nearest}
        work |= {"beam": beam, "sample": sample}
        options = {
            **work,
            "views": views,
            "turn": turn,
            "half": half,
            "memory": memory,
            "model": weights,
            "seed": seed,
            "device": device,
        }
        if time_limit is None and rrc is None:
            time_limit = DEFAULT_SECONDS
        job = SolveFile(options, time_limit, exact(capacity), vehicles, picture=draws is not None)
        if many:
            from lehd.cli.many import Many, choose_engine

            engine, needs = choose_engine(len(sources), device, cluster, processes, gpus)
            interrupted, failed = Many(sources, job, engine, needs, writes, draws, resume, as_json, quiet).run()
        else:
            interrupted, failed = One(sources[0], job, start, writes, draws, as_json, quiet).run(began), False
    if interrupted or failed:
        raise typer.Exit(STOPPED if interrupted else BAD_INPUT)


@dataclass(frozen=True)
class One:
    """A single file."""

    source: Path
    job: SolveFile
    start: Path | None
    writes: paths.Target | None
    draws: paths.Target | None
    as_json: bool
    quiet: bool

    def run(self, began: float) -> bool:
        """Solve it, where it has been waiting since `began`; whether the user stopped the search."""
        from lehd.cli.progress import Bar
        from lehd.io.solution import read_solution
        from lehd.io.write import result_record

        instance = read_instance(self.source, self.job.capacity, self.job.vehicles)
        start = None if self.start is None else read_solution(self.start, instance)
        self.check_outputs(instance)
        left = self.job.seconds_left(instance, began)
        with Bar(self.source.name, left, self.quiet) as bar:
            result = self.job.search(instance, left, start=start, progress=bar)
        try:
            self.write(result)
        finally:
            show({"file": str(self.source), **result_record(result)}, self.as_json, self.quiet)
        return result.interrupted

    def check_outputs(self, instance: Instances) -> None:
        """Complain before the time is spent, not after."""
        from lehd.io.write import check_ending, check_format, check_writable

        if self.writes:
            path = self.output(instance)
            check_format(path, instance)
            check_writable(path)
        if self.draws:
            from lehd.plot import PICTURES

            path = self.draws.file(self.source, paths.PICTURE)
            check_ending(path, PICTURES)
            check_writable(path)

    def write(self, result: Result) -> None:
        if self.writes:
            result.write(self.output(result.instance))
        if self.draws:
            result.plot(self.draws.file(self.source, paths.PICTURE))

    def output(self, instance: Instances) -> Path:
        assert self.writes is not None
        return self.writes.file(self.source, ".tour" if instance.demands is None else ".sol")
