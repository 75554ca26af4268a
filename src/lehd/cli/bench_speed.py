"""`lehd bench speed` and `train`: how fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lehd.cli.bench_options import Device, Output, whole, words
from lehd.cli.common import reporting
from lehd.errors import LehdError


def speed(
    problems: Annotated[str, typer.Option(metavar="A,B…", help="TSP, CVRP or both.")] = "TSP,CVRP",
    nodes: Annotated[str, typer.Option(metavar="N,N…", show_default="by device", help="Sizes.")] = "",
    batch: Annotated[str, typer.Option(metavar="N,N…", show_default="by device", help="Instances at once.")] = "",
    nearest: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            min=1,
            show_default="as in a search: TSP 126, CVRP 100",
            help="Nodes in view of greedy construction, beside all of them.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="S", help="For each row, or a little more.")] = 5.0,
    device: Device = None,
    output: Output = None,
) -> None:
    """Speed of construction and RRC: latency, throughput, tokens/s, share of the arithmetic ceiling, memory.

    [bold]Example[/bold]

      lehd bench speed --nodes 100,1000 --batch 1,128 --output runs/speed.jsonl
    """
    with reporting():
        from lehd.bench.speed import run_speed, table
        from lehd.problems import PROBLEMS

        wanted = [problem.upper() for problem in words(problems)]
        if unknown := [problem for problem in wanted if problem not in PROBLEMS]:
            raise LehdError(f"--problems {', '.join(unknown)}: expected {' or '.join(PROBLEMS)}")
        sizes, batches = whole(nodes, "--nodes"), whole(batch, "--batch")
        if any(number < 1 for number in sizes + batches):
            raise LehdError("--nodes and --batch must be at least 1")
        speeds = run_speed(
            wanted,
            sizes or None,
            batches or None,
            device,
            seconds,
            output,
            lambda row: typer.echo(f"{row.problem}{row.nodes} x {row.batch} {row.mode}: {row.seconds:.3g} s", err=True),
            nearest,
        )
        typer.echo(table(speeds))


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The settings of a training run.")],
    data: Annotated[Path, typer.Option("--data", metavar="FOLDER", help="Where the label files are.")] = Path(),
    seconds: Annotated[float, typer.Option(metavar="S", help="For each of the two ways.")] = 20.0,
    warmup: Annotated[int, typer.Option(metavar="N", min=1, help="Steps before the clock starts.")] = 20,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Replace a setting of the file; may be repeated."),
    ] = None,
    device: Device = None,
    output: Output = None,
) -> None:
    """Speed of training: tokens/s, beside the layers' own code without compilation, and where the time goes.

    [bold]Example[/bold]

      lehd bench train configs/tsp100.toml --data labels --seconds 20
    """
    with reporting():
        from lehd.bench.train import measure, save
        from lehd.training.config import read_config

        typer.echo("warming up, then measuring", err=True)
        settings = read_config(config, changes or [])
        for found in measure(settings, config.stem, data, seconds, warmup, device):
            typer.echo(str(found))
            save([found], output)
