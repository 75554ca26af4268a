"""Units on processes of this machine, where one that crashes or hangs its process is lost alone.

The standard library's pools give up as a whole when one process dies. Here each process has a pipe of its own: when it
breaks, the unit it had is reported as a Failure and another process takes its place.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from types import TracebackType
from typing import Any, Self

from lehd.errors import LehdError
from lehd.work.units import ONE_CORE, Failure, Job, Needs, Unit, attempt, usable_cores, use_cores

LOOK = 1.0  # seconds between two looks of an idle process at its parent, and of the parent at the clock
GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Pool:
    """Engine: so many processes, or as many as the units' needs allow."""

    processes: int | None = None

    def start(self, job: Job, needs: Needs = ONE_CORE, patience: float = float("inf")) -> Processes:
        gpus = [share_of_gpus(place, needs.gpus) for place in range(_gpu_slots(needs))] if needs.gpus else []
        fitting = len(gpus) or max(1, int(usable_cores() / needs.cores))
        number = self.processes or fitting
        if gpus and number > fitting:
            raise LehdError(f"{number} processes: the GPUs have room for {fitting} units that need {needs.gpus:g} each")
        return Processes(job, needs, patience, number, gpus)


class Processes:
    """A crew of processes, each started when it is first needed."""

    def __init__(self, job: Job, needs: Needs, patience: float, number: int, gpus: list[str]):
        self.job, self.needs, self.patience, self.number = job, needs, patience, number
        self.gpus = gpus[:number]  # what further processes may see
        self.idle: list[Worker] = []
        self.busy: dict[Any, Worker] = {}  # by pipe

    def room(self) -> bool:
        return len(self.busy) < self.number

    def give(self, unit: Unit) -> None:
        worker = self.idle.pop() if self.idle else Worker(self.job, self.needs, self.gpus.pop() if self.gpus else "")
        worker.give(unit)
        self.busy[worker.pipe] = worker

    def take(self) -> list[tuple[Unit, Any]]:
        done = []
        for pipe in connection.wait(list(self.busy), LOOK):
            worker = self.busy.pop(pipe)
            done.append((worker.unit, worker.take()))
            if worker.alive:
                self.idle.append(worker)
            else:
                self._end(worker)
        late = time.monotonic() - self.patience
        for worker in [worker for worker in self.busy.values() if worker.since < late]:
            del self.busy[worker.pipe]
            self._end(worker)
            done.append((worker.unit, Failure(f"no answer in {self.patience:g} s")))
        return done

    def _end(self, worker: Worker) -> None:
        worker.end()
        if worker.gpus:
            self.gpus.append(worker.gpus)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in [*self.idle, *self.busy.values()]:
            worker.end()


class Worker:
    """A process and the unit it has."""

    def __init__(self, job: Job, needs: Needs, gpus: str = ""):
        # Linux's fork starts at once. Elsewhere it is not safe, nor with several threads or a GPU.
        forked = sys.platform == "linux" and needs.cores <= 1 and not needs.gpus
        context: Any = get_context("fork" if forked else "spawn")
        self.gpus = gpus
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, job, needs, gpus, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe breaks when the process dies
        self.unit = Unit("", None)
        self.since = 0.0

    def give(self, unit: Unit) -> None:
        self.unit, self.since = unit, time.monotonic()
        with suppress(OSError):  # it is dead: `take` will tell
            self.pipe.send(unit.content)

    def take(self) -> Any:
        """The result; where the process has died instead, a Failure."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return Failure(f"its process died (code {self.process.exitcode})")

    @property
    def alive(self) -> bool:
        return bool(self.process.is_alive())

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(pipe: Any, job: Job, needs: Needs, gpus: str, parent: int) -> None:
    """What a process does: one unit after the other, until nobody is left to give any."""
    if gpus:
        os.environ[GPUS] = gpus
    use_cores(needs)
    try:
        while True:
            while not pipe.poll(LOOK):
                if os.getppid() != parent:
                    return
            pipe.send(attempt(job, pipe.recv()))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _gpu_slots(needs: Needs) -> int:
    """How many units the GPUs of this machine take at once."""
    gpus = len(visible_gpus())
    slots = gpus * int(1 / needs.gpus + 1e-9) if needs.gpus <= 1 else int(gpus / needs.gpus)
    if not slots:
        raise LehdError(f"a unit needs {needs.gpus:g} GPUs, and this machine has {gpus}")
    return slots


def share_of_gpus(place: int, share: float) -> str:
    """What the process at this place may see: one GPU in turn, or several of its own."""
    gpus = visible_gpus()
    if share <= 1:
        return gpus[place % len(gpus)]
    width = int(share)
    return ",".join(gpus[place * width : (place + 1) * width])


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    if os.environ.get(GPUS) is not None:
        return [name for name in os.environ[GPUS].split(",") if name]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
