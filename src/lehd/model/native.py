"""A stack of attention layers on a CPU by a kernel of its own (cpu_kernel.c): the same function as the layers' code.

torch's products of small matrices, and its attention among few nodes, keep a core busy for a third of what it could do
or less. The kernel is compiled when it is first needed, for the processor that is there. Where there is no C compiler,
or LEHD_NATIVE=0 is set, the layers' own code does it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
WORTH_SHARING = 512  # tokens: with fewer it is over before other threads have begun
FEW_THREADS = 3  # so many together are not faster, by torch, than one by the kernel
TOLERANCE = {False: 1e-4, True: 0.03}  # relative error of a library that can be trusted; True: in half precision
_ADDRESS, _NUMBER = c_void_p, c_long


class _Layer(ctypes.Structure):
    """As the kernel declares it."""

    _fields_ = [(name, _ADDRESS) for name in ("qkv", "out", "ff_in", "ff_out", "out_bias", "ff_in_bias", "ff_out_bias")]


class Packed(NamedTuple):
    """The weights of a stack of layers as the kernel reads them."""

    layers: ctypes.Array[_Layer]
    tensors: list[Tensor]  # whose addresses they hold


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        self._room, self._layers = library.lehd_room, library.lehd_layers
        self._room.argtypes, self._room.restype = [_NUMBER] * 5, _NUMBER
        self._layers.argtypes = [
            _ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _NUMBER, _NUMBER, _NUMBER, _NUMBER, c_float, c_int, _ADDRESS
        ]  # fmt: skip
        self._layers.restype = None
        self.half = bool(library.lehd_half())

    def run(self, layers: Sequence[AttentionLayer], packed: Packed, x: Tensor, half: bool) -> None:
        """x (R, n, D) through the layers, in place. Python's lock is free meanwhile."""
        first, (rows, length, dim) = layers[0], x.shape
        hidden = first.ff_in.out_features
        sizes = (dim, first.heads, hidden)
        scratch = torch.empty(self._room(rows, length, *sizes))
        factor = scale(length, dim // first.heads, first.sharpen)
        which = (x.data_ptr(), rows, length, packed.layers, len(layers), *sizes)
        self._layers(*which, factor, half, scratch.data_ptr())


def suits(layers: Sequence[AttentionLayer], x: Tensor, seen: Tensor | None = None) -> bool:
    """Whether the kernel can do it, and should. Rows in which nodes are missing are a GPU's business."""
    if seen is not None or not x.is_cpu or x.dtype != torch.float32 or torch.is_grad_enabled() or not inferring():
        return False
    first, (rows, _, dim) = layers[0], x.shape
    fits = dim % COLUMNS == first.ff_in.out_features % COLUMNS == dim // first.heads % PANEL == 0
    if not first.plain or not fits or (rows == 1 and torch.get_num_threads() > FEW_THREADS):
        return False
    found = kernel()
    return found is not None and (found.half or not wants_half(x))


def run_native(layers: Sequence[AttentionLayer], x: Tensor) -> Tensor:
    """(R, n, D) -> (R, n, D), as if the layers were called one after the other."""
    found, half = kernel(), wants_half(x)
    assert found is not None
    packed = kept(("packed", half, *map(id, layers)), lambda: pack(layers, half))
    y = x.clone(memory_format=torch.contiguous_format)
    threads = min(torch.get_num_threads(), len(x)) if x.shape[0] * x.shape[1] >= WORTH_SHARING else 1
    first, *rest = y.tensor_split(threads)
    running = [_pool(threads - 1).submit(found.run, layers, packed, part, half) for part in rest]
    found.run(layers, packed, first, half)
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
    return Packed(array, tensors)


def _panels(weight: Tensor, half: bool) -> Tensor:
    """Panels (columns / 16, depth, 16) of a matrix (columns, depth); in half two of its depth lie side by side."""
    panels = weight.float().view(-1, PANEL, weight.shape[1]).mT
    if half:
        panels = panels.to(HALF).reshape(len(panels), -1, 2, PANEL).mT
    return panels.contiguous()


@cache
def kernel() -> Kernel | None:
    """The kernel, if it can be compiled here and does what the layers do."""
    library = None if os.environ.get("LEHD_NATIVE") == "0" else compiler.load(SOURCE)
    if library is None:
        return None
    found = Kernel(library)
    return found if all(_agrees(found, half) for half in {False, found.half}) else None


def _agrees(found: Kernel, half: bool) -> bool:
    """Whether it computes what a layer does: compilers and emulated processors have bugs."""
    with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.autocast("cpu", enabled=False):
        torch.manual_seed(0)
        layer = AttentionLayer(64, 4, 128)
        x = torch.randn(3, 21, 64)
        wanted, y = layer(x) - x, x.clone()
        found.run([layer], pack([layer], half), y, half)
        return bool((y - x - wanted).norm() < TOLERANCE[half] * wanted.norm())


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "layers")
