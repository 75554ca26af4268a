"""Training by several processes, started by torchrun on one machine or on several.

All of them draw the same numbers from the same seed and make decisions of their own rows of them, so that no decision
is taken twice and the sum of their gradients is the gradient of one process: a run does not depend on their number, and
may go on with another one. (Where gradients are taken from the hardest decisions alone, each process takes those of its
own rows.) The first process alone reads and writes the run's folder; the others are told what they
need of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor, distributed
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from lehd.errors import LehdError
from lehd.training.partial import ALL

T = TypeVar("T")
PATIENCE = timedelta(days=7)  # with the first process, which may label for hours; one that dies is noticed at once


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    count: int = 1
    local: int = 0  # the number among those of this machine, and of its GPU
    launchers: frozenset[str] = frozenset()  # the torchruns they were started by, one on each machine
    patient: Any = None  # the group for exchanges in which the first process may be waited for

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes logs and weights."""
        return self.rank == 0

    @property
    def rows(self) -> slice:
        """This process's share of a batch."""
        return ALL if self.count == 1 else slice(self.rank, None, self.count)

    def from_first(self, work: Callable[[], T]) -> T:
        """What the first process finds, for all: it works, or fails, while the others wait."""
        if self.count == 1:
            return work()
        told: list[Any] = [None]
        if self.writes:
            try:
                told = [work()]
            except LehdError as error:
                told = [error]
        distributed.broadcast_object_list(told, 0, self.patient)
        if isinstance(told[0], LehdError):
            raise told[0]
        found: T = told[0]
        return found

    def all_have(self, words: str) -> bool:
        """Whether all processes say the same."""
        return self.count == 1 or len(set(_gather(words, self.count, self.patient))) == 1

    def add_up(self, tensor: Tensor) -> None:
        """The tensor becomes the sum over all processes."""
        if self.count > 1:
            distributed.all_reduce(tensor)

    def agree(self, number: float) -> float:
        """The first process's number, such as the time: everybody must end, log and validate at the same step."""
        if self.count == 1:
            return number
        shared = torch.tensor(number, dtype=torch.float64)
        distributed.broadcast(shared, 0)
        return float(shared)  # in host memory: no GPU is waited for


def refuse_several(what: str) -> None:
    """For what one process does, whatever it starts."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise LehdError(f"{what} runs in one process; start it without torchrun")


def join_processes() -> Processes:
    """Those that torchrun started, or this one alone."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Processes()
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        if not distributed.is_initialized():
            rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            distributed.init_process_group(backend, store=_meeting_point(rank, count), rank=rank, world_size=count)
        patient = distributed.new_group(backend="gloo", timeout=PATIENCE)
        count = distributed.get_world_size()
        launchers = frozenset(filter(None, _gather(_launcher(), count, patient)))
    except (RuntimeError, ValueError) as error:
        raise LehdError(f"the processes of this run do not find each other ({error})") from None
    return Processes(distributed.get_rank(), count, int(os.environ.get("LOCAL_RANK", "0")), launchers, patient)


def _meeting_point(rank: int, count: int) -> Any:
    """Where the processes tell each other their addresses.

    Torchrun keeps a store for them that outlives restarts, with the addresses of lost processes still in it and no
    number by which all machines would know the attempt. So the first process invents a name for a corner that nobody
    has been to, and tells it to those that are here now: they ask by names of their own, which are as new.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    hosts = rank == 0 and not kept
    store = TCPStore(address, port, is_master=hosts, timeout=PATIENCE, wait_for_workers=False)
    mine = uuid4().hex
    if rank > 0:
        store.set(f"ask/{rank}", mine)
        corner = store.get(f"answer/{mine}").decode()  # waits for it
        store.set(f"{corner}/{rank}", "here")
        return PrefixStore(corner, store)
    missing = set(range(1, count))
    while missing:
        for other in list(missing):
            if store.check([f"{mine}/{other}"]):
                missing.remove(other)
            elif store.check([f"ask/{other}"]):  # perhaps a lost process: then the one that is here has yet to ask
                store.set(f"answer/{store.get(f'ask/{other}').decode()}", mine)
        time.sleep(0.02)
    return PrefixStore(mine, store)


def leave_processes() -> None:
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _launcher() -> str:
    """What tells the torchrun that started this process from every other: the folder it has made for its logs.

    It survives restarts, unlike anything that torchrun counts: TORCHELASTIC_RESTART_COUNT is each machine's own.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")  # FOLDER/attempt_1/0/error.json
    return str(Path(file).parents[2]) if file else ""


def _gather(words: str, count: int, group: Any) -> list[str]:
    found = [""] * count
    distributed.all_gather_object(found, words, group)
    return found
