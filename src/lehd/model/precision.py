"""How the model's arithmetic is done, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# cuDNN's attention, PyTorch's first choice on recent GPUs, prepares a plan for every new length, about 40 ms each. Here
# every step is a new length.
BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]


@contextmanager
def arithmetic(device: torch.device) -> Iterator[None]:
    """On a GPU matrix products in bfloat16 and everything that is added up in single precision; single elsewhere."""
    with (
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"),
        sdpa_kernel(BACKENDS, set_priority=True),
    ):
        yield


@contextmanager
def inference(device: torch.device) -> Iterator[None]:
    """The same without gradients."""
    with torch.no_grad(), arithmetic(device):
        yield
