"""Work within a limit of memory: rows are done in turn where they do not fit together, and in smaller groups after the
memory has run out all the same."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch

from lehd.errors import LehdError
from lehd.model.lehd import ModelConfig

GIB = 2**30
SHARE = 0.6  # of the memory there is: what the estimates below may fill
NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")  # in messages
HALF_EXTRA = GIB // 8  # on a CPU, what products in half precision are prepared in, for all sizes of blocks
BYTES_PER_AVAILABLE = 400  # looking for the nearest, positions and orders of each available node


class Memory:
    """How many bytes construction may take; None: as many as it likes, until there are no more. Once there were no
    more, `limit` is what was enough."""

    def __init__(self, limit: float | None = None):
        self.given = self.limit = limit

    def rows_at_once(self, rows: int, row_bytes: float) -> int:
        """How many of the rows fit together; at least one."""
        return rows if self.limit is None else max(1, min(rows, int(self.limit / row_bytes)))

    def in_turns(self, rows: int, row_bytes: float, work: Callable[[slice], None]) -> None:
        """`work` on all rows, as many of them together as fit."""

        def halved(size: int) -> None:
            self.limit = size * row_bytes

        if self.given is not None and row_bytes > self.given:
            needed = row_bytes / SHARE / GIB
            raise LehdError(f"the memory does not hold one instance: it takes about {needed:.2f} GiB more")
        in_turns(rows, self.rows_at_once(rows, row_bytes), work, halved)


def in_turns(count: int, size: int, work: Callable[[slice], None], halved: Callable[[int], None]) -> None:
    """`work` on `count` things, `size` at once. Out of memory, on half as many from then on, which `halved` is told."""
    first = 0
    while first < count:
        part = slice(first, min(first + size, count))
        try:
            work(part)
            first = part.stop
            continue
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
        if part.stop - first == 1:
            raise LehdError("the memory does not hold a single instance")
        size = (part.stop - first + 1) // 2
        give_back()
        halved(size)


def out_of_memory(error: Exception) -> bool:
    """Whether that is what happened: torch does not always have an exception of its own for it."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(words in str(error) for words in NO_MEMORY)


def give_back() -> None:
    """Return what torch keeps for later to the GPU: what comes next may need it in other pieces."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def row_bytes(config: ModelConfig, view: int, available: int, copies: int) -> float:
    """About what construction takes for each of its rows: `copies` views of so many nodes, out of those available."""
    per_token = 4 * (10 * config.dim + 2 * config.feed_forward)  # what a layer holds of a node, in single precision
    return copies * (view + 2) * per_token + copies * available * BYTES_PER_AVAILABLE


def memory_of(limit: float | None, device: torch.device, half: bool) -> Memory:
    """What a limit in GiB on all that the process holds leaves for construction."""
    if limit is None:
        return Memory()
    held = in_use(device) + (HALF_EXTRA if half and device.type == "cpu" else 0)
    if limit * GIB <= held:
        raise LehdError(f"memory = {limit:g} GiB: expected more than the {held / GIB:.2f} GiB that it takes to begin")
    return Memory(SHARE * (limit * GIB - held))


def in_use(device: torch.device) -> int:
    """Bytes the process holds now, on a GPU those of its tensors."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # elsewhere than on Linux: at most what it held at any time
        if sys.platform == "win32":
            return 0
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
