"""Tours in few bits: how many of the nodes that are left are nearer than the next one.

In a good tour that is none for most steps, which an archive packs into a fifth of what node numbers take. Equally near
nodes count by their numbers, and distances are compared in double precision by steps that every machine rounds alike:
the same positions give the same tours everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lehd.work.units import usable_cores

ENTRIES = 200_000  # of distances, at once: they should stay in a processor's cache

Ints = NDArray[np.int64]


def to_ranks(coords: NDArray[Any], tours: NDArray[Any]) -> NDArray[np.unsignedinteger]:
    """(M, n - 1): of each node after the first. Tours lose where they begin: at node 0."""
    tours = from_zero(tours.astype(np.int64))

    def part(rows: slice) -> Ints:
        walk, tour = Walk(coords[rows]), tours[rows]
        ranks = np.zeros((len(tour), tour.shape[1] - 1), np.int64)
        for place, node in enumerate(tour.T[1:]):
            distance = walk.distances()
            length = distance[walk.rows, node][:, None]
            before = walk.numbers < node[:, None]
            ranks[:, place] = ((distance < length) | ((distance == length) & before)).sum(1)
            walk.go(node)
        return ranks

    ranks = _in_parts(part, len(tours), tours.shape[1])
    return ranks.astype(np.uint8 if ranks.max(initial=0) < 256 else np.uint16)


def from_ranks(coords: NDArray[Any], ranks: NDArray[Any]) -> Ints:
    """The tours (M, n), from node 0 on. Ranks of other instances are refused, or make other tours."""
    nodes = coords.shape[1]
    if ranks.shape != (len(coords), nodes - 1) or ((ranks < 0) | (ranks >= np.arange(nodes - 1, 0, -1))).any():
        raise ValueError(f"the ranks do not belong to {len(coords)} tours of {nodes} nodes")

    def part(rows: slice) -> Ints:
        walk = Walk(coords[rows])
        tour = np.zeros((len(walk.rows), nodes), np.int64)
        for place, left in enumerate(ranks[rows].astype(np.int64).T, start=1):
            distance = walk.distances()
            nearest = distance.argmin(1)
            late = left.nonzero()[0]  # rows whose next node is farther than the nearest of those that are left
            distance, left = distance[late], left[late]
            while len(late):
                distance[np.arange(len(late)), nearest[late]] = np.inf
                nearest[late] = distance.argmin(1)
                more = left > 1
                late, distance, left = late[more], distance[more], left[more] - 1
            tour[:, place] = nearest
            walk.go(nearest)
        return tour

    return _in_parts(part, len(coords), nodes)


def from_zero(tours: Ints) -> Ints:
    """The same tours, beginning at node 0."""
    first = (tours == 0).argmax(1)
    return np.take_along_axis(tours, (first[:, None] + np.arange(tours.shape[1])) % tours.shape[1], 1)


class Walk:
    """A tour of each of some instances, node by node from node 0."""

    def __init__(self, coords: NDArray[Any]):
        self.x, self.y = (np.ascontiguousarray(coords[:, :, axis], np.float64) for axis in (0, 1))
        self.rows, self.numbers = np.arange(len(coords)), np.arange(coords.shape[1])
        self.visited = np.zeros(self.x.shape, bool)
        self.go(np.zeros(len(coords), np.int64))

    def go(self, node: Ints) -> None:
        self.node = node
        self.visited[self.rows, node] = True

    def distances(self) -> NDArray[np.float64]:
        """Squared, from the last node to those that are left; infinite to the others."""
        across = self.x - self.x[self.rows, self.node][:, None]
        up = self.y - self.y[self.rows, self.node][:, None]
        across *= across
        up *= up
        across += up
        across[self.visited] = np.inf
        return across


def _in_parts(work: Callable[[slice], Ints], count: int, nodes: int) -> Ints:
    """`work` on some rows at a time, on all cores: numpy lets threads run side by side."""
    step = max(1, ENTRIES // nodes)
    parts = [slice(first, first + step) for first in range(0, max(1, count), step)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        return np.concatenate(list(pool.map(work, parts)))
