"""Many files, each a unit of work: what a worker does with one, and how a run that was stopped goes on.

A worker may be on another machine: it gets the bytes of a file and gives back the bytes of a solution and of a picture.
Reading and writing is the driver's, so that every file is written once, whatever becomes of workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lehd import __version__
from lehd.bench.store import append_lines, drop_half_line
from lehd.errors import LehdError, writing
from lehd.io import read_text
from lehd.io.text import decode
from lehd.io.write import replacing, result_record, sol_text, tour_text
from lehd.model.checkpoint import load_model, shipped_weights
from lehd.words import count
from lehd.work.units import Unit

if TYPE_CHECKING:
    from lehd.solver import Progress
    from lehd.types import Instances, Result

LOG = "lehd-run.jsonl"  # beside the solutions of a run
LEAVING = 0.2  # seconds kept for writing the solution
DRAWING, DRAWING_PER_NODE, DRAWING_PER_ROUTE = 0.3, 12e-6, 15e-5  # seconds kept for a picture
LEAST = 1e-3  # the time limit of a search for which no time is left: it returns a cheap start
GRACE = 60.0  # seconds, beyond twice the time limit, after which a worker is taken to hang


@dataclass(frozen=True)
class Source:
    """A file as it travels to a worker."""

    path: str
    data: bytes

    def unit(self) -> Unit:
        digest = hashlib.sha256(self.data).hexdigest()[:16]
        return Unit(f"{digest} {self.path}", self)


@dataclass(frozen=True)
class Answer:
    """What becomes of a file: all there is to know, as --json prints it, and what is written."""

    record: dict[str, Any]
    ending: str  # of the solution's file
    solution: bytes
    picture: bytes | None  # PNG


@dataclass(frozen=True)
class SolveFile:
    """What is asked for, the same for every file; and the job that does it with one."""

    options: dict[str, Any]  # handed on to lehd.solve as they are
    time_limit: float | None = None  # seconds of each file, with reading and drawing
    capacity: float | None = None
    vehicles: int | None = None
    picture: bool = False
    weights: str | None = None  # what to call a model that travels along
    stop: Callable[[], bool] | None = None  # in worker processes: they leave Ctrl-C to the driver, which tells them
    progress: Callable[[str, Progress], None] | None = None  # where the work is done in the driver's process

    def __call__(self, source: Source) -> Answer | str:
        """An answer; or what is wrong with the file, which trying again would not change."""
        began = time.monotonic()
        if self.stop is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            instance = read_text(decode(source.data), source.path, self.capacity, self.vehicles)
            told = None if self.progress is None else partial(self.progress, Path(source.path).name)
            result = self.search(instance, self.seconds_left(instance, began), progress=told, stop=self.stop)
        except LehdError as error:
            return str(error)
        if self.weights is not None:
            result = replace(result, model=f"{self.weights}@{result.model.partition('@')[2]}")
        picture = None
        if self.picture:
            from lehd.plot import picture_of

            picture = picture_of(result)
        ending, text = (".tour", tour_text) if result.problem == "TSP" else (".sol", sol_text)
        solution = text(result).encode("utf-8", errors="surrogateescape")
        return Answer({"file": source.path, **result_record(result)}, ending, solution, picture)

    def seconds_left(self, instance: Instances, began: float) -> float | None:
        """For searching, of a file that has been waiting since `began`."""
        if self.time_limit is None:
            return None
        drawing = seconds_of_drawing(instance) if self.picture else 0.0
        return max(LEAST, began + self.time_limit - time.monotonic() - drawing - LEAVING)

    def search(self, instance: Instances, seconds: float | None, **watching: Any) -> Result:
        from lehd.solver import solve
        from lehd.types import Result

        result = solve(instance, time_limit=seconds, **watching, **self.options)
        assert isinstance(result, Result)  # a list only for a batch
        return result

    @property
    def patience(self) -> float:
        """Seconds after which a worker is given up."""
        return float("inf") if self.time_limit is None else 2 * self.time_limit + GRACE

    def facts(self) -> dict[str, Any]:
        """What a result depends on besides the file; where it is computed is not among it."""
        model = self.options["model"]
        used = [shipped_weights(name) for name in ("tsp", "cvrp")] if model is None else [Path(model)]
        try:
            digest = hashlib.sha256(b"".join(path.read_bytes() for path in used)).hexdigest()[:12]
        except OSError as error:
            raise LehdError(f"{model}: cannot be read ({error.strerror or error})") from None
        asked = {"time_limit": self.time_limit, "capacity": self.capacity, "vehicles": self.vehicles}
        work = {name: value for name, value in self.options.items() if name not in ("device", "memory")}
        return {"version": __version__, **asked, **work, "model": digest, "picture": self.picture}

    def for_workers(self, stop: Callable[[], bool] | None, device: str | None) -> SolveFile:
        """The same with the weights, which need not be on the machine of a worker."""
        model, options = self.options["model"], self.options
        if device is not None:
            options = options | {"device": device}
        if model is None:
            return replace(self, options=options, stop=stop)
        return replace(self, options=options | {"model": load_model(model)}, weights=Path(model).stem, stop=stop)


def seconds_of_drawing(instance: Instances) -> float:
    """About how long a picture of its solution takes; how many routes there will be is known from below."""
    routes = 0.0
    if instance.demands is not None and instance.capacity is not None:
        routes = float(instance.demands.sum() / instance.capacity[0])
    return DRAWING + DRAWING_PER_NODE * instance.num_nodes + DRAWING_PER_ROUTE * routes


@dataclass(frozen=True)
class CalledOff:
    """In a worker process: whether its search is to end, because the driver was told so or is gone."""

    event: Any
    driver: int

    def __call__(self) -> bool:
        return bool(self.event.is_set()) or os.getppid() != self.driver


class Done:
    """Which files a folder has solutions of: a log that grows by a line for each."""

    def __init__(self, folder: Path, facts: dict[str, Any], resume: bool):
        """Begin a log; or go on with one, if the facts are the same."""
        self.path = folder / LOG
        self.ids: set[str] = set()
        lines = _lines(self.path)
        begun, finished = lines[:1], bool(lines) and "finished" in lines[-1]
        if begun and resume:
            now = json.loads(json.dumps(facts))
            if other := [name for name in now | begun[0] if begun[0].get(name) != now.get(name)]:
                pairs = ", ".join(f"{name} {begun[0].get(name)}, now {now.get(name)}" for name in other)
                raise LehdError(f"{folder}: holds the work of another run ({pairs}); name another folder")
            self.ids = {line["id"] for line in lines if "id" in line}
            return
        if solved := sum("id" in line for line in lines) * (not finished):
            raise LehdError(
                f"{folder}: {count(solved, 'file')} solved by a run that was stopped; --resume goes on with it, "
                f"without {self.path} it is forgotten"
            )
        with writing(self.path):
            self.path.unlink(missing_ok=True)
        append_lines(self.path, [json.dumps(facts)])

    def __contains__(self, id: str) -> bool:
        return id in self.ids

    def add(self, id: str, record: dict[str, Any]) -> None:
        """Once this returns, a power cut does not lose it."""
        kept = {name: record[name] for name in ("file", "cost", "seconds", "iterations")}
        append_lines(self.path, [json.dumps({"id": id} | kept)])
        self.ids.add(id)

    def finish(self) -> None:
        """Every file has been tried."""
        append_lines(self.path, [json.dumps({"finished": len(self.ids)})])


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        drop_half_line(path)
        return [dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise LehdError(f"{path}: not the log of a run ({error})") from None


def keep(path: Path, data: bytes) -> None:
    """Write a file: it appears whole or not at all, and once this returns a power cut does not lose it."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
