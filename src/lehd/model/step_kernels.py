"""Triton kernels for two things that a construction step does beside the layers, for GPUs: putting together what the
decoder sees, and taking the likeliest action.

Written with torch's operations they are some forty kernels, each of which takes longer to begin than to end.
"""

from __future__ import annotations

import triton
import triton.language as tl

LARGEST = tl.constexpr(3.4028234663852886e38)  # finite number of single precision


@triton.jit
def _end(
    of_instance, which, context, weight, bias, x, row, length, place,
    D: tl.constexpr, C: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One of the two ends of a row, embedded once more: weight (D, D + C) times its embedding and the context."""
    feature = tl.arange(0, D)
    node = tl.load(which + row)
    total = tl.load(bias + feature)
    for first in range(0, D, CHUNK):
        some = first + tl.arange(0, CHUNK)
        w = tl.load(weight + feature[:, None] * (D + C) + some[None, :])
        total += tl.sum(w * tl.load(of_instance + node * D + some)[None, :], 1)
    for number in tl.static_range(C):
        total += tl.load(weight + feature * (D + C) + D + number) * tl.load(context + row * C + number)
    tl.store(x + (row * length + place) * D + feature, total)


@triton.jit(do_not_specialize=["nodes", "length", "stride"])
def decoder_input(
    embeddings, instance, start, destination, available, context,
    start_weight, start_bias, destination_weight, destination_bias, x,
    nodes, length, stride, D: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """x (R, length, D): starting node, destination node and available nodes (R, at least length - 2, a `stride` apart)
    of embeddings (B, nodes, D). Of a row's programs the first two do an end each, all others BLOCK available nodes."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    of_instance = embeddings + tl.load(instance + row) * nodes * D
    if part == 0:
        _end(of_instance, start, context, start_weight, start_bias, x, row, length, 0, D, C, CHUNK)
    elif part == 1:
        _end(of_instance, destination, context, destination_weight, destination_bias, x, row, length, 1, D, C, CHUNK)
    else:
        place = (part - 2) * BLOCK + tl.arange(0, BLOCK)
        feature = tl.arange(0, D)
        there = place < length - 2
        node = tl.load(available + row * stride + place, mask=there, other=0)
        value = tl.load(of_instance + node[:, None] * D + feature[None, :], mask=there[:, None], other=0.0)
        tl.store(x + (row * length + 2 + place)[:, None] * D + feature[None, :], value, mask=there[:, None])


@triton.jit(do_not_specialize=["stride", "view", "places"])
def decide(
    logits, allowed, slots, left, available, total, nodes, via_depot, node, flag,
    stride, view, places,
    KINDS: tl.constexpr, MASK: tl.constexpr, SOME: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The likeliest action of each row is taken: a program does one row.

    Its logits, KINDS for each of `view` nodes, are a `stride` apart from those of the next row; with MASK `allowed`
    says which of them count, with SOME `slots` where their nodes stand among the available ones. Of these (R, places)
    the first `left` (R,) are there.

    What is chosen becomes `node` and `flag` (R,), and stands as far from the end of nodes and via_depot (R, places) as
    nodes were left. The last available node takes its place, one less is left, its log-probability joins the total.
    """
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(left + row).to(tl.int32)
    actions = tl.minimum(count, view) * KINDS
    best = -float("inf")
    action = 0
    weight = 0.0  # of all actions so far, relative to the best
    for first in range(0, actions, BLOCK):
        at = first + tl.arange(0, BLOCK)
        real = at < actions
        score = tl.load(logits + row * stride + at, mask=real, other=0.0)
        score = tl.where(score == score, tl.clamp(score, -LARGEST, LARGEST), 0.0)
        if MASK:
            real = real & (tl.load(allowed + row * view * KINDS + at, mask=real, other=0) != 0)
        score = tl.where(real, score, -float("inf"))
        largest = tl.max(score, 0)
        higher = tl.maximum(best, largest)
        base = tl.where(higher == -float("inf"), 0.0, higher)
        weight = weight * tl.exp(best - base) + tl.sum(tl.exp(score - base), 0)
        action = tl.where(largest > best, first + tl.argmax(score, 0), action)
        best = higher
    slot = action // KINDS
    if SOME:
        slot = tl.load(slots + row * view + slot)
    at = available + row * places
    chosen = tl.load(at + slot)
    last = tl.load(at + count - 1)
    place = row * places + places - count
    tl.store(at + slot, last)
    tl.store(nodes + place, chosen)
    tl.store(via_depot + place, action % KINDS == 1)
    tl.store(node + row, chosen)
    tl.store(flag + row, action % KINDS == 1)
    tl.store(total + row, tl.load(total + row) - tl.log(weight))
    tl.store(left + row, count - 1)
