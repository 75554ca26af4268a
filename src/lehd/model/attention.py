"""One attention layer: multi-head attention and a feed-forward network, each added to what came in."""

from __future__ import annotations

import math
from typing import overload

import torch
from torch import Tensor, nn
from torch.nn import functional

TRAINED = 102  # nodes up to which scores stay as they are: 100 to be placed, the starting and the destination node


class NodeNorm(nn.Module):
    """Normalization of each feature, over all nodes of the batch or over the nodes of each instance.

    The paper's ablation: its model has none.
    """

    def __init__(self, dim: int, kind: str):
        super().__init__()
        self.norm: nn.Module
        self.norm = nn.BatchNorm1d(dim) if kind == "batch" else nn.InstanceNorm1d(dim, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x.mT)
        return normed.mT


class AttentionLayer(nn.Module):
    """(R, n, D) -> (R, n, D), the same for every order of the n nodes."""

    def __init__(self, dim: int, heads: int, feed_forward: int, norm: str = "none", sharpen: float = 0.0):
        super().__init__()
        self.heads, self.sharpen = heads, sharpen
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attention_out = nn.Linear(dim, dim)
        self.ff_in = nn.Linear(dim, feed_forward)
        self.ff_out = nn.Linear(feed_forward, dim)
        self.plain, self.over_nodes = norm == "none", norm == "instance"
        self.norm_attention = NodeNorm(dim, norm) if norm != "none" else nn.Identity()
        self.norm_ff = NodeNorm(dim, norm) if norm != "none" else nn.Identity()

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """Only the first `seen` nodes of every row, a number in a tensor of its own, are there; None: all of them."""
        if self.over_nodes and seen is not None:
            raise ValueError("a norm over the nodes of an instance counts those that are not there")
        x = x + self.attention_out(attend(self.qkv(x), self.heads, self.sharpen, seen))
        x = self.norm_attention(x)
        x = x + self.ff_out(torch.relu(self.ff_in(x)))
        normed: Tensor = self.norm_ff(x)
        return normed


def attend(qkv: Tensor, heads: int, sharpen: float = 0.0, seen: Tensor | None = None) -> Tensor:
    """Multi-head attention (R, n, D) of queries, keys and values (R, n, 3D), to the first `seen` of each row."""
    rows, length, triple = qkv.shape
    # (R, n, 3D) -> three of (R, heads, n, D / heads)
    q, k, v = qkv.view(rows, length, 3, heads, triple // 3 // heads).permute(2, 0, 3, 1, 4)
    if seen is None:
        mixed = functional.scaled_dot_product_attention(q, k, v, scale=scale(length, q.shape[-1], sharpen))
    else:
        there = (torch.arange(length, device=qkv.device) < seen)[None]
        q = q * scale(seen, q.shape[-1], sharpen)  # a number that only the device knows
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=there, scale=1.0)
    return mixed.transpose(1, 2).reshape(rows, length, triple // 3)


@overload
def scale(length: int, size: int, sharpen: float) -> float: ...
@overload
def scale(length: Tensor, size: int, sharpen: float) -> Tensor: ...
def scale(length: int | Tensor, size: int, sharpen: float) -> float | Tensor:
    """What scores of heads of a size are multiplied by.

    The more nodes there are, the less attention is left for those that matter. What was learnt among few of them holds
    among many if scores grow with the logarithm of their number: by `sharpen`, for more than most training has.
    """
    ratio = length / TRAINED
    logarithm = ratio.clamp(min=1).log() if isinstance(ratio, Tensor) else math.log(max(1.0, ratio))
    return (1 + sharpen * logarithm) / math.sqrt(size)
