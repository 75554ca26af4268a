"""How the model's arithmetic is done, in one place."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

# cuDNN's attention, PyTorch's first choice on recent GPUs, prepares a plan for every new length, about 40 ms each. Here
# every step is a new length.
BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]

HALF = torch.bfloat16
Copy = TypeVar("Copy")
Copies = dict[Any, Any]  # of weights, by what they are called
_kept: ContextVar[Copies | None] = ContextVar("copies", default=None)
_half: ContextVar[bool | None] = ContextVar("half", default=None)


@contextmanager
def arithmetic(device: torch.device) -> Iterator[None]:
    """On a GPU the layers' matrix products in bfloat16, all else in single precision; on a CPU single throughout.
    Within `in_half` as that says."""
    half = _half.get()
    with (
        torch.cuda.device(device) if device.type == "cuda" else nullcontext(),  # where kernels are launched
        torch.autocast(device.type, dtype=HALF, enabled=device.type == "cuda" if half is None else half),
        sdpa_kernel(BACKENDS, set_priority=True),
    ):
        yield


def exactly(tensor: Tensor) -> torch.autocast:
    """Within it, everything in single precision: a position in half precision is off by as much as neighbours are apart
    in large instances, and scores that differ become equal."""
    return torch.autocast(tensor.device.type, enabled=False)


@contextmanager
def inference(device: torch.device, copies: Copies | None = None) -> Iterator[None]:
    """The same without gradients. Weights must not change meanwhile: copies of them, in half precision or in another
    order, are made once, and kept in `copies` if it is given."""
    kept = _kept.get() if copies is None else copies
    before = _kept.set({} if kept is None else kept)
    try:
        with torch.no_grad(), arithmetic(device):
            yield
    finally:
        _kept.reset(before)


@contextmanager
def in_half(wanted: bool) -> Iterator[None]:
    """Within it inference multiplies matrices in bfloat16, or not, on whatever device, with one set of copies of the
    weights."""
    half, kept = _half.set(wanted), _kept.set({})
    try:
        yield
    finally:
        _half.reset(half)
        _kept.reset(kept)


@cache
def cpu_has_half() -> bool:
    """Whether this processor multiplies bfloat16 numbers itself; others do so more slowly than single precision."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of torch do not tell
    return bool(capabilities.get("avx512_bf16", False))


def wants_half(x: Tensor) -> bool:
    """Whether matrix products with such a tensor are to be in half precision."""
    return torch.is_autocast_enabled(x.device.type)


def inferring() -> bool:
    """Whether this is within `inference`: weights do not change."""
    return _kept.get() is not None


def kept(name: Hashable, make: Callable[[], Copy]) -> Copy:
    """What `make` makes of the weights; within `inference` it is made once."""
    copies = _kept.get()
    if copies is None:
        return make()
    if name not in copies:
        copies[name] = make()
    found: Copy = copies[name]
    return found


def half_copies(modules: Sequence[nn.Module]) -> list[list[Tensor]]:
    """The matrices of each module, not the biases, in half precision."""
    kept = _kept.get()
    if kept is None:
        return _in_half(modules)
    new = [module for module in modules if id(module) not in kept]
    kept.update(zip(map(id, new), _in_half(new), strict=True))
    return [kept[id(module)] for module in modules]


def _in_half(modules: Sequence[nn.Module]) -> list[list[Tensor]]:
    """All of them in one go: one by one would take a GPU many times as long."""
    matrices = [[w.detach() for w in module.parameters() if w.ndim == 2] for module in modules]
    if not any(matrices):
        return matrices
    row = torch.cat([w.flatten() for each in matrices for w in each]).to(HALF)
    parts = iter(torch.split_with_sizes(row, [w.numel() for each in matrices for w in each]))
    return [[next(parts).view_as(w) for w in each] for each in matrices]
