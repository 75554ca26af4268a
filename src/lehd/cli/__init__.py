"""The command line: solve, info, check, plot, serve, label, train, compare, average and bench.

Commands import torch, matplotlib and the solver when they run, so that `lehd --help` answers at once. Exit codes: 0 all
is well, 1 an infeasible solution, 2 bad input or an output that cannot be written, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from lehd import __version__
from lehd.cli.average import average
from lehd.cli.bench import bench
from lehd.cli.clock import process_start
from lehd.cli.common import BAD_INPUT, complain
from lehd.cli.compare import compare
from lehd.cli.inspect import check, info, plot
from lehd.cli.label import label
from lehd.cli.search import solve
from lehd.cli.serve import serve
from lehd.cli.train import train

app = typer.Typer(
    name="lehd",
    help="Solve tours (TSP) and vehicle routes (CVRP) with a learned model.",
    epilog="`lehd COMMAND --help` shows the options of a command, with examples.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (solve, info, check, plot, serve, label, train, compare, average):
    app.command()(command)
app.add_typer(bench, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lehd {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """What the `lehd` command runs."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name the terminal cannot show must not stop us
    try:
        app(obj=process_start())
        code: object = 0
    except SystemExit as end:
        code = end.code
    except OSError as error:  # such as a full disk behind standard output
        complain(str(error))
        code = BAD_INPUT
    with suppress(OSError, AttributeError):  # a closed stream is None
        sys.stdout.flush()
        sys.stderr.flush()
    # An ordinary exit takes torch apart for half a second, which a time limit does not have.
    os._exit(code if isinstance(code, int) else 0)
