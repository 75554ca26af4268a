"""Triton kernels of attention, for GPUs: forward and backward.

Legend as in `kernels.py`. For rows of up to 128 nodes a program holds as many of them as fit; forward, rows that would
leave much of it empty have a kernel of their own (`middle_attention`), where the nodes that are looked at come in two
pieces. Longer rows, and a few shorter ones that would leave much of the GPU empty, are divided among programs.
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
def _scores(q, keys, other, count, D: tl.constexpr, ALL: tl.constexpr):
    """Scores of queries with the `other` nodes of a row, and values: keys stand at `keys` for node 0, values D further
    on. Unless ALL of them are there, the first `count` nodes of the row are."""
    place = keys + other[:, None] * (3 * D)
    if ALL:
        v = tl.load(place + D)
        scores = tl.dot(q, tl.trans(tl.load(place)))
    else:
        there = other < count
        v = tl.load(place + D, mask=there[:, None], other=0.0)
        k = tl.load(place, mask=there[:, None], other=0.0)
        scores = tl.where(there[None, :], tl.dot(q, tl.trans(k)), NEVER)
    return scores, v


@triton.jit(do_not_specialize=["length", "blocks"])
def middle_attention(
    qkv, out, norm, seen, length, blocks, scale, sharpen,
    heads: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr,
    KEEP: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """What `attention` does, for rows of FIRST to FIRST + REST nodes: a program does all heads of a block of a row's
    nodes, one after the other, which look at all of the row. One of its nodes at least has to be there."""
    E: tl.constexpr = D // heads
    program = tl.program_id(0)
    token = program % blocks * BLOCK + tl.arange(0, BLOCK)
    row = (program // blocks).to(tl.int64) * length
    there = token[:, None] < length
    if SOME:
        scale = _sharper(scale, sharpen, seen)
        length = tl.load(seen).to(tl.int32)  # from here on it is the others' that counts
    qkv += row * (3 * D)
    out += row * D
    norm += row * heads
    scale *= LOG2_E
    first = tl.arange(0, FIRST)
    rest = FIRST + tl.arange(0, REST)
    for head in range(heads):  # while one is worked on, the next is fetched
        feature = head * E + tl.arange(0, E)
        q = tl.load(qkv + token[:, None] * (3 * D) + feature[None, :], mask=there, other=0.0)
        keys = qkv + D + feature[None, :]
        one, v_one = _scores(q, keys, first, length, D, not SOME)
        two, v_two = _scores(q, keys, rest, length, D, False)
        largest = tl.maximum(tl.max(one, 1), tl.max(two, 1)) * scale
        one = tl.exp2(one * scale - largest[:, None])
        two = tl.exp2(two * scale - largest[:, None])
        total = tl.sum(one, 1) + tl.sum(two, 1)
        mixed = tl.dot(two.to(q.dtype), v_two, tl.dot(one.to(q.dtype), v_one)) * (1.0 / total)[:, None]
        tl.store(out + token[:, None] * D + feature[None, :], mixed.to(q.dtype), mask=there)
        if KEEP:
            logarithm = largest + tl.log2(total)
            tl.store(norm + token[:, None] * heads + head, logarithm[:, None], mask=there)


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
