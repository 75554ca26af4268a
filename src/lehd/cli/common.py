"""What the commands share: options, errors, and how things are put into words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lehd.errors import LehdError

if TYPE_CHECKING:
    from lehd.types import Instances

BAD_INPUT, STOPPED = 2, 130

Problem = Annotated[Path, typer.Argument(metavar="FILE", help="A .tsp, .atsp, .vrp or .csv file.")]
SolutionFile = Annotated[Path, typer.Argument(metavar="SOLUTION", help="A .tour, .sol or .json file.")]
Capacity = Annotated[
    float | None, typer.Option("--capacity", metavar="Q", help="Vehicle capacity, in place of the file's.")
]
Vehicles = Annotated[int | None, typer.Option("--vehicles", metavar="K", help="At most so many routes.")]
Optimum = Annotated[float | None, typer.Option("--optimum", metavar="X", help="A cost to measure the gap against.")]


@contextmanager
def reporting() -> Iterator[None]:
    """Errors of the user end in one line and exit code 2, Ctrl-C in exit code 130."""
    try:
        yield
    except LehdError as error:
        complain(error)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        complain("stopped")
        raise typer.Exit(STOPPED) from None


def complain(error: LehdError | str) -> None:
    typer.echo(f"lehd: {' '.join(str(error).splitlines())}", err=True)


def read_instance(path: Path, capacity: float | None, vehicles: int | None) -> Instances:
    """The one instance a file holds."""
    from lehd.io import read

    return read(path, capacity=exact(capacity), vehicles=vehicles)


def exact(number: float | None) -> float | None:
    """A whole number as such."""
    return int(number) if number is not None and float(number).is_integer() else number
