"""Which files to solve, and where their solutions and pictures go."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os.path import isdir, isfile  # unlike Path's, these never raise
from pathlib import Path

from lehd.errors import LehdError

SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))
INPUTS = (".tsp", ".atsp", ".vrp", ".cvrp", ".csv", ".tsv")
PICTURE = ".png"  # the ending of pictures in a folder


@dataclass(frozen=True)
class Target:
    """Where something is written: a file, or a folder in which every input gets a file of its own."""

    path: Path
    folder: bool

    def file(self, source: Path, ending: str) -> Path:
        return self.path / (source.stem + ending) if self.folder else self.path


def inputs(paths: Sequence[Path]) -> tuple[list[Path], bool]:
    """The files to solve, folders replaced by what they hold; and whether these are many inputs."""
    files: list[Path] = []
    for path in paths:
        if isdir(path):
            try:
                inside = sorted(file for file in path.iterdir() if file.suffix.lower() in INPUTS and isfile(file))
            except OSError as error:
                raise LehdError(f"{path}: cannot be read ({error.strerror or error})") from error
            if not inside:
                raise LehdError(f"{path}: no file to solve in this folder; expected one of {', '.join(INPUTS)}")
            files += inside
        else:
            files.append(path)
    return files, len(files) > 1 or any(map(isdir, paths))


def target(option: str, value: str, files: Sequence[Path], many: bool, endings: Iterable[str]) -> Target:
    """What --output or --plot asks for: a folder where there are many inputs, or where one is named."""
    if not value:
        raise LehdError(f"{option}: expected a file or a folder")
    path = Path(value)
    folder = many or isdir(path) or value.endswith(SEPARATORS)
    if many and not isdir(path) and path.suffix.lower() in endings:
        raise LehdError(f"{option} {value}: several inputs need a folder, not one file")
    if folder:
        stems: dict[str, Path] = {}
        for file in files:
            other = stems.setdefault(file.stem.casefold(), file)
            if other is not file:
                raise LehdError(f"{option} {value}: {other} and {file} would be written to the same file")
    return Target(path, folder)
