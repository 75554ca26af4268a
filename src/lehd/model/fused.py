"""A stack of attention layers on a GPU, by kernels of our own: the same function as the layers themselves.

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

LONGEST = 128  # nodes that one program of the attention kernels can hold; longer rows have kernels of their own
TOKENS = 64  # that a program of the other kernels works on
HIDDEN = 64  # hidden features at a time
# So few tokens would leave most of a GPU idle. Forward a program then works on fewer of them, more features at a time.
FEW, FEWER_TOKENS, MORE_HIDDEN = 2048, 16, 128
LONG = 64  # nodes of a longer row that a program works on, and that they look at at a time; shorter ones never do
# Rows of so many nodes would leave a quarter to a half of a program for 128 empty. Forward a program does a block of 32
# nodes, which look at the first 64 of their row and at the rest; of few rows one head, by the kernel for longer rows.
MIDDLE, MIDDLE_BLOCK, MIDDLE_FIRST = range(65, 97), 32, 64
WARPS = {32: 2, 64: 4, 128: 8}  # of an attention program, by the size of its block of tokens
# Blocks of tokens that keep a GPU busy: a program then does all heads of a block. Fewer blocks have a program for each
# head; of more than 64 tokens, where each holds one row, they go by the kernel for longer rows, which has still more.
MANY = 256
SMALL = 16  # features of a head, of which the next can be fetched meanwhile: larger ones do not fit beside each other


_allowed: ContextVar[bool] = ContextVar("fused_kernels", default=True)


@contextmanager
def plain_layers() -> Iterator[None]:
    """Do without the kernels, to compare with them."""
    before = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(before)


def fusable(layers: Sequence[AttentionLayer], x: Tensor, seen: Tensor | None = None) -> bool:
    """Whether the kernels can do what is asked: on a GPU, in half precision, with sizes that suit its matrix units."""
    if not kernels_run(x):
        return False
    if seen is not None and torch.is_grad_enabled():  # where nodes are missing there is no gradient
        return False
    first, dim = layers[0], x.shape[-1]
    sizes_suit = dim in (64, 128) and dim // first.heads in (16, 32, 64) and first.ff_in.out_features % HIDDEN == 0
    return first.plain and sizes_suit and x.numel() > 0


def kernels_run(x: Tensor) -> bool:
    """Whether kernels of our own may do something with a tensor: on a GPU, in half precision, unless unwanted."""
    return _allowed.get() and x.is_cuda and torch.is_autocast_enabled("cuda") and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def run_fused(layers: Sequence[AttentionLayer], x: Tensor, seen: Tensor | None = None) -> Tensor:
    """(R, n, D) -> (R, n, D), as if the layers were called one after the other."""
    weights = [tensor for layer in layers for tensor in layer.parameters()]
    half = [Matrices(*matrices) for matrices in half_copies(layers)]
    keep = torch.is_grad_enabled()  # which nobody knows any more within `forward`
    out: Tensor = _Stack.apply(x, keep, layers[0].heads, layers[0].sharpen, seen, half, *weights)  # type: ignore[no-untyped-call]
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
    def forward(
        ctx: Any,
        x: Tensor,
        keep: bool,
        heads: int,
        sharpen: float,
        seen: Tensor | None,
        half: list[Matrices],
        *weights: Tensor,
    ) -> Tensor:
        """`weights` are those of all layers in the order of `parameters()`: matrices and biases by turns. With `keep`
        there is a gradient, unless only the first `seen` nodes of every row are there."""
        shape, x = x.shape, x.contiguous().float()
        tokens = x.view(-1, shape[-1])
        tokens_half = tokens.to(half[0].qkv.dtype)
        ctx.shape, ctx.heads, ctx.sharpen = shape, heads, sharpen
        ctx.half, ctx.biases, ctx.kept = half, [], []
        for number, w in enumerate(half):
            biases = Biases(*weights[7 * number + 2 : 7 * number + 7 : 2])
            qkv = functional.linear(tokens_half, w.qkv)
            mixed, norm = attend(qkv, shape, heads, sharpen, keep, seen)
            source, into = tokens_half, tokens if number else torch.empty_like(tokens)
            tokens, tokens_half, x1 = after_attention(tokens, into, mixed, w, biases, keep)
            if keep:
                ctx.biases.append(biases)
                ctx.kept.append((source, qkv, norm, mixed, x1))
        return tokens.view(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        g = gradient.contiguous().float().view(-1, ctx.shape[-1])
        (tokens, dim), hidden = g.shape, ctx.half[0].ff_in.shape[0]
        sums = torch.empty(len(ctx.half), -(-tokens // TOKENS), 2 * dim + hidden, device=g.device)
        matrices: list[tuple[Tensor, ...]] = []  # gradients, those of the last layer first
        for number in reversed(range(len(ctx.half))):
            w, biases, (source, qkv, norm, mixed, x1) = ctx.half[number], ctx.biases[number], ctx.kept[number]
            after = after_attention_backward(g, x1, w, biases, sums[number])
            d_qkv = attend_backward(qkv, norm, mixed, after.d_mixed, ctx.shape, ctx.heads, ctx.sharpen)
            g = projection_backward(d_qkv, w, after.g1)
            matrices.append(
                (
                    over_tokens(d_qkv, source),
                    over_tokens(after.g1_half, mixed),
                    over_tokens(after.d_hidden, x1),
                    over_tokens(after.g_half, after.hidden),
                )
            )
        ctx.kept.clear()
        gradients: list[Tensor] = []
        ones = torch.ones(1, sums.shape[1], device=g.device)
        totals = (ones @ sums)[:, 0]  # many times as fast as sum(1)
        for (qkv, out, ff_in, ff_out), total in zip(reversed(matrices), totals, strict=True):
            b_ff_out, b_out, b_ff_in = total.split([dim, dim, hidden])
            gradients += [qkv, out, b_out, ff_in, b_ff_in, ff_out, b_ff_out]
        return g.view(ctx.shape), None, None, None, None, None, *gradients


def over_tokens(left: Tensor, right: Tensor) -> Tensor:
    """leftᵀ right, added up over all tokens in single precision."""
    if left.is_cuda:
        return torch.mm(left.T, right, out_dtype=torch.float32)
    return left.float().T @ right.float()


def attend(
    qkv: Tensor, shape: torch.Size, heads: int, sharpen: float, keep: bool, seen: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What every token gathers (T, D), and what the gradient needs beside qkv."""
    from lehd.model import attention_kernels

    rows, length, dim = shape
    out = torch.empty(rows * length, dim, dtype=qkv.dtype, device=qkv.device)
    norm = torch.empty(rows * length, heads, device=qkv.device) if keep else qkv
    some, count = seen is not None, qkv if seen is None else seen
    # How many nodes are there is what the kernels know if they have to look.
    scale = attention.scale(0 if some else length, dim // heads, sharpen)
    if length > LONGEST or (length > LONG and rows < MANY):
        block, warps = (MIDDLE_BLOCK, 1) if length in MIDDLE else (LONG, 4)
        blocks = -(-length // block)
        attention_kernels.long_attention[(rows * blocks * heads,)](
            qkv, out, norm, count, length, blocks, scale, sharpen, heads, dim, block, block, keep, some,
            num_warps=warps, num_stages=3,
        )  # fmt: skip
        return out, norm
    if length in MIDDLE:
        blocks, rest = -(-length // MIDDLE_BLOCK), 16 if length <= MIDDLE_FIRST + 16 else 32
        attention_kernels.middle_attention[(rows * blocks,)](
            qkv, out, norm, count, length, blocks, scale, sharpen, heads, dim, MIDDLE_BLOCK, MIDDLE_FIRST, rest,
            keep, some, num_warps=2, num_stages=2,
        )  # fmt: skip
        return out, norm
    block, programs, group = _division(rows, length, heads, dim)
    attention_kernels.attention[(programs,)](
        qkv, out, norm, count, rows * length, length, 1 / length, scale, sharpen, heads, dim, block, group, keep, some,
        num_warps=WARPS[block], num_stages=3,
    )  # fmt: skip
    return out, norm


def attend_backward(
    qkv: Tensor, norm: Tensor, mixed: Tensor, d_mixed: Tensor, shape: torch.Size, heads: int, sharpen: float
) -> Tensor:
    from lehd.model import attention_kernels

    rows, length, dim = shape
    scale = attention.scale(length, dim // heads, sharpen)
    d_qkv = torch.empty_like(qkv)
    if length > LONGEST:
        blocks = -(-length // LONG)
        attention_kernels.long_attention_backward[(rows * blocks * heads,)](
            qkv, norm, mixed, d_mixed, d_qkv, length, blocks, scale, heads, dim, LONG, LONG, num_warps=4, num_stages=3
        )
        return d_qkv
    block, programs, group = _division(rows, length, heads, dim)
    attention_kernels.attention_backward[(programs,)](
        qkv, norm, d_mixed, d_qkv, rows * length, length, 1 / length, scale, heads, dim, block, group,
        num_warps=WARPS[block], num_stages=3,
    )  # fmt: skip
    return d_qkv


def _division(rows: int, length: int, heads: int, dim: int) -> tuple[int, int, int]:
    """How attention is divided: tokens in a block, programs, heads that each of them does."""
    block = max(32, 1 << (length - 1).bit_length())
    blocks = -(-rows // (block // length))
    group = heads if blocks >= MANY and dim // heads <= SMALL else 1
    return block, blocks * heads // group, group


def after_attention(
    x: Tensor, into: Tensor, mixed: Tensor, w: Matrices, b: Biases, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The layer's output, in single and in half precision, and what its gradient needs."""
    from lehd.model import kernels

    tokens, dim = x.shape
    hidden = w.ff_in.shape[0]
    few = tokens <= FEW and hidden % MORE_HIDDEN == 0
    block, some = (FEWER_TOKENS, MORE_HIDDEN) if few else (TOKENS, HIDDEN)
    y_half, x1 = torch.empty_like(mixed), torch.empty_like(mixed) if keep else mixed
    kernels.after_attention[(-(-tokens // block),)](
        x, mixed, w.out, b.out, w.ff_in, b.ff_in, w.ff_out, b.ff_out, into, y_half, x1, tokens,
        dim, hidden, some, block, keep, num_warps=4, num_stages=2,
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


def after_attention_backward(g: Tensor, x1: Tensor, w: Matrices, b: Biases, sums: Tensor) -> AfterAttention:
    """Also fills sums (programs, 2 D + F), which add up to the gradients of the biases ff_out, out, ff_in."""
    from lehd.model import kernels

    tokens, dim = g.shape
    hidden = w.ff_in.shape[0]
    g_half, g1_half, d_mixed = (torch.empty_like(x1) for _ in range(3))
    h, d_h = (torch.empty(tokens, hidden, dtype=x1.dtype, device=g.device) for _ in range(2))
    g1 = torch.empty_like(g)
    kernels.after_attention_backward[(len(sums),)](
        g, x1, w.out, w.ff_in, b.ff_in, w.ff_out, g1, g_half, g1_half, d_mixed, h, d_h, sums, tokens,
        dim, hidden, HIDDEN, TOKENS, num_warps=4, num_stages=2,
    )  # fmt: skip
    return AfterAttention(g1, g_half, g1_half, d_mixed, h, d_h)


def projection_backward(d_qkv: Tensor, w: Matrices, g1: Tensor) -> Tensor:
    """The gradient of the layer's input, which takes the place of g1."""
    from lehd.model import kernels

    tokens, dim = g1.shape
    kernels.projection_backward[(-(-tokens // TOKENS),)](
        d_qkv, w.qkv, g1, g1, tokens, dim, TOKENS, num_warps=4, num_stages=2
    )
    return g1
