"""Triton kernels of one attention layer, for GPUs.

Legend: T tokens (all nodes of all rows, one after the other), D features, E of them for each head, F hidden features.
Operands of matrix products have the dtype of the weights (bfloat16), sums and the residual stream are float32.

A layer is three kernels forward (projection to q, k, v by the matrix library; attention; everything after it) and three
backward, each keeping its intermediate results on the chip. Matrix products that add up over all tokens, the gradients
of weights, are left to the matrix library.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
NEVER = tl.constexpr(-1e30)  # a score that softmax turns into 0; in rows without any other, finite all the same


@triton.jit
def _pack(tokens, length, inverse, heads, BLOCK: tl.constexpr):
    """Which head and which tokens a program works on: as many whole rows of `length` nodes as fit into a block.

    Returns the head, the first token, the places of the tokens after it, which of them are there, and their rows'
    numbers; places without a token belong to row -1. Heads of the same tokens are neighbours: they lie in the same
    lines of memory. Numbers of many places are kept short: 64-bit ones would take longer than the softmax.
    """
    program = tl.program_id(0)
    size = BLOCK // length * length
    first = (program // heads).to(tl.int64) * size
    place = tl.arange(0, BLOCK)
    there = place < tl.minimum(size, tokens - first).to(tl.int32)
    row = ((place + 0.5) * inverse).to(tl.int32)  # place // length, which takes the GPU ten times as long
    return program % heads, first, place, there, tl.where(there, row, -1)


@triton.jit
def _scores(q, k, row):
    """Products of queries and keys; those of different rows, which share a block, do not count."""
    return tl.where(row[:, None] == row[None, :], tl.dot(q, tl.trans(k)), NEVER)


@triton.jit(do_not_specialize=["tokens", "length"])
def attention(
    qkv, out, norm, tokens, length, inverse, scale,
    heads: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """out (T, D) from qkv (T, 3 D); a program does one head of one block of tokens.

    With KEEP it also writes norm (T, heads), the logarithm (of base 2) of what softmax divides by.
    """
    E: tl.constexpr = D // heads
    head, first, token, there, row = _pack(tokens, length, inverse, heads, BLOCK)
    feature = head * E + tl.arange(0, E)
    place = qkv + first * (3 * D) + token[:, None] * (3 * D) + feature[None, :]
    q = tl.load(place, mask=there[:, None], other=0.0)
    k = tl.load(place + D, mask=there[:, None], other=0.0)
    v = tl.load(place + 2 * D, mask=there[:, None], other=0.0)
    scores = _scores(q, k, row)
    largest = tl.max(scores, 1) * (scale * LOG2_E)
    weights = tl.exp2(scores * (scale * LOG2_E) - largest[:, None])
    total = tl.sum(weights, 1)
    mixed = tl.dot(weights.to(v.dtype), v) * (1.0 / total)[:, None]
    tl.store(out + first * D + token[:, None] * D + feature[None, :], mixed.to(v.dtype), mask=there[:, None])
    if KEEP:
        tl.store(norm + first * heads + token * heads + head, largest + tl.log2(total), mask=there)


@triton.jit(do_not_specialize=["tokens", "length"])
def attention_backward(
    qkv, norm, d_out, d_qkv, tokens, length, inverse, scale,
    heads: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = D // heads
    head, first, token, there, row = _pack(tokens, length, inverse, heads, BLOCK)
    feature = head * E + tl.arange(0, E)
    qkv += first * (3 * D)
    d_qkv += first * (3 * D)
    place = token[:, None] * (3 * D) + feature[None, :]
    q = tl.load(qkv + place, mask=there[:, None], other=0.0)
    k = tl.load(qkv + place + D, mask=there[:, None], other=0.0)
    v = tl.load(qkv + place + 2 * D, mask=there[:, None], other=0.0)
    g = tl.load(d_out + first * D + token[:, None] * D + feature[None, :], mask=there[:, None], other=0.0)
    normalize = tl.load(norm + first * heads + token * heads + head, mask=there, other=0.0)
    p = tl.exp2(_scores(q, k, row) * (scale * LOG2_E) - normalize[:, None])
    d_v = tl.dot(tl.trans(p.to(v.dtype)), g)
    tl.store(d_qkv + place + 2 * D, d_v.to(v.dtype), mask=there[:, None])
    d_p = tl.dot(g, tl.trans(v))
    d_s = (p * (d_p - tl.sum(p * d_p, 1)[:, None])).to(v.dtype)
    d_q = tl.dot(d_s, k) * scale
    tl.store(d_qkv + place, d_q.to(v.dtype), mask=there[:, None])
    d_k = tl.dot(tl.trans(d_s), q) * scale
    tl.store(d_qkv + place + D, d_k.to(v.dtype), mask=there[:, None])


@triton.jit
def _tile(pointer, rows, columns, stride: tl.constexpr):
    return pointer + rows[:, None] * stride + columns[None, :]


@triton.jit(do_not_specialize=["tokens"])
def after_attention(
    x, mixed, w_out, b_out, w_in, b_in, w_ff, b_ff, y, y_half, x1_half, tokens,
    D: tl.constexpr, F: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """y = x1 + w_ff relu(w_in x1 + b_in) + b_ff with x1 = x + w_out mixed + b_out; x and y may be the same memory.

    Also writes y in half precision, which the next layer reads, and with KEEP x1, which the gradient needs.
    """
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = (token < tokens)[:, None]
    feature = tl.arange(0, D)
    m = tl.load(_tile(mixed, token, feature, D), mask=there, other=0.0)
    w = tl.load(_tile(w_out, feature, feature, D))
    total = tl.load(_tile(x, token, feature, D), mask=there, other=0.0)
    total += tl.dot(m, tl.trans(w)) + tl.load(b_out + feature)[None, :]
    x1 = total.to(m.dtype)
    if KEEP:
        tl.store(_tile(x1_half, token, feature, D), x1, mask=there)
    total += tl.load(b_ff + feature)[None, :]
    for first in range(0, F, STEP):
        hidden = first + tl.arange(0, STEP)
        w1 = tl.load(_tile(w_in, hidden, feature, D))
        h = tl.dot(x1, tl.trans(w1)) + tl.load(b_in + hidden)[None, :]
        w2 = tl.load(_tile(w_ff, feature, hidden, F))
        total = tl.dot(tl.maximum(h, 0.0).to(m.dtype), tl.trans(w2), total)
    tl.store(_tile(y, token, feature, D), total, mask=there)
    tl.store(_tile(y_half, token, feature, D), total.to(m.dtype), mask=there)


@triton.jit(do_not_specialize=["tokens"])
def after_attention_backward(
    g, x1_half, w_out, w_in, b_in, w_ff, g1, g_half, g1_half, d_mixed, h_half, d_h_half, sums, tokens,
    D: tl.constexpr, F: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From the gradient g of y: g1, that of x1 (may be the same memory), and d_mixed.

    For the gradients of the weights it also writes g, g1, the hidden features and their gradient in half precision; for
    those of the biases each program adds up its own tokens: sums (programs, 2 D + F) for b_ff, b_out, b_in.
    """
    program = tl.program_id(0).to(tl.int64)
    token = program * BLOCK + tl.arange(0, BLOCK)
    there = (token < tokens)[:, None]
    feature = tl.arange(0, D)
    sums += program * (2 * D + F)
    x1 = tl.load(_tile(x1_half, token, feature, D), mask=there, other=0.0)
    total = tl.load(_tile(g, token, feature, D), mask=there, other=0.0)
    tl.store(sums + feature, tl.sum(total, 0))
    gh = total.to(x1.dtype)
    tl.store(_tile(g_half, token, feature, D), gh, mask=there)
    for first in range(0, F, STEP):
        hidden = first + tl.arange(0, STEP)
        w1 = tl.load(_tile(w_in, hidden, feature, D))
        w2 = tl.load(_tile(w_ff, feature, hidden, F))
        h = tl.dot(x1, tl.trans(w1)) + tl.load(b_in + hidden)[None, :]
        d_h = tl.where(h > 0.0, tl.dot(gh, w2), 0.0)
        tl.store(sums + 2 * D + hidden, tl.sum(d_h, 0))
        d_h = d_h.to(x1.dtype)
        tl.store(_tile(h_half, token, hidden, F), tl.maximum(h, 0.0).to(x1.dtype), mask=there)
        tl.store(_tile(d_h_half, token, hidden, F), d_h, mask=there)
        total = tl.dot(d_h, w1, total)
    tl.store(_tile(g1, token, feature, D), total, mask=there)
    tl.store(sums + D + feature, tl.sum(total, 0))
    g1h = total.to(x1.dtype)
    tl.store(_tile(g1_half, token, feature, D), g1h, mask=there)
    w = tl.load(_tile(w_out, feature, feature, D))
    tl.store(_tile(d_mixed, token, feature, D), tl.dot(g1h, w).to(x1.dtype), mask=there)


@triton.jit(do_not_specialize=["tokens"])
def projection_backward(d_qkv, w_qkv, g1, g, tokens, D: tl.constexpr, BLOCK: tl.constexpr):
    """g (T, D), the gradient of the layer's input: g1 + d_qkv w_qkv; g1 and g may be the same memory."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = (token < tokens)[:, None]
    feature = tl.arange(0, D)
    total = tl.load(_tile(g1, token, feature, D), mask=there, other=0.0)
    for first in range(0, 3 * D, D):
        part = tl.load(_tile(d_qkv, token, first + feature, 3 * D), mask=there, other=0.0)
        total = tl.dot(part, tl.load(_tile(w_qkv, first + feature, feature, D)), total)
    tl.store(_tile(g, token, feature, D), total, mask=there)
