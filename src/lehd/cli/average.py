"""`lehd average`: the mean of several models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lehd.cli.bench_options import numbers
from lehd.cli.common import reporting


def average(
    weights: Annotated[list[Path], typer.Argument(metavar="WEIGHTS…", help="Models of the same sizes and settings.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the mean is written.")],
    shares: Annotated[
        str, typer.Option(metavar="A,B…", show_default="equal", help="How much each of them counts.")
    ] = "",
    half: Annotated[bool, typer.Option("--half", help="Store 16-bit numbers: half the size.")] = False,
) -> None:
    """The mean of several models, weight by weight.

    Of runs that went on from the same weights it can be better than each of them. With one model and --half, that model
    in half the size.

    [bold]Examples[/bold]

      lehd average runs/a/weights.safetensors runs/b/weights.safetensors --output mean.safetensors

      lehd average runs/a/weights.safetensors --half --output small.safetensors
    """
    with reporting():
        from lehd.model.average import average_files

        typer.echo(average_files(weights, numbers(shares, "--shares"), output, half))
