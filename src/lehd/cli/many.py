"""`lehd solve` with many files: each a unit of work, on this machine's cores or on a cluster's."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from lehd.bulk import Answer, CalledOff, Done, SolveFile, Source, keep
from lehd.cli.bar import LiveBar
from lehd.cli.common import complain
from lehd.cli.paths import PICTURE, Target
from lehd.cli.progress import state_words
from lehd.cli.results import Summary, show
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.io.write import check_writable
from lehd.words import count
from lehd.work.engines import LOCAL, find_engine
from lehd.work.here import Here
from lehd.work.on_ray import Ray
from lehd.work.run import ATTEMPTS, run_units
from lehd.work.units import ONE_CORE, Engine, Failure, Needs, Unit, usable_cores

if TYPE_CHECKING:
    from lehd.solver import Progress


def choose_engine(
    files: int, device: str | None, cluster: str, processes: int | None, gpus: float
) -> tuple[Engine, Needs]:
    """By default a GPU works on one file after the other, in this process; every core of a CPU on a file of its own."""
    if cluster == LOCAL and not gpus:
        if find_device(device).type == "cuda":
            if processes is not None and processes > 1:
                raise LehdError("several processes on GPUs: --gpus says how much of one a file needs, such as 0.5")
            return Here(), ONE_CORE
        cores = usable_cores()
        number = processes or min(files, cores)
        if number == 1:
            return Here(), ONE_CORE
        return find_engine(cluster, number), Needs(cores=max(1, cores // number) if processes else 1)
    if device is not None and (device == "cpu") == bool(gpus):
        raise LehdError(f"--device {device} with {gpus:g} GPUs for a file: --gpus alone says where files are solved")
    return find_engine(cluster, processes), Needs(gpus=gpus)


@dataclass
class Many:
    """A run over many files."""

    sources: list[Path]
    job: SolveFile
    engine: Engine
    needs: Needs
    writes: Target | None
    draws: Target | None
    resume: bool
    as_json: bool
    quiet: bool

    def run(self) -> tuple[bool, bool]:
        """Solve the files; whether the user stopped it, and whether something went wrong with one of them."""
        for target in filter(None, (self.writes, self.draws)):
            check_writable(target.path / "any")  # complain before time is spent, not after
        self.done = Done(self.writes.path, self.job.facts(), self.resume) if self.writes else None
        self.before = self.failed = 0
        self.summary = Summary()
        self.places = {str(source): place for place, source in enumerate(self.sources)}
        set_aside = []
        interrupted = False
        with FilesBar(len(self.sources), self.quiet) as bar, self._prepared(bar) as (job, called_off):
            found = run_units(
                self._units(called_off),
                job,
                self.engine,
                needs=self.needs,
                patience=self.job.patience,
                between=lambda: bar.look(self.summary.solved, self.before, self.failed),
            )
            try:
                with closing(found):
                    for unit, answer in found:
                        with bar.aside():
                            if isinstance(answer, Failure):
                                self.failed += 1
                                set_aside.append(f"{unit.content.path}: {answer.reason}")
                            else:
                                self._take(unit, answer)
                        interrupted = isinstance(answer, Answer) and answer.record["interrupted"]
                        if interrupted and isinstance(self.engine, Here):
                            break
            except KeyboardInterrupt:
                interrupted = True
            interrupted = interrupted or called_off()
        for reason in set_aside:
            complain(f"set aside after {ATTEMPTS} attempts: {reason}")
        if interrupted:
            complain("stopped" + ("; --resume goes on" if self.done else ""))
        elif self.done:
            self.done.finish()
        self._sum_up()
        return interrupted, self.failed > 0

    def _units(self, called_off: Callable[[], bool]) -> Iterator[Unit]:
        for source in self.sources:
            if called_off():
                return
            try:
                unit = Source(str(source), source.read_bytes()).unit()
            except (OSError, ValueError) as error:
                self.failed += 1
                complain(f"{source}: cannot be read ({getattr(error, 'strerror', None) or error})")
                continue
            if self.done is not None and unit.id in self.done:
                self.before += 1
            else:
                yield unit

    @contextmanager
    def _prepared(self, bar: FilesBar) -> Iterator[tuple[SolveFile, Callable[[], bool]]]:
        """The job as it suits the engine, and whether Ctrl-C was pressed where that is for the driver to tell."""
        if isinstance(self.engine, Here):
            yield replace(self.job, progress=bar.searching), lambda: False
            return
        if isinstance(self.engine, Ray):  # on other machines: what is being searched is lost
            yield self.job.for_workers(None, self.needs.device), lambda: False
            return
        stop = multiprocessing.get_context("spawn").Event()
        with pressing(stop):
            yield self.job.for_workers(CalledOff(stop, os.getpid()), self.needs.device), stop.is_set

    def _take(self, unit: Unit, answer: Answer | str) -> None:
        """Write and show what became of a file."""
        source = Path(unit.content.path)
        if isinstance(answer, str):
            self.failed += 1
            complain(answer)
            return
        self.summary.add(self.places[unit.content.path], answer.record)
        try:
            if self.writes:
                keep(self.writes.file(source, answer.ending), answer.solution)
            if self.draws and answer.picture is not None:
                keep(self.draws.file(source, PICTURE), answer.picture)
            if self.done is not None and not answer.record["interrupted"]:
                self.done.add(unit.id, answer.record)
        except LehdError as error:
            self.failed += 1
            complain(error)
        finally:
            show(answer.record, self.as_json, self.quiet)

    def _sum_up(self) -> None:
        if self.as_json or self.quiet:
            return
        if self.summary.solved:
            self.summary.show()
        if self.before:
            typer.echo(f"{count(self.before, 'file')} solved before")


@contextmanager
def pressing(stop: Any) -> Iterator[None]:
    """Within it Ctrl-C sets an event, and only the second one interrupts."""

    def press(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


class FilesBar(LiveBar):
    """One bar for all files."""

    def __init__(self, files: int, quiet: bool) -> None:
        columns = TextColumn("solving", style="cyan"), BarColumn(bar_width=24), MofNCompleteColumn()
        super().__init__(*columns, TimeRemainingColumn(), total=files, hidden=quiet)
        self.begun = time.monotonic()

    def look(self, solved: int, before: int, failed: int) -> None:
        if self.due():
            rate = solved / max(time.monotonic() - self.begun, 1e-9)
            words = f"{rate:.2g} files/s" + (f", {failed} failed" if failed else "")
            self.bars.update(self.task, completed=solved + before + failed, state=words, refresh=True)

    def searching(self, name: str, progress: Progress) -> None:
        """Of the one file that is being solved in this process."""
        if self.due():
            self.bars.update(self.task, state=f"{name}: {state_words(progress)}", refresh=True)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Without the bar, so that lines can be written."""
        self.bars.stop()
        try:
            yield
        finally:
            self.bars.start()
