"""Options that several commands of `lehd bench` have, and lists on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lehd.errors import LehdError

if TYPE_CHECKING:
    from lehd.decoding.stop import Stop

DataFolder = Annotated[
    Path, typer.Option("--data", metavar="FOLDER", envvar="LEHD_DATA", help="Holds uniform, tsplib and cvrplib.")
]
Budgets = Annotated[str, typer.Option("--rrc", metavar="N,N…", help="RRC iterations at which to look, beside greedy.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE.jsonl", help="A line for each instance; goes on where it stopped."),
]
Weights = Annotated[
    Path | None, typer.Option(metavar="FILE", show_default="the package's", help="The model's weights.")
]
Device = Annotated[str | None, typer.Option(metavar="NAME", show_default="chosen", help="cpu, cuda, cuda:1 …")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same results on the same device.")]
MostNodes = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only files of up to so many nodes.")]
OnlyPaper = Annotated[bool, typer.Option("--paper", help="Only the files the paper has.")]
Names = Annotated[str, typer.Option(metavar="A,B…", show_default="all", help="Only these files.")]
TimeLimit = Annotated[
    float | None, typer.Option(metavar="S", help="Search each file for so many seconds, in place of --rrc.")
]
StopAfter = Annotated[
    float | None,
    typer.Option("--stop-after", metavar="S", help="Leave the rest for another time after so many seconds."),
]
Pictures = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="For pictures, and the solutions of the paper's two figures.")
]


def stop_after(seconds: float | None) -> Stop:
    from lehd.decoding.stop import Stop, max_runtime

    return Stop() if seconds is None else max_runtime(seconds)


def numbers(text: str, what: str) -> list[float]:
    try:
        return [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise LehdError(f"{what} {text}: expected numbers such as 50,100") from None


def whole(text: str, what: str) -> list[int]:
    found = numbers(text, what)
    if any(number < 0 or number != int(number) for number in found):
        raise LehdError(f"{what} {text}: expected whole numbers from 0, such as 50,100")
    return [int(number) for number in found]


def words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def folder_of(data: Path, name: str) -> Path:
    folder = data / name
    if not folder.is_dir():
        raise LehdError(f"{folder}: no such folder; docs/benchmarks.md says where the data come from")
    return folder
