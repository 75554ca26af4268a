"""How much arithmetic the model needs, so that a speed can be compared with what the machine could do."""

from __future__ import annotations

from lehd.model.lehd import ModelConfig

TRAINING = 3  # forward and backward, compared with forward alone


def layer_flops(config: ModelConfig, rows: int, nodes: int) -> float:
    """One attention layer over `nodes` nodes in each of so many rows."""
    dim = config.dim
    products = 2 * (4 * dim**2 + 2 * dim * config.feed_forward)  # queries, keys, values, output, feed-forward
    attention = 4 * nodes * dim  # with every other node: scores, and the mixture of values
    return float(rows) * nodes * (products + attention)


def decision_flops(config: ModelConfig, rows: int, available: int, embedded: int = 0) -> float:
    """One decision in each row; `embedded` nodes of each go through the encoder for it."""
    return config.decoder_layers * layer_flops(config, rows, available + 2) + layer_flops(config, rows, embedded)


def construction_flops(config: ModelConfig, rows: int, nodes: int) -> float:
    """Whole solutions: everything embedded once, then one decision after the other."""
    steps = (decision_flops(config, rows, available) for available in range(1, nodes + 1))
    return sum(steps) + layer_flops(config, rows, nodes)


def construction_tokens(rows: int, nodes: int) -> int:
    """Nodes that go through the decoder meanwhile, starting and destination node included."""
    return rows * (nodes * (nodes + 1) // 2 + 2 * nodes)
