"""LEHD: Light Encoder, Heavy Decoder.

Fu Luo, Xi Lin, Fei Liu, Qingfu Zhang, Zhenkun Wang: "Neural Combinatorial Optimization with Heavy Decoder: Toward
Large Scale Generalization", NeurIPS 2023.

The encoder, one attention layer, embeds every node once. The decoder, six of them, looks again at every step at what
matters then and at nothing else: the starting node (where the path has arrived), the destination node (where it must
end) and the nodes still available. Nodes that are done are removed, not masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lehd.errors import LehdError
from lehd.model.attention import AttentionLayer
from lehd.model.ends import decoder_input
from lehd.model.fused import fusable, run_fused
from lehd.model.half import halvable, run_half
from lehd.model.native import run_native, suits
from lehd.model.precision import exactly
from lehd.types import State

NORMS = ("none", "batch", "instance")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model, saved beside its weights. The defaults are the paper's."""

    num_features: int = 2
    num_resources: int = 0
    actions_per_node: int = 1
    dim: int = 128
    heads: int = 8
    feed_forward: int = 512
    decoder_layers: int = 6
    norm: str = "none"
    sharpen: float = 0.0  # attention among more nodes than in training (attention.py); the paper: not
    box: bool = True  # every (partial) problem is scaled to its bounding box before the model sees it; the paper: no

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise LehdError(f"norm = {self.norm!r}: expected one of {', '.join(NORMS)}")
        sizes = (self.num_features, self.actions_per_node, self.dim, self.heads, self.feed_forward, self.decoder_layers)
        if min(sizes) < 1 or self.num_resources < 0 or self.dim % self.heads:
            raise LehdError("model sizes must be positive, and dim a multiple of heads")

    def has(self, sizes: dict[str, int]) -> bool:
        return all(getattr(self, name) == size for name, size in sizes.items())


class LEHD(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        c = config
        self.embedding = nn.Linear(c.num_features, c.dim)
        self.encoder = AttentionLayer(c.dim, c.heads, c.feed_forward, c.norm, c.sharpen)
        self.start = nn.Linear(c.dim + c.num_resources, c.dim)
        self.destination = nn.Linear(c.dim + c.num_resources, c.dim)
        self.decoder = nn.ModuleList(
            AttentionLayer(c.dim, c.heads, c.feed_forward, c.norm, c.sharpen) for _ in range(c.decoder_layers)
        )
        self.head = nn.Linear(c.dim, c.actions_per_node)
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Nothing normalizes the sum of the layers, so each of them starts small enough for all of them to add up."""
        for layer in [self.encoder, *self.decoder]:
            assert isinstance(layer, AttentionLayer)
            layer.attention_out.weight.mul_(1 / math.sqrt(2 * self.config.decoder_layers))
            layer.ff_out.weight.mul_(1 / math.sqrt(2 * self.config.decoder_layers))

    def encode(self, features: Tensor, seen: Tensor | None = None) -> Tensor:
        """Node embeddings (B, N, D) of features (B, N, F), of which only the first `seen` are there; None: all."""
        with exactly(features):
            nodes = self.embedding(features)
        return run([self.encoder], nodes, seen)

    def score(self, embeddings: Tensor, state: State, context: Tensor) -> Tensor:
        """Logits (R, U, K) of the actions of every available node, for resources (R, C). Where nodes of the state are
        not there, nobody looks at them, and what stands in their place means nothing."""
        x = decoder_input(embeddings, state, context, self.start, self.destination)
        x = run(self.decoder, x, with_both_ends(state.left))
        with exactly(x):
            logits: Tensor = self.head(x)[:, 2:]  # cut after, not before: cutting copies
        return logits


def with_both_ends(left: Tensor | None) -> Tensor | None:
    """How many nodes attend to each other, a number in a tensor of its own, where so many (R,) are left."""
    return None if left is None else left[0] + 2


def run(layers: Iterable[nn.Module], x: Tensor, seen: Tensor | None = None) -> Tensor:
    """The layers one after the other: by fused kernels on a GPU, by a compiled one on a CPU, in half precision where
    that is asked for, or by their own code."""
    stack = [layer for layer in layers if isinstance(layer, AttentionLayer)]
    if fusable(stack, x, seen):
        return run_fused(stack, x, seen)
    if suits(stack, x, seen):
        return run_native(stack, x)
    if halvable(stack, x, seen):
        return run_half(stack, x)
    with exactly(x) if x.is_cpu else nullcontext():
        for layer in stack:
            x = layer(x, seen)
    return x
