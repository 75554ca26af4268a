"""A stack of attention layers on a GPU, by the kernels in `kernels.py`: the same function as the layers themselves.

The layers' own code is what runs everywhere else, and what this is tested against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from lehd.model import attention
from lehd.model.attention import AttentionLayer
from lehd.model.precision import half_copies

LONGEST = 128  # nodes that one program of the attention kernels can hold
TOKENS = 64  # that a program of the other kernels works on
HIDDEN = 64  # hidden features at a time


_allowed: ContextVar[bool] = ContextVar("fused_kernels", default=True)


@contextmanager
def plain_layers() -> Iterator[None]:
    """Do without the kernels, to compare with them."""
    before = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(before)


def fusable(layers: Sequence[AttentionLayer], x: Tensor) -> bool:
    """Whether the kernels can do what is asked: on a GPU, in half precision, with sizes that suit its matrix units."""
    if not (_allowed.get() and x.is_cuda and torch.is_autocast_enabled("cuda") and _has_triton()):
        return False
    first, dim = layers[0], x.shape[-1]
    sizes_suit = dim in (64, 128) and dim // first.heads in (16, 32, 64) and first.ff_in.out_features % HIDDEN == 0
    return first.plain and sizes_suit and x.numel() > 0


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def run_fused(layers: Sequence[AttentionLayer], x: Tensor) -> Tensor:
    """(R, n, D) -> (R, n, D), as if the layers were called one after the other."""
    weights = [tensor for layer in layers for tensor in layer.parameters()]
    half = [Matrices(*half_copies(layer)) for layer in layers]
    out: Tensor = _Stack.apply(x, layers[0].heads, layers[0].sharpen, half, *weights)  # type: ignore[no-untyped-call]
    return out


class Matrices(NamedTuple):
    """A layer's matrices in half precision, in the order in which the layer has them."""

    qkv: Tensor  # (3 D, D)
    out: Tensor  # (D, D)
    ff_in: Tensor  # (F, D)
    ff_out: Tensor  # (D, F)


