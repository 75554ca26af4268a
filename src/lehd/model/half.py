"""A stack of attention layers on a CPU in half precision: the same function as the layers themselves under autocast,
without converting the weights at every step.

Sums along the layers and the attention itself stay in single precision: the one would lose what the layers add, the
other is not faster in half.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from lehd.model.attention import AttentionLayer, attend
from lehd.model.precision import HALF, half_copies


def halvable(layers: Sequence[AttentionLayer], x: Tensor) -> bool:
    """Whether half precision is asked for, on a CPU and without gradients."""
    return x.is_cpu and torch.is_autocast_enabled("cpu") and not torch.is_grad_enabled() and layers[0].plain


def run_half(layers: Sequence[AttentionLayer], x: Tensor) -> Tensor:
    """(R, n, D) -> (R, n, D), as if the layers were called one after the other."""
    with torch.autocast("cpu", enabled=False):
        x = x.float().clone()
        for layer in layers:
            qkv, out, ff_in, ff_out = half_copies(layer)
            mixed = attend(functional.linear(x.to(HALF), qkv).float(), layer.heads)
            x += functional.linear(mixed.to(HALF), out)
            x += layer.attention_out.bias
            hidden = functional.linear(x.to(HALF), ff_in, layer.ff_in.bias.to(HALF)).relu_()
            x += functional.linear(hidden, ff_out)
            x += layer.ff_out.bias
    return x
