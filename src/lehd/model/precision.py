"""How the model's arithmetic is done, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

# cuDNN's attention, PyTorch's first choice on recent GPUs, prepares a plan for every new length, about 40 ms each. Here
# every step is a new length.
BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]

HALF = torch.bfloat16
_kept: ContextVar[dict[int, list[Tensor]] | None] = ContextVar("half_copies", default=None)


@contextmanager
def arithmetic(device: torch.device) -> Iterator[None]:
    """On a GPU the layers' matrix products in bfloat16, all else in single precision; on a CPU single throughout."""
    with (
        torch.cuda.device(device) if device.type == "cuda" else nullcontext(),  # where kernels are launched
        torch.autocast(device.type, dtype=HALF, enabled=device.type == "cuda"),
        sdpa_kernel(BACKENDS, set_priority=True),
    ):
        yield


def exactly(tensor: Tensor) -> torch.autocast:
    """Within it, everything in single precision: a position in half precision is off by as much as neighbours are apart
    in large instances, and scores that differ become equal."""
    return torch.autocast(tensor.device.type, enabled=False)


@contextmanager
def inference(device: torch.device) -> Iterator[None]:
    """The same without gradients. Weights must not change meanwhile: their half-precision copies are made once."""
    before = _kept.set({})
    try:
        with torch.no_grad(), arithmetic(device):
            yield
    finally:
        _kept.reset(before)


def half_copies(module: nn.Module) -> list[Tensor]:
    """A module's matrices, not its biases, in half precision."""
    kept = _kept.get()
    if kept is None:
        return [w.detach().to(HALF) for w in module.parameters() if w.ndim == 2]
    if id(module) not in kept:
        kept[id(module)] = [w.detach().to(HALF) for w in module.parameters() if w.ndim == 2]
    return kept[id(module)]
