"""Seeded random instances: what models are trained on and tests are made of. Plain numpy arrays, so that a recipe and a
seed are all that a data set of instances needs.

CVRP arrays hold the depot in row 0. Demands and capacities are whole numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GRID = 1000  # X-type instances lie on whole numbers 0..1000


class TspArrays(NamedTuple):
    coords: NDArray[np.float32]  # (B, n, 2)


class CvrpArrays(NamedTuple):
    coords: NDArray[np.float32]  # (B, n + 1, 2)
    demands: NDArray[np.int64]  # (B, n + 1)
    capacity: NDArray[np.int64]  # (B,)


def uniform_tsp(rng: np.random.Generator, count: int, customers: int) -> NDArray[np.float32]:
    """(count, customers, 2) in the unit square."""
    return rng.random((count, customers, 2), dtype=np.float32)


def uniform_cvrp(rng: np.random.Generator, count: int, customers: int, capacity: int | None = None) -> CvrpArrays:
    """Uniform depot and customers, demands 1..9. Without a capacity it is log-uniform in 15..250."""
    coords = rng.random((count, customers + 1, 2), dtype=np.float32)
    demands = rng.integers(1, 10, (count, customers + 1))
    demands[:, 0] = 0
    if capacity is None:
        sizes = np.exp(rng.uniform(np.log(15), np.log(250), count)).astype(np.int64)
    else:
        sizes = np.full(count, capacity)
    return CvrpArrays(coords, demands, sizes)


def x_type_cvrp(rng: np.random.Generator, count: int, customers: int) -> CvrpArrays:
    """Instances in the manner of CVRPLIB's set X: depot, clustering, demands and route size drawn for each.

    Route sizes are triangular (3, 6, 25) for 70 %, uniform in 25..50 for the rest.
    """
    coords, demands, capacity = zip(*(_x_type(rng, customers) for _ in range(count)), strict=True)
    return CvrpArrays(np.stack(coords).astype(np.float32), np.stack(demands), np.array(capacity))


def _x_type(rng: np.random.Generator, customers: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    depot = [np.array([GRID // 2] * 2), np.array([0, 0]), rng.integers(0, GRID + 1, 2)][rng.integers(3)]
    taken = {tuple(depot.tolist())}
    clustered = {0: 0, 1: customers, 2: customers // 2}[int(rng.integers(3))]
    points = _distinct(rng, taken, customers - clustered, lambda size: rng.integers(0, GRID + 1, (size, 2)))
    if clustered:
        seeds = _distinct(
            rng, taken, min(int(rng.integers(2, 9)), clustered), lambda size: rng.integers(0, GRID + 1, (size, 2))
        )
        reach = rng.uniform(40, 58)

        def pull(at: NDArray[np.int64]) -> NDArray[np.float64]:
            apart = np.linalg.norm(at[:, None] - seeds[None], axis=2)
            strength: NDArray[np.float64] = np.exp(-apart / reach).sum(1)
            return strength

        strongest = pull(seeds).max()

        def near_seeds(size: int) -> NDArray[np.int64]:
            candidates = rng.integers(0, GRID + 1, (20 * size, 2))
            accepted: NDArray[np.int64] = candidates[rng.random(len(candidates)) < pull(candidates) / strongest]
            return accepted

        more = _distinct(rng, taken, clustered - len(seeds), near_seeds)
        points = np.concatenate([points, seeds, more])
    points = points[rng.permutation(customers)]

    r = rng.triangular(3, 6, 25) if rng.random() < 0.7 else rng.uniform(25, 50)
    demand = _x_demands(rng, points, r)
    capacity = max(int(demand.max()), int(np.ceil(r * demand.sum() / customers)))
    return np.concatenate([depot[None], points]), np.concatenate([[0], demand]), capacity


def _distinct(rng: np.random.Generator, taken: set[tuple[int, ...]], count: int, draw) -> NDArray[np.int64]:  # type: ignore[no-untyped-def]
    """`count` points from draw(size) that nobody has taken yet."""
    chosen: list[tuple[int, ...]] = []
    while len(chosen) < count:
        for point in map(tuple, draw(count).tolist()):
            if point not in taken and len(chosen) < count:
                taken.add(point)
                chosen.append(point)
    return np.array(chosen, dtype=np.int64).reshape(-1, 2)


def _x_demands(rng: np.random.Generator, points: NDArray[np.int64], route_size: float) -> NDArray[np.int64]:
    count, kind = len(points), int(rng.integers(7))
    ranges = {0: (1, 1), 1: (1, 10), 2: (5, 10), 3: (1, 100), 4: (50, 100)}
    if kind in ranges:
        low, high = ranges[kind]
        return rng.integers(low, high + 1, count)
    if kind == 5:  # by quadrant
        large = (points[:, 0] < GRID / 2) == (points[:, 1] < GRID / 2)
    else:  # many small ones, a few large
        large = rng.random(count) < 1.5 / route_size
    few = rng.integers(51 if kind == 5 else 50, 101, count)
    many = rng.integers(1, 51 if kind == 5 else 11, count)
    return np.where(large, few, many)
