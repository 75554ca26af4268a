"""A stack of attention layers on a CPU in half precision by torch's products, where the compiled kernel (native.py)
cannot be had: the same function as the layers themselves under autocast, without converting the weights at every step.

Sums along the layers and the attention itself stay in single precision: the one would lose what the layers add, the
other is not faster in half. Matrix products in half precision are prepared anew for every number of tokens, which takes
as long as a small product, and memory for good. Every step of a construction has another number, so tokens go through
the layers in blocks of a few sizes, and few of them, where it does not pay, in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from lehd.model.attention import AttentionLayer, attend
from lehd.model.precision import HALF, half_copies, wants_half

LEAST = 512  # tokens; fewer are no faster in half precision
BLOCK = 1024  # tokens in a block
GRAIN = 32  # a smaller block, the last, has a multiple of so many


def halvable(layers: Sequence[AttentionLayer], x: Tensor, seen: Tensor | None = None) -> bool:
    """Whether half precision is asked for, on a CPU and without gradients, and pays. Rows in which nodes are missing
    are a GPU's business."""
    asked = seen is None and x.is_cpu and wants_half(x) and not torch.is_grad_enabled()
    return asked and layers[0].plain and x.shape[0] * x.shape[1] >= LEAST


def run_half(layers: Sequence[AttentionLayer], x: Tensor) -> Tensor:
    """(R, n, D) -> (R, n, D), as if the layers were called one after the other."""
    rows, length, dim = x.shape
    tokens = rows * length
    padded = -(-tokens // GRAIN) * GRAIN
    with torch.autocast("cpu", enabled=False):
        y = torch.zeros(padded, dim)
        y[:tokens] = x.reshape(tokens, dim)
        mixed = torch.zeros(padded, dim, dtype=HALF)
        for layer, (qkv, out, ff_in, ff_out) in zip(layers, half_copies(layers), strict=True):
            projected = torch.cat([functional.linear(block.to(HALF), qkv) for block in torch.split(y, BLOCK)])
            attended = attend(projected[:tokens].view(rows, length, 3 * dim).float(), layer.heads, layer.sharpen)
            mixed[:tokens] = attended.view(tokens, dim)
            bias = layer.ff_in.bias.to(HALF)
            for block, seen in zip(torch.split(y, BLOCK), torch.split(mixed, BLOCK), strict=True):
                block += functional.linear(seen, out)
                block += layer.attention_out.bias
                block += functional.linear(functional.linear(block.to(HALF), ff_in, bias).relu_(), ff_out)
                block += layer.ff_out.bias
    return y[:tokens].view(rows, length, dim)
