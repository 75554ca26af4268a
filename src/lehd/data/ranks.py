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
CROWDED = 0.75  # of the nodes in places are left: with fewer, it pays to clear the others away

Ints = NDArray[np.int64]


def to_ranks(coords: NDArray[Any], tours: NDArray[Any]) -> NDArray[np.unsignedinteger]:
    """(M, n - 1): of each node after the first. Tours visit every node once; they lose where they begin: at node 0."""
    tours = from_zero(tours.astype(np.int64))

    def part(rows: slice) -> Ints:
        walk, tour = Walk(coords[rows]), tours[rows]
        ranks = np.zeros((len(tour), tour.shape[1] - 1), np.int64)
        for step, node in enumerate(tour.T[1:]):
            place = walk.place(node)
            distance = walk.distances()
            length = distance[walk.rows, place][:, None]
            before = np.arange(distance.shape[1]) < place[:, None]
            ranks[:, step] = ((distance < length) | ((distance == length) & before)).sum(1)
            walk.go(place)
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
        for step, left in enumerate(ranks[rows].astype(np.int64).T, start=1):
            distance = walk.distances()
            nearest = distance.argmin(1)
            late = left.nonzero()[0]  # rows whose next node is farther than the nearest of those that are left
            distance, left = distance[late], left[late]
            while len(late):
                distance[np.arange(len(late)), nearest[late]] = np.inf
                nearest[late] = distance.argmin(1)
                more = left > 1
                late, distance, left = late[more], distance[more], left[more] - 1
            tour[:, step] = walk.numbers[walk.rows, nearest]
            walk.go(nearest)
        return tour

    return _in_parts(part, len(coords), nodes)


def from_zero(tours: Ints) -> Ints:
    """The same tours, beginning at node 0."""
    first = (tours == 0).argmax(1)
    return np.take_along_axis(tours, (first[:, None] + np.arange(tours.shape[1])) % tours.shape[1], 1)


class Walk:
    """A tour of each of some instances, step by step from node 0.

    Nodes stand in places, in the order of their numbers. Now and then those that have been visited are cleared away,
    which halves the work.
    """

    def __init__(self, coords: NDArray[Any]):
        count, nodes = coords.shape[:2]
        self.x, self.y = (np.ascontiguousarray(coords[:, :, axis], np.float64) for axis in (0, 1))
        self.rows, self.numbers = np.arange(count), np.tile(np.arange(nodes, dtype=np.int64), (count, 1))
        self.visited = np.zeros((count, nodes), bool)
        self.left = nodes
        self.go(np.zeros(count, np.int64))

    def go(self, place: Ints) -> None:
        self.here = self.x[self.rows, place][:, None], self.y[self.rows, place][:, None]
        self.visited[self.rows, place] = True
        self.left -= 1
        if self.left < CROWDED * self.visited.shape[1]:
            there, shape = ~self.visited, (len(self.rows), self.left)
            self.x, self.y = self.x[there].reshape(shape), self.y[there].reshape(shape)
            self.numbers, self.visited = self.numbers[there].reshape(shape), np.zeros(shape, bool)

    def place(self, node: Ints) -> Ints:
        """Where nodes (M,) that are left stand."""
        places: Ints = (self.numbers < node[:, None]).sum(1)
        return places

    def distances(self) -> NDArray[np.float64]:
        """Squared, from the last node to those that are left; infinite to the others."""
        across, up = self.x - self.here[0], self.y - self.here[1]
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
