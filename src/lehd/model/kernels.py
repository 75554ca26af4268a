"""Triton kernels of an attention layer, for GPUs: all but attention itself, which `attention_kernels.py` has.

Legend: T tokens (all nodes of all rows, one after the other), D features, E of them for each head, F hidden features.
Operands of matrix products have the dtype of the weights (bfloat16), sums and the residual stream are float32.

A layer is three kernels forward (projection to q, k, v by the matrix library; attention; everything after it) and three
backward, each keeping its intermediate results on the chip. Matrix products that add up over all tokens, the gradients
of weights, are left to the matrix library.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(pointer, rows, columns, stride: tl.constexpr):
    return pointer + (rows[:, None] * stride + columns[None, :])


@triton.jit
def _block(tokens, BLOCK: tl.constexpr):
    """The first token of a program, the places of all of its tokens after it, and which of them are there.

    Places have 32 bits and are added to addresses last: registers are what the kernels below run out of.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK
    place = tl.arange(0, BLOCK)
    return first, place, (place < (tokens - first).to(tl.int32))[:, None]


@triton.jit(do_not_specialize=["tokens"])
def after_attention(
    x, mixed, w_out, b_out, w_in, b_in, w_ff, b_ff, y, y_half, x1_half, tokens,
    D: tl.constexpr, F: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """y = x1 + w_ff relu(w_in x1 + b_in) + b_ff with x1 = x + w_out mixed + b_out; x and y may be the same memory.

    Also writes y in half precision, which the next layer reads, and with KEEP x1, which the gradient needs.
    """
    first, token, there = _block(tokens, BLOCK)
    feature = tl.arange(0, D)
    at, here = first * D, token[:, None] * D + feature[None, :]
    m = tl.load(mixed + at + here, mask=there, other=0.0)
    w = tl.load(_tile(w_out, feature, feature, D))
    total = tl.load(x + at + here, mask=there, other=0.0)
    total = tl.dot(m, tl.trans(w), total + tl.load(b_out + feature)[None, :])
    x1 = total.to(m.dtype)
    if KEEP:
        tl.store(x1_half + at + here, x1, mask=there)
    total += tl.load(b_ff + feature)[None, :]
    for start in tl.range(0, F, STEP, num_stages=2):
        hidden = start + tl.arange(0, STEP)
        w1 = tl.load(_tile(w_in, hidden, feature, D))
        h = tl.dot(x1, tl.trans(w1)) + tl.load(b_in + hidden)[None, :]
        w2 = tl.load(_tile(w_ff, feature, hidden, F))
        total = tl.dot(tl.maximum(h, 0.0).to(m.dtype), tl.trans(w2), total)
    tl.store(y + at + here, total, mask=there)
    tl.store(y_half + at + here, total.to(m.dtype), mask=there)


@triton.jit(do_not_specialize=["tokens"])
def after_attention_backward(
    g, x1_half, w_out, w_in, b_in, w_ff, g1, g_half, g1_half, d_mixed, h_half, d_h_half, sums, tokens,
    D: tl.constexpr, F: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From the gradient g of y: g1, that of x1 (may be the same memory), and d_mixed.

    For the gradients of the weights it also writes g, g1, the hidden features and their gradient in half precision; for
    those of the biases each program adds up its own tokens: sums (programs, 2 D + F) for b_ff, b_out, b_in.
    """
    first, token, there = _block(tokens, BLOCK)
    feature = tl.arange(0, D)
    at, here = first * D, token[:, None] * D + feature[None, :]
    h_half += first * F
    d_h_half += first * F
    sums += tl.program_id(0).to(tl.int64) * (2 * D + F)
    x1 = tl.load(x1_half + at + here, mask=there, other=0.0)
    total = tl.load(g + at + here, mask=there, other=0.0)
    tl.store(sums + feature, tl.sum(total, 0))
    gh = total.to(x1.dtype)
    tl.store(g_half + at + here, gh, mask=there)
    for start in tl.range(0, F, STEP, num_stages=2):
        hidden = start + tl.arange(0, STEP)
        w1 = tl.load(_tile(w_in, hidden, feature, D))
        w2 = tl.load(_tile(w_ff, feature, hidden, F))
        h = tl.dot(x1, tl.trans(w1)) + tl.load(b_in + hidden)[None, :]
        d_h = tl.where(h > 0.0, tl.dot(gh, w2), 0.0)
        out = token[:, None] * F + hidden[None, :]
        tl.store(h_half + out, tl.maximum(h, 0.0).to(x1.dtype), mask=there)
        tl.store(sums + 2 * D + hidden, tl.sum(d_h, 0))
        d_hh = d_h.to(x1.dtype)
        tl.store(d_h_half + out, d_hh, mask=there)
        total = tl.dot(d_hh, w1, total)
    tl.store(g1 + at + here, total, mask=there)
    tl.store(sums + D + feature, tl.sum(total, 0))
    g1h = total.to(x1.dtype)
    tl.store(g1_half + at + here, g1h, mask=there)
    w = tl.load(_tile(w_out, feature, feature, D))
    tl.store(d_mixed + at + here, tl.dot(g1h, w).to(x1.dtype), mask=there)


@triton.jit(do_not_specialize=["tokens"])
def projection_backward(d_qkv, w_qkv, g1, g, tokens, D: tl.constexpr, BLOCK: tl.constexpr):
    """g (T, D), the gradient of the layer's input: g1 + d_qkv w_qkv; g1 and g may be the same memory."""
    first, token, there = _block(tokens, BLOCK)
    feature = tl.arange(0, D)
    at, here = first * D, token[:, None] * D + feature[None, :]
    d_qkv += first * (3 * D)
    total = tl.load(g1 + at + here, mask=there, other=0.0)
    for start in range(0, 3 * D, D):
        part = tl.load(_tile(d_qkv, token, start + feature, 3 * D), mask=there, other=0.0)
        total = tl.dot(part, tl.load(_tile(w_qkv, start + feature, feature, D)), total)
    tl.store(g + at + here, total, mask=there)
