"""What remembers which units are done, so that a run which was stopped goes on: nothing lost, nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from lehd.data.dataset import Arrays, read_arrays, write_arrays
from lehd.errors import LehdError, writing
from lehd.model.checkpoint import write_atomically


class Ledger(Protocol):
    def __contains__(self, id: str) -> bool:
        """Whether the result of the unit of this id is there."""

    def add(self, id: str, result: Any) -> None:
        """Keep a result. Once this returns, a power cut does not lose it."""


class Folder:
    """A file of arrays for every id, and a manifest: the facts that all of them were made with."""

    def __init__(self, folder: Path, manifest: str, facts: dict[str, Any], chosen: dict[str, Any] | None = None):
        """Begin a folder, or go on in one whose facts are the same.

        `chosen` are further facts that this run would choose but does not insist on; `facts` has what holds.
        """
        self.folder = folder
        path = folder / manifest
        if path.exists():
            self.facts = read_manifest(path)
            if other := [name for name, value in facts.items() if self.facts.get(name) != value]:
                pairs = ", ".join(f"{name} {self.facts.get(name)}, now {facts[name]}" for name in other)
                raise LehdError(f"{folder}: holds the work of another run ({pairs}); name another folder")
            return
        self.facts = facts | (chosen or {})
        with writing(folder):
            write_atomically(path, json.dumps(self.facts).encode())

    def __contains__(self, id: str) -> bool:
        return self.path(id).exists()

    def add(self, id: str, result: Arrays) -> None:
        write_arrays(self.path(id), result)

    def read(self, id: str) -> Arrays:
        return read_arrays(self.path(id))

    def path(self, id: str) -> Path:
        return self.folder / f"{id}.npz"


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise LehdError(f"{path}: cannot be read ({error})") from None
