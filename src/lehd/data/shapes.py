"""Ten shapes of TSP instances that are not uniform, closer to real ones than uniform instances are.

Each shape is a function from a random generator and a number of nodes to positions (n, 2) of any scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
FLATTENED = 0.3  # share of the instances that are squeezed along one axis


def shapes_tsp(rng: np.random.Generator, count: int, nodes: int) -> NDArray[np.float32]:
    """(count, nodes, 2): a random shape for each, moved and scaled so that its longer side is [0, 1]."""
    return np.stack([_one(rng, nodes) for _ in range(count)]).astype(np.float32)


def _one(rng: np.random.Generator, nodes: int) -> Points:
    points = SHAPES[int(rng.integers(len(SHAPES)))](rng, nodes)
    if rng.random() < FLATTENED:
        points = points * [1.0, rng.uniform(0.2, 1.0)]
    points = points - points.min(0)
    scaled: Points = points / max(points.max(), 1e-12)
    return scaled


def clusters(rng: np.random.Generator, nodes: int) -> Points:
    """A few dense places, and some nodes anywhere."""
    centres = rng.uniform(0.1, 0.9, (rng.integers(2, 9), 2))
    near = rng.choice(centres, nodes) + rng.normal(0, rng.uniform(0.02, 0.1), (nodes, 2))
    anywhere = rng.random((nodes, 1)) < rng.uniform(0, 0.3)
    return np.where(anywhere, rng.random((nodes, 2)), near)


def mixture(rng: np.random.Generator, nodes: int) -> Points:
    """Normal distributions of one width around centres that are far apart or not."""
    centres = rng.uniform(0, rng.choice([10, 30, 50]), (rng.choice([3, 5, 7]), 2))
    points: Points = rng.choice(centres, nodes) + rng.normal(0, 1, (nodes, 2))
    return points


def explosion(rng: np.random.Generator, nodes: int) -> Points:
    """A hole: what was in it lies around it."""
    points, centre, radius = rng.random((nodes, 2)), rng.random(2), rng.uniform(0.1, 0.4)
    away = points - centre
    apart = np.linalg.norm(away, axis=1, keepdims=True)
    thrown = centre + away / np.maximum(apart, 1e-12) * (radius + rng.exponential(0.1, (nodes, 1)))
    return np.where(apart < radius, thrown, points)


def implosion(rng: np.random.Generator, nodes: int) -> Points:
    """Everything is drawn towards a place, some of it further than the rest."""
    points, centre, most = rng.random((nodes, 2)), rng.random(2), rng.uniform(0.1, 0.4)
    pull = np.minimum(np.abs(rng.normal(0, 1, (nodes, 1))), most)
    drawn: Points = points + pull * (centre - points)
    return drawn


def expansion(rng: np.random.Generator, nodes: int) -> Points:
    """An empty lane: what was in it lies on both sides."""
    points, normal, offset, width = _lane(rng, nodes)
    pushed = np.sign(offset) * (width + rng.exponential(0.1, nodes))
    return _shift(points, normal, np.where(np.abs(offset) < width, pushed - offset, 0))


def compression(rng: np.random.Generator, nodes: int) -> Points:
    """A crowded lane: what was near it lies on it."""
    points, normal, offset, width = _lane(rng, nodes)
    nearer = offset * np.minimum(np.abs(rng.normal(0, 1, nodes)), 1)
    return _shift(points, normal, np.where(np.abs(offset) < width, -nearer, 0))


def lattice(rng: np.random.Generator, nodes: int) -> Points:
    """Points of a small grid, no two equal: many equal distances."""
    least = int(np.ceil(np.sqrt(nodes)))
    return _grid(rng, nodes, int(rng.integers(least + 1, 3 * least)))


def coarse(rng: np.random.Generator, nodes: int) -> Points:
    """Points of a larger grid, as coordinates of few digits are."""
    least = int(np.ceil(np.sqrt(nodes)))
    return _grid(rng, nodes, int(rng.integers(3 * least, 10 * least)))


def lines(rng: np.random.Generator, nodes: int) -> Points:
    """Few distinct values along one axis."""
    count = int(rng.integers(5, 20))
    return np.stack([rng.integers(count, size=nodes).astype(np.float64), rng.random(nodes) * 20], 1)


def boards(rng: np.random.Generator, nodes: int) -> Points:
    """Regular blocks of holes at random places, as drilling machines get them."""
    blocks: list[Points] = []
    while sum(map(len, blocks)) < nodes:
        rows, columns = rng.integers(2, 9, 2)
        holes = np.stack(np.meshgrid(np.arange(rows), np.arange(columns)), -1).reshape(-1, 2)
        blocks.append(rng.random(2) + rng.uniform(0.01, 0.04) * holes)
    return np.concatenate(blocks)[:nodes]


SHAPES = (clusters, mixture, explosion, implosion, expansion, compression, lattice, coarse, lines, boards)


def _lane(rng: np.random.Generator, nodes: int) -> tuple[Points, Points, Points, float]:
    """Uniform points, the normal of a random line, their distances to it with a sign, half the width of a lane."""
    angle = rng.uniform(0, np.pi)
    normal = np.array([-np.sin(angle), np.cos(angle)])
    points = rng.random((nodes, 2))
    return points, normal, (points - rng.uniform(0.2, 0.8, 2)) @ normal, rng.uniform(0.1, 0.3)


def _shift(points: Points, normal: Points, by: Points) -> Points:
    shifted: Points = points + by[:, None] * normal
    return shifted


def _grid(rng: np.random.Generator, nodes: int, side: int) -> Points:
    cell = rng.choice(side * side, nodes, replace=False)
    return np.stack([cell % side, cell // side], 1).astype(np.float64)
