"""What the decoder sees, put together with few passes over memory, forward and backward.

The first two places of every row, starting and destination node, are embedded once more by matrices of their own.
Written with slices and concatenation, the gradients of this take longer than half a layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lehd.model import fused
from lehd.model.precision import exactly
from lehd.types import State

MOST_ROWS = 2048  # of one kernel for everything: it fetches two matrices for each of them
NODES = 32  # that a program of it copies


def decoder_input(
    embeddings: Tensor, state: State, context: Tensor, start: nn.Linear, destination: nn.Linear
) -> Tensor:
    """(R, 2 + U, D) of embeddings (B, N, D): starting and destination node, embedded once more, and available nodes."""
    if _by_one_kernel(embeddings, state):
        return _fused_input(embeddings, state, context, start, destination)
    nodes = torch.cat([state.start[:, None], state.destination[:, None], state.available], 1)
    # One look-up in all instances' nodes: the gradient of indexing by two tensors is many times slower.
    places = state.instance[:, None] * embeddings.shape[1] + nodes
    ends, seen = look_up(embeddings.flatten(0, 1), places)
    with exactly(seen):
        first, last = start(torch.cat([ends[:, 0], context], 1)), destination(torch.cat([ends[:, 1], context], 1))
    return with_ends(seen, first, last)


def _by_one_kernel(embeddings: Tensor, state: State) -> bool:
    suits = embeddings.dtype == torch.float32 and embeddings.is_contiguous() and state.available.stride(1) == 1
    few, dim = len(state.start) <= MOST_ROWS, embeddings.shape[-1]
    return suits and few and dim & (dim - 1) == 0 and not torch.is_grad_enabled() and fused.kernels_run(embeddings)


def _fused_input(embeddings: Tensor, state: State, context: Tensor, start: nn.Linear, destination: nn.Linear) -> Tensor:
    from lehd.model.step_kernels import decoder_input as kernel

    (_, nodes, dim), (rows, available) = embeddings.shape, state.available.shape
    assert start.weight.shape == destination.weight.shape == (dim, dim + context.shape[1])
    x = embeddings.new_empty(rows, 2 + available, dim)
    single = (tensor.contiguous() for tensor in (state.instance, state.start, state.destination))
    kernel[(rows, 2 + -(-available // NODES))](
        embeddings, *single, state.available, context.contiguous(),
        start.weight, start.bias, destination.weight, destination.bias, x,
        nodes, 2 + available, state.available.stride(0), dim, context.shape[1], NODES, min(dim, NODES), num_warps=4,
    )  # fmt: skip
    return x


def look_up(embeddings: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Of embeddings (N, D) those at places (R, 2 + U): the first two of each row (R, 2, D), and all (R, 2 + U, D).

    The second is for `with_ends`, which takes it over: no gradient passes through its first two columns.
    """
    ends, seen = _LookUp.apply(embeddings, places)  # type: ignore[no-untyped-call]
    return ends, seen


def with_ends(seen: Tensor, start: Tensor, destination: Tensor) -> Tensor:
    """`seen` (R, 2 + U, D) with other first and second columns (R, D) each, in its own memory."""
    x: Tensor = _WithEnds.apply(seen, start, destination)  # type: ignore[no-untyped-call]
    return x


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(places)
        ctx.count = len(embeddings)
        seen = embeddings.new_empty(*places.shape, embeddings.shape[-1])
        torch.index_select(embeddings, 0, places.flatten(), out=seen.view(-1, embeddings.shape[-1]))
        return seen[:, :2].clone(), seen

    @staticmethod
    def backward(ctx: Any, d_ends: Tensor, d_seen: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        d_seen = d_seen.contiguous()
        d_seen[:, :2] = d_ends  # in the gradient of `with_ends`, which nobody else looks at
        total = d_seen.new_zeros(ctx.count, d_seen.shape[-1])
        return total.index_add_(0, places.flatten(), d_seen.flatten(0, 1)), None


class _WithEnds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, seen: Tensor, start: Tensor, destination: Tensor) -> Tensor:
        ctx.mark_dirty(seen)
        seen[:, 0] = start
        seen[:, 1] = destination
        return seen

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return gradient, gradient[:, 0].clone(), gradient[:, 1].clone()
