"""Triton kernels of one attention layer, for GPUs.

Legend: T tokens (all nodes of all rows, one after the other), D features, E of them for each head, F hidden features.
Operands of matrix products have the dtype of the weights (bfloat16), sums and the residual stream are float32.

A layer is three kernels forward (projection to q, k, v by the matrix library; attention; everything after it) and three
backward, each keeping its intermediate results on the chip. Attention has two of each: for rows that fit into one
program, and for longer ones (forward also for some that would leave much of a program, or of the GPU, empty). Matrix
products that add up over all tokens, the gradients of weights, are left to the matrix library.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lehd.model import attention as layer

TRAINED = tl.constexpr(layer.TRAINED)
LOG2_E = tl.constexpr(1.4426950408889634)
NEVER = tl.constexpr(-1e30)  # a score that softmax turns into 0; in rows without any other, finite all the same


@triton.jit
def _pack(program, tokens, length, inverse, seen, BLOCK: tl.constexpr, SOME: tl.constexpr):
    """Which tokens a program works on: as many whole rows of `length` nodes as fit into a block.

    Returns the first token, the places of the tokens after it, which of them are there, and who looks at whom: tokens
    at those of the same row, with SOME only at the first ones, as many as stands at `seen`. Numbers of many places are
    kept short: 64-bit ones would take longer than the softmax.
    """
    size = BLOCK // length * length
    first = program.to(tl.int64) * size
    place = tl.arange(0, BLOCK)
    there = place < tl.minimum(size, tokens - first).to(tl.int32)
    row = ((place + 0.5) * inverse).to(tl.int32)  # place // length, which takes the GPU ten times as long
    row = tl.where(there, row, -1)
    other = row
    if SOME:
        other = tl.where(place - row * length < tl.load(seen).to(tl.int32), row, -2)
    return first, place, there[:, None], row[:, None] == other[None, :]


@triton.jit
def _sharper(scale, sharpen, seen):
    """`layer.scale` among as many nodes as stands at `seen`, from the scale among few."""
    return scale * (1.0 + sharpen * tl.log(tl.maximum(tl.load(seen).to(tl.float32) / TRAINED, 1.0)))


@triton.jit(do_not_specialize=["tokens", "length"])
def attention(
    qkv, out, norm, seen, tokens, length, inverse, scale, sharpen,
    heads: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, KEEP: tl.constexpr,
    SOME: tl.constexpr,
):  # fmt: skip
    """out (T, D) from qkv (T, 3 D); a program does GROUP heads of one block of tokens.

    With KEEP it also writes norm (T, heads), the logarithm (of base 2) of what softmax divides by. With SOME only the
    first nodes of every row are looked at: how many is read from memory, and makes the scale.
    """
    E: tl.constexpr = D // heads
    program = tl.program_id(0)
    first, token, there, looks_at = _pack(program // (heads // GROUP), tokens, length, inverse, seen, BLOCK, SOME)
    if SOME:
        scale = _sharper(scale, sharpen, seen)
    qkv += first * (3 * D)
    out += first * D
    norm += first * heads
    first_head = program % (heads // GROUP) * GROUP
    for number in range(GROUP):  # while one is worked on, the next is fetched
        head = first_head + number
        feature = head * E + tl.arange(0, E)
        place = token[:, None] * (3 * D) + feature[None, :]
        q = tl.load(qkv + place, mask=there, other=0.0)
        k = tl.load(qkv + place + D, mask=there, other=0.0)
        v = tl.load(qkv + place + 2 * D, mask=there, other=0.0)
        scores = tl.where(looks_at, tl.dot(q, tl.trans(k)), NEVER)
        largest = tl.max(scores, 1) * (scale * LOG2_E)
        weights = tl.exp2(scores * (scale * LOG2_E) - largest[:, None])
        total = tl.sum(weights, 1)
        mixed = tl.dot(weights.to(v.dtype), v) * (1.0 / total)[:, None]
        tl.store(out + token[:, None] * D + feature[None, :], mixed.to(v.dtype), mask=there)
        if KEEP:
            logarithm = largest + tl.log2(total)
            tl.store(norm + token[:, None] * heads + head, logarithm[:, None], mask=there)


@triton.jit(do_not_specialize=["tokens", "length"])
def attention_backward(
    qkv, norm, d_out, d_qkv, tokens, length, inverse, scale,
    heads: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = D // heads
    program = tl.program_id(0)
    first, token, there, looks_at = _pack(program // (heads // GROUP), tokens, length, inverse, qkv, BLOCK, False)
    qkv += first * (3 * D)
    d_qkv += first * (3 * D)
    d_out += first * D
    norm += first * heads
    first_head = program % (heads // GROUP) * GROUP
    for number in range(GROUP):
        head = first_head + number
        feature = head * E + tl.arange(0, E)
        place = token[:, None] * (3 * D) + feature[None, :]
        q = tl.load(qkv + place, mask=there, other=0.0)
        k = tl.load(qkv + place + D, mask=there, other=0.0)
        v = tl.load(qkv + place + 2 * D, mask=there, other=0.0)
        g = tl.load(d_out + token[:, None] * D + feature[None, :], mask=there, other=0.0)
        normalize = tl.load(norm + token[:, None] * heads + head, mask=there, other=0.0)
        scores = tl.where(looks_at, tl.dot(q, tl.trans(k)), NEVER)
        p = tl.exp2(scores * (scale * LOG2_E) - normalize)
        d_v = tl.dot(tl.trans(p.to(v.dtype)), g)
        tl.store(d_qkv + place + 2 * D, d_v.to(v.dtype), mask=there)
        d_p = tl.dot(g, tl.trans(v))
        d_s = (p * (d_p - tl.sum(p * d_p, 1)[:, None])).to(v.dtype)
        d_q = tl.dot(d_s, k) * scale
        tl.store(d_qkv + place, d_q.to(v.dtype), mask=there)
        d_k = tl.dot(tl.trans(d_s), q) * scale
        tl.store(d_qkv + place + D, d_k.to(v.dtype), mask=there)


@triton.jit
def _place(length, blocks, heads: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """What a program works on that does one head of one of the `blocks` of a long row.

    Returns the first token of the row, the head, its features, the places of the tokens in the row, which are there.
    """
    program = tl.program_id(0)
    head = program % heads
    token = program // heads % blocks * BLOCK + tl.arange(0, BLOCK)
    row = (program // heads // blocks).to(tl.int64) * length
    return row, head, head * (D // heads) + tl.arange(0, D // heads), token, token[:, None] < length


@triton.jit
def _look(q, others, there, scale, largest, total, mixed, D: tl.constexpr, ALL: tl.constexpr):
    """What queries have gathered so far, and from some others, whose keys stand at `others` and values D further on.

    `largest` are scores as they are, `total` and `mixed` are sums of powers of 2, relative to the largest. Unless ALL
    of the others are `there`, those that are not count for nothing.
    """
    if ALL:
        k, v = tl.load(others), tl.load(others + D)
        scores = tl.dot(q, tl.trans(k))
    else:
        k = tl.load(others, mask=there[:, None], other=0.0)
        v = tl.load(others + D, mask=there[:, None], other=0.0)
        scores = tl.where(there[None, :], tl.dot(q, tl.trans(k)), NEVER)
    larger = tl.maximum(largest, tl.max(scores, 1))
    weights = tl.exp2(scores * scale - (larger * scale)[:, None])
    less = tl.exp2((largest - larger) * scale)
    return larger, total * less + tl.sum(weights, 1), tl.dot(weights.to(v.dtype), v, mixed * less[:, None])


@triton.jit(do_not_specialize=["length", "blocks"])
def long_attention(
    qkv, out, norm, seen, length, blocks, scale, sharpen,
    heads: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, KEEP: tl.constexpr,
    SOME: tl.constexpr,
):  # fmt: skip
    """What `attention` does, for rows of any length: a block of tokens looks at STEP tokens at a time. One token of a
    row at least has to be there."""
    row, head, feature, token, there = _place(length, blocks, heads, D, BLOCK)
    if SOME:
        scale = _sharper(scale, sharpen, seen)
        length = tl.load(seen).to(tl.int32)  # from here on it is the others' that counts
    qkv += row * (3 * D)
    scale *= LOG2_E
    q = tl.load(qkv + token[:, None] * (3 * D) + feature[None, :], mask=there, other=0.0)
    largest = tl.full((BLOCK,), NEVER, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    mixed = tl.zeros((BLOCK, D // heads), tl.float32)
    other = tl.arange(0, STEP)
    keys = qkv + D + other[:, None] * (3 * D) + feature[None, :]
    whole = length // STEP * STEP
    for start in range(0, whole, STEP):  # without asking who is there: softmax takes the time
        largest, total, mixed = _look(q, keys + start * (3 * D), other, scale, largest, total, mixed, D, True)
    if whole < length:
        rest = other < length - whole
        largest, total, mixed = _look(q, keys + whole * (3 * D), rest, scale, largest, total, mixed, D, False)
    mixed = mixed * (1.0 / total)[:, None]
    tl.store(out + row * D + token[:, None] * D + feature[None, :], mixed.to(q.dtype), mask=there)
    if KEEP:
        logarithm = largest * scale + tl.log2(total)
        tl.store(norm + row * heads + token[:, None] * heads + head, logarithm[:, None], mask=there)


@triton.jit(do_not_specialize=["length", "blocks"])
def long_attention_backward(
    qkv, norm, out, d_out, d_qkv, length, blocks, scale,
    heads: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """A program finds the gradients of a block's keys and values, from all queries, then of its queries."""
    E: tl.constexpr = D // heads
    row, head, feature, token, there = _place(length, blocks, heads, D, BLOCK)
    qkv += row * (3 * D)
    d_qkv += row * (3 * D)
    out += row * D
    d_out += row * D
    norm += row * heads + head
    place = token[:, None] * (3 * D) + feature[None, :]
    k = tl.load(qkv + place + D, mask=there, other=0.0)
    v = tl.load(qkv + place + 2 * D, mask=there, other=0.0)
    d_k = tl.zeros((BLOCK, E), tl.float32)
    d_v = tl.zeros((BLOCK, E), tl.float32)
    for start in range(0, length, STEP):
        other = start + tl.arange(0, STEP)
        real = other[:, None] < length
        q = tl.load(qkv + other[:, None] * (3 * D) + feature[None, :], mask=real, other=0.0)
        g = tl.load(d_out + other[:, None] * D + feature[None, :], mask=real, other=0.0)
        o = tl.load(out + other[:, None] * D + feature[None, :], mask=real, other=0.0)
        normalize = tl.load(norm + other * heads, mask=other < length, other=-NEVER)  # who is not there sees nothing
        mean = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
        p = tl.exp2(tl.dot(k, tl.trans(q)) * (scale * LOG2_E) - normalize[None, :])  # from keys to queries
        d_v += tl.dot(p.to(v.dtype), g)
        d_s = p * (tl.dot(v, tl.trans(g)) - mean[None, :])
        d_k += tl.dot(d_s.to(v.dtype), q)
    tl.store(d_qkv + place + D, (d_k * scale).to(k.dtype), mask=there)
    tl.store(d_qkv + place + 2 * D, d_v.to(k.dtype), mask=there)

    q = tl.load(qkv + place, mask=there, other=0.0)
    g = tl.load(d_out + token[:, None] * D + feature[None, :], mask=there, other=0.0)
    o = tl.load(out + token[:, None] * D + feature[None, :], mask=there, other=0.0)
    normalize = tl.load(norm + token[:, None] * heads, mask=there, other=0.0)
    mean = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
    d_q = tl.zeros((BLOCK, E), tl.float32)
    for start in range(0, length, STEP):
        other = start + tl.arange(0, STEP)
        real = other[:, None] < length
        k = tl.load(qkv + other[:, None] * (3 * D) + feature[None, :] + D, mask=real, other=0.0)
        v = tl.load(qkv + other[:, None] * (3 * D) + feature[None, :] + 2 * D, mask=real, other=0.0)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * (scale * LOG2_E) - normalize)
        p = tl.where(other[None, :] < length, p, 0.0)
        d_s = p * (tl.dot(g, tl.trans(v)) - mean[:, None])
        d_q += tl.dot(d_s.to(k.dtype), k)
    tl.store(d_qkv + place, (d_q * scale).to(q.dtype), mask=there)


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
