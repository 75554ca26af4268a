"""A stack of attention layers on a CPU by a kernel of its own (cpu_kernel.c): the same function as the layers' code.

torch's products of small matrices, and its attention among few nodes, keep a core busy for a third of what it could do
or less. The kernel is compiled when it is first needed, for the processor that is there. Where there is no C compiler,
or LEHD_NATIVE=0 is set, the layers' own code does it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from ctypes import c_float, c_int, c_long, c_void_p
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lehd.model import compiler
from lehd.model.attention import AttentionLayer, scale
from lehd.model.precision import HALF, inferring, kept, wants_half

SOURCE = Path(__file__).with_name("cpu_kernel.c")
PANEL = 16  # columns of a matrix that lie together
COLUMNS = 64  # every width is a multiple of it, and the size of heads one of PANEL
WORTH_SHARING = 512  # tokens: with fewer it is over before other threads have begun, torch's too
FEW_THREADS = 3  # so many together are not faster at a long row, by torch, than one by the kernel
TOLERANCE = {False: 1e-4, True: 0.03}  # relative error of a library that can be trusted; True: in half precision
_ADDRESS, _NUMBER = c_void_p, c_long
_hurried: ContextVar[bool] = ContextVar("hurried", default=False)


class _Layer(ctypes.Structure):
    """As the kernel declares it."""

    _fields_ = [(name, _ADDRESS) for name in ("qkv", "out", "ff_in", "ff_out", "out_bias", "ff_in_bias", "ff_out_bias")]


class Packed(NamedTuple):
    """The weights of a stack of layers as the kernel reads them."""

    layers: ctypes.Array[_Layer]
    tensors: list[Tensor]  # whose addresses they hold
    owners: list[AttentionLayer]  # alive as long as this: it is kept under their addresses


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        self._room, self._layers = library.lehd_room, library.lehd_layers
        self._room.argtypes, self._room.restype = [_NUMBER] * 5, _NUMBER
        self._layers.argtypes = [
            _ADDRESS, _ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _NUMBER, _NUMBER, _NUMBER, _NUMBER, c_float, c_int, _ADDRESS
        ]  # fmt: skip
        self._layers.restype = None
        self.half = bool(library.lehd_half())

    def run(self, packed: Packed, x: Tensor, y: Tensor, half: bool) -> None:
        """x (R, n, D) through the layers, to y; both contiguous. Python's lock is free meanwhile."""
        first, (rows, length, dim) = packed.owners[0], x.shape
        sizes = (dim, first.heads, first.ff_in.out_features)
        scratch = torch.empty(self._room(rows, length, *sizes), dtype=torch.float32, device="cpu")
        which = (x.data_ptr(), y.data_ptr(), rows, length, packed.layers, len(packed.owners), *sizes)
        self._layers(*which, scale(length, dim // first.heads, first.sharpen), half, scratch.data_ptr())


def suits(layers: Sequence[AttentionLayer], x: Tensor, seen: Tensor | None = None) -> bool:
    """Whether the kernel can do it, and should. Rows in which nodes are missing are a GPU's business."""
    if seen is not None or not x.is_cpu or x.dtype != torch.float32 or torch.is_grad_enabled() or not inferring():
        return False
    if not layers or not x.numel():
        return False
    first, (rows, length, dim) = layers[0], x.shape
    fits = dim % COLUMNS == first.ff_in.out_features % COLUMNS == dim // first.heads % PANEL == 0
    torchs = rows == 1 and length >= WORTH_SHARING and torch.get_num_threads() > FEW_THREADS
    if not first.plain or not fits or torchs:
        return False
    found = kernel()
    return found is not None and (found.half or not wants_half(x))


def run_native(layers: Sequence[AttentionLayer], x: Tensor) -> Tensor:
    """(R, n, D) -> (R, n, D), as if the layers were called one after the other."""
    found, half, x = kernel(), wants_half(x), x.contiguous()
    assert found is not None
    packed = kept(("packed", half, *map(id, layers)), lambda: pack(layers, half))
    y = torch.empty_like(x)
    threads = min(torch.get_num_threads(), len(x)) if x.shape[0] * x.shape[1] >= WORTH_SHARING else 1
    first, *rest = zip(x.tensor_split(threads), y.tensor_split(threads))
    running = [_pool().submit(found.run, packed, *part, half) for part in rest]
    found.run(packed, *first, half)
    for each in running:
        each.result()
    return y


def pack(layers: Sequence[AttentionLayer], half: bool) -> Packed:
    """Matrices in panels of 16 columns, biases as they are."""
    array, tensors = (_Layer * len(layers))(), []

    def address(tensor: Tensor) -> int:
        tensors.append(tensor)
        return tensor.data_ptr()

    for one, layer in zip(array, layers, strict=True):
        for name, linear in [
            ("qkv", layer.qkv), ("out", layer.attention_out), ("ff_in", layer.ff_in), ("ff_out", layer.ff_out)
        ]:  # fmt: skip
            setattr(one, name, address(_panels(linear.weight.detach(), half)))
            if name != "qkv":
                setattr(one, f"{name}_bias", address(linear.bias.detach().float().contiguous()))
    return Packed(array, tensors, list(layers))


def _panels(weight: Tensor, half: bool) -> Tensor:
    """Panels (columns / 16, depth, 16) of a matrix (columns, depth); in half two of its depth lie side by side."""
    panels = weight.float().view(-1, PANEL, weight.shape[1]).mT
    if half:
        panels = panels.to(HALF).reshape(len(panels), -1, 2, PANEL).mT
    return panels.contiguous()


# ---- the library


@contextmanager
def hurried(wanted: bool) -> Iterator[None]:
    """Within it nobody waits for the compiler, if it is needed: until then the layers' own code does the work."""
    before = _hurried.set(wanted)
    try:
        yield
    finally:
        _hurried.reset(before)


def kernel() -> Kernel | None:
    """The kernel, if it can be compiled here and does what the layers do."""
    return _search.answer(wait=not _hurried.get())


class _Search:
    """For the kernel: what was found once, be it nothing, stays the answer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.library: compiler.Library | None = None
        self.found: Kernel | None = None
        self.over = False

    def answer(self, wait: bool) -> Kernel | None:
        if not self.over and self.lock.acquire(blocking=wait):
            try:
                if not self.over:
                    self._look(wait)
            finally:
                self.lock.release()
        return self.found

    def _look(self, wait: bool) -> None:
        """Load the library. If it has to be compiled first, wait for that, or see that it is and come again."""
        with suppress(OSError, RuntimeError, ValueError):  # whatever is not as expected, the layers can do without
            first = self.library is None
            if first:
                self.library = None if os.environ.get("LEHD_NATIVE") == "0" else compiler.library(SOURCE)
            if self.library is not None:
                loaded = self.library.load()
                if loaded is None and not wait:
                    if first:
                        self.library.begin()
                    return
                self.found = _trusted(loaded or self.library.compile())
        self.over = True


_search = _Search()


def _trusted(library: ctypes.CDLL | None) -> Kernel | None:
    """The kernel of a library that computes what the layers do."""
    if library is None:
        return None
    found = Kernel(library)
    return found if all(_agrees(found, half) for half in {False, found.half}) else None


@torch.no_grad()
def _agrees(found: Kernel, half: bool) -> bool:
    """Whether it computes what a layer does: compilers and emulated processors have bugs."""

    def numbers(*shape: int, step: float) -> Tensor:
        count = torch.arange(torch.Size(shape).numel(), dtype=torch.float32, device="cpu")
        return (step * count).sin().view(shape)

    with torch.autocast("cpu", enabled=False):
        with torch.device("meta"):  # no random numbers: other threads may count on theirs
            layer = AttentionLayer(64, 4, 128)
        shapes = enumerate(layer.state_dict().items())
        weights = {name: numbers(*weight.shape, step=1.1 + 0.1 * number) / 8 for number, (name, weight) in shapes}
        layer.load_state_dict(weights, assign=True)
        x = numbers(3, 21, 64, step=0.7)
        wanted, y = layer(x) - x, torch.empty_like(x)
        found.run(pack([layer], half), x, y, half)
        return bool((y - x - wanted).norm() < TOLERANCE[half] * wanted.norm())


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "layers")


def _forget() -> None:
    """Threads do not come along into a process that was forked, and a lock that one of them holds stays locked."""
    global _search
    _pool.cache_clear()
    if not _search.over:
        _search = _Search()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
