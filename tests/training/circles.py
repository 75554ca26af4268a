"""Labels that are right by construction, and a configuration small enough for a moment of one CPU core."""

from __future__ import annotations

import numpy as np

from lehd.model.lehd import ModelConfig
from lehd.training.config import TrainConfig

SMALL = ModelConfig(dim=16, heads=2, feed_forward=32, decoder_layers=1)
CONFIG = TrainConfig(
    data=("circle.npz",), steps=200, tokens=1500, warmup=5, learning_rate=5e-3, held_out=40, model=SMALL, log_every=0.05
)


def circle_labels(count=200, nodes=8, seed=0):
    """Points on a circle: the shortest tour goes around it."""
    rng = np.random.default_rng(seed)
    angles = np.sort(rng.uniform(0, 2 * np.pi, (count, nodes)), axis=1)
    order = np.stack([rng.permutation(nodes) for _ in range(count)])
    places = np.empty_like(angles)
    np.put_along_axis(places, order, angles, 1)
    return np.stack([np.cos(places), np.sin(places)], 2).astype(np.float32), order


def star_labels(count=60, customers=9, seed=0):
    """A depot and customers around it, two to a route in the order of their angles."""
    rng = np.random.default_rng(seed)
    angles = np.sort(rng.uniform(0, 2 * np.pi, (count, customers)), axis=1)
    around = np.stack([np.cos(angles), np.sin(angles)], 2)
    demands = np.full((count, customers + 1), 5)
    demands[:, 0] = 0
    return {
        "coords": np.concatenate([np.zeros((count, 1, 2)), around], 1).astype(np.float32),
        "demands": demands,
        "capacity": np.full(count, 10),
        "nodes": np.tile(np.arange(1, customers + 1), (count, 1)),
        "via_depot": np.tile(np.arange(customers) % 2 == 0, (count, 1)),
    }


def write_circles(folder, **options):
    coords, order = circle_labels(**options)
    np.savez(folder / "circle.npz", coords=coords, nodes=order)
    return folder