class Biases(NamedTuple):
    out: Tensor  # (D,)
    ff_in: Tensor  # (F,)
    ff_out: Tensor  # (D,)


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int, sharpen: float, half: list[Matrices], *weights: Tensor) -> Tensor:
        """`weights` are those of all layers in the order of `parameters()`: matrices and biases by turns."""
        keep = any(ctx.needs_input_grad)
        shape, x = x.shape, x.contiguous().float()
        tokens = x.view(-1, shape[-1])
        tokens_half = tokens.to(half[0].qkv.dtype)
        ctx.shape, ctx.heads, ctx.sharpen = shape, heads, sharpen
        ctx.half, ctx.biases, ctx.kept = half, [], []
        for number, w in enumerate(half):
            biases = Biases(*weights[7 * number + 2 : 7 * number + 7 : 2])
            qkv = functional.linear(tokens_half, w.qkv)
            mixed, norm = attend(qkv, shape, heads, sharpen, keep)
            source, into = tokens_half, tokens if number else torch.empty_like(tokens)
            tokens, tokens_half, x1 = after_attention(tokens, into, mixed, w, biases, keep)
            if keep:
                ctx.biases.append(biases)
                ctx.kept.append((source, qkv, norm, mixed, x1))
        return tokens.view(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        g = gradient.contiguous().float().view(-1, ctx.shape[-1])
        gradients: list[Tensor] = []
        for w, biases, (source, qkv, norm, mixed, x1) in zip(
            reversed(ctx.half), reversed(ctx.biases), reversed(ctx.kept), strict=True
        ):
            after = after_attention_backward(g, x1, w, biases)
            d_qkv = attend_backward(qkv, norm, after.d_mixed, ctx.shape, ctx.heads, ctx.sharpen)
            g = projection_backward(d_qkv, w, after.g1)
            dim, sums = g.shape[1], after.sums.sum(0)
            gradients = [
                over_tokens(d_qkv, source),
                over_tokens(after.g1_half, mixed),
                sums[dim : 2 * dim],
                over_tokens(after.d_hidden, x1),
                sums[2 * dim :],
                over_tokens(after.g_half, after.hidden),
                sums[:dim],
                *gradients,
            ]
        ctx.kept.clear()
        return g.view(ctx.shape), None, None, None, *gradients


def over_tokens(left: Tensor, right: Tensor) -> Tensor:
    """leftᵀ right, added up over all tokens in single precision."""
    if left.is_cuda:
        return torch.mm(left.T, right, out_dtype=torch.float32)
    return left.float().T @ right.float()


def attend(qkv: Tensor, shape: torch.Size, heads: int, sharpen: float, keep: bool) -> tuple[Tensor, Tensor]:
    """What every token gathers (T, D), and what the gradient needs beside qkv."""
    rows, length, dim = shape
    if length > LONGEST:
        return _attend_long(qkv, shape, heads, sharpen), qkv
    from lehd.model import kernels

    out = torch.empty(rows * length, dim, dtype=qkv.dtype, device=qkv.device)
    norm = torch.empty(rows * length, heads, device=qkv.device) if keep else qkv
    block = _block(length, smallest=32)
    kernels.attention[(_programs(rows, length, heads, block),)](
        qkv, out, norm, rows * length, length, 1 / length, attention.scale(length, dim // heads, sharpen),
        heads, dim, block, keep,
        num_warps=min(4, block // 16),
    )  # fmt: skip
    return out, norm


def attend_backward(
    qkv: Tensor, norm: Tensor, d_mixed: Tensor, shape: torch.Size, heads: int, sharpen: float
) -> Tensor:
    rows, length, dim = shape
    if length > LONGEST:
        with torch.enable_grad():
            again = qkv.detach().requires_grad_()
            return torch.autograd.grad(_attend_long(again, shape, heads, sharpen), again, d_mixed)[0]
    from lehd.model import kernels

    d_qkv = torch.empty_like(qkv)
    block = _block(length, smallest=64)
    kernels.attention_backward[(_programs(rows, length, heads, block),)](
        qkv, norm, d_mixed, d_qkv, rows * length, length, 1 / length, attention.scale(length, dim // heads, sharpen),
        heads, dim, block,
        num_warps=4,
    )  # fmt: skip
    return d_qkv


def _attend_long(qkv: Tensor, shape: torch.Size, heads: int, sharpen: float) -> Tensor:
    """By the library's kernels, for rows of any length."""
    rows, length, dim = shape
    return attention.attend(qkv.view(rows, length, 3 * dim), heads, sharpen).reshape(-1, dim)


def _block(length: int, smallest: int) -> int:
    """Tokens per program."""
    return max(smallest, 1 << (length - 1).bit_length())


def _programs(rows: int, length: int, heads: int, block: int) -> int:
    return heads * -(-rows // (block // length))


def after_attention(
    x: Tensor, into: Tensor, mixed: Tensor, w: Matrices, b: Biases, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The layer's output, in single and in half precision, and what its gradient needs."""
    from lehd.model import kernels

    tokens, dim = x.shape
    y_half, x1 = torch.empty_like(mixed), torch.empty_like(mixed) if keep else mixed
    kernels.after_attention[(-(-tokens // TOKENS),)](
        x, mixed, w.out, b.out, w.ff_in, b.ff_in, w.ff_out, b.ff_out, into, y_half, x1, tokens,
        dim, w.ff_in.shape[0], HIDDEN, TOKENS, keep, num_warps=4, num_stages=2,
    )  # fmt: skip
    return into, y_half, x1


class AfterAttention(NamedTuple):
    """What the backward kernel finds."""

    g1: Tensor  # (T, D) gradient between the layer's two halves
    g_half: Tensor  # (T, D) gradient of the output
    g1_half: Tensor  # (T, D)
    d_mixed: Tensor  # (T, D) gradient of what attention gave
    hidden: Tensor  # (T, F)
    d_hidden: Tensor  # (T, F)
    sums: Tensor  # (programs, 2 D + F) gradients of the biases ff_out, out, ff_in


def after_attention_backward(g: Tensor, x1: Tensor, w: Matrices, b: Biases) -> AfterAttention:
    from lehd.model import kernels

    tokens, dim = g.shape
    hidden, programs = w.ff_in.shape[0], -(-tokens // TOKENS)
    g_half, g1_half, d_mixed = (torch.empty_like(x1) for _ in range(3))
    h, d_h = (torch.empty(tokens, hidden, dtype=x1.dtype, device=g.device) for _ in range(2))
    g1, sums = torch.empty_like(g), torch.empty(programs, 2 * dim + hidden, device=g.device)
    kernels.after_attention_backward[(programs,)](
        g, x1, w.out, w.ff_in, b.ff_in, w.ff_out, g1, g_half, g1_half, d_mixed, h, d_h, sums, tokens,
        dim, hidden, HIDDEN, TOKENS, num_warps=4, num_stages=1,
    )  # fmt: skip
    return AfterAttention(g1, g_half, g1_half, d_mixed, h, d_h, sums)


def projection_backward(d_qkv: Tensor, w: Matrices, g1: Tensor) -> Tensor:
    """The gradient of the layer's input, which takes the place of g1."""
    from lehd.model import kernels

    tokens, dim = g1.shape
    kernels.projection_backward[(-(-tokens // TOKENS),)](
        d_qkv, w.qkv, g1, g1, tokens, dim, TOKENS, num_warps=4, num_stages=2
    )
    return g1
