"""One attention layer: multi-head attention and a feed-forward network, each added to what came in."""

from __future__ import annotations

import math

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
        self.plain = norm == "none"
        self.norm_attention = NodeNorm(dim, norm) if norm != "none" else nn.Identity()
        self.norm_ff = NodeNorm(dim, norm) if norm != "none" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention_out(attend(self.qkv(x), self.heads, self.sharpen))
        x = self.norm_attention(x)
        x = x + self.ff_out(torch.relu(self.ff_in(x)))
        normed: Tensor = self.norm_ff(x)
        return normed


def attend(qkv: Tensor, heads: int, sharpen: float = 0.0) -> Tensor:
    """Multi-head attention (R, n, D) of queries, keys and values (R, n, 3D)."""
    rows, length, triple = qkv.shape
    # (R, n, 3D) -> three of (R, heads, n, D / heads)
    q, k, v = qkv.view(rows, length, 3, heads, triple // 3 // heads).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(q, k, v, scale=scale(length, q.shape[-1], sharpen))
    return mixed.transpose(1, 2).reshape(rows, length, triple // 3)


def scale(length: int, size: int, sharpen: float) -> float:
    """What scores of heads of a size are multiplied by.

    The more nodes there are, the less attention is left for those that matter. What was learnt among few of them holds
    among many if scores grow with the logarithm of their number: by `sharpen`, for more than most training has.
    """
    return (1 + sharpen * math.log(max(1.0, length / TRAINED))) / math.sqrt(size)
