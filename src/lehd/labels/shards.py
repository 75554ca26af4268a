"""Shards of labels on disk: one file each, and many joined into a label file (layout: lehd.data.dataset)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lehd.data.dataset import SHARD, Arrays, read_arrays, reading, with_ranks, write_arrays
from lehd.data.generate import CvrpArrays, TspArrays
from lehd.errors import LehdError
from lehd.labels.solvers import Batch, Solver, Task
from lehd.work.units import Unit


class Shard:
    """The labels of one shard as they come in."""

    def __init__(self, recipe: str, customers: int, number: int, drawn: TspArrays | CvrpArrays):
        self.recipe, self.customers, self.number, self.drawn = recipe, customers, number, drawn
        self.nodes = np.zeros((SHARD, customers), np.uint8 if customers < 256 else np.uint16)
        self.via = np.zeros((SHARD, customers), bool)
        self.cost = np.zeros(SHARD, np.float32)
        self.solved = np.zeros(SHARD, bool)
        self.left = SHARD

    @property
    def id(self) -> str:
        return shard_id(self.recipe, self.customers, self.number)

    def units(self, batch: int) -> list[Unit]:
        """Its instances, so many in a unit."""
        return [self.unit(range(first, min(first + batch, SHARD))) for first in range(0, SHARD, batch)]

    def unit(self, rows: range) -> Unit:
        return Unit(f"{self.id}/{rows.start}-{rows.stop}", Batch(self.number, rows, [self.task(row) for row in rows]))

    def task(self, row: int) -> Task:
        if isinstance(self.drawn, CvrpArrays):
            return Task(self.drawn.coords[row], self.drawn.demands[row], int(self.drawn.capacity[row]))
        return Task(self.drawn.coords[row])

    def put(self, row: int, routes: list[list[int]]) -> None:
        self.solved[row] = True
        self.nodes[row] = [node for route in routes for node in route]
        if isinstance(self.drawn, CvrpArrays):
            self.via[row] = [place == 0 for route in routes for place in range(len(route))]
            stops = [0, *(node for route in routes for node in [*route, 0])]
        else:
            stops = [*routes[0], routes[0][0]]
        points = self.drawn.coords[row][stops].astype(np.float64)
        self.cost[row] = np.linalg.norm(np.diff(points, axis=0), axis=1).sum()

    def arrays(self, solver: Solver) -> Arrays:
        """What is written of it."""
        timed = solver.iterations is None
        arrays = {
            "recipe": np.array(self.recipe),
            "customers": np.array(self.customers),
            "shard": np.array([self.number]),
            "nodes": self.nodes[None],
            "cost": self.cost[None],
            "solved": self.solved[None],
            "solver": np.array([solver.name]),
            "seconds": np.array([solver.seconds if timed else np.nan]),
            "iterations": np.array([solver.iterations or 0]),
        }
        if isinstance(self.drawn, CvrpArrays):
            arrays["via"] = np.packbits(self.via, axis=1)[None]
        return arrays


def shard_id(recipe: str, customers: int, shard: int) -> str:
    return f"{recipe}-{customers}-{shard:06d}"


def announce_merge(target: Path) -> None:
    """With hundreds of thousands of labels what follows takes half a minute."""
    print(f"joining the labels into {target} …", file=sys.stderr, flush=True)


def merge(folder: Path, recipe: str, customers: int, target: Path) -> int:
    """Join the folder's shards into one file; the number of labels in it."""
    paths = sorted(folder.glob(f"{recipe}-{customers}-*.npz"))
    if not paths:
        raise LehdError(f"{folder}: no shard of {recipe} with {customers} customers to merge")
    announce_merge(target)
    parts = [_read(path) for path in paths]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    with reading(folder):
        arrays = with_ranks({"recipe": np.array(recipe), "customers": np.array(customers), **joined})
    write_arrays(target, arrays)
    return int(joined["solved"].sum())


def _read(path: Path) -> Arrays:
    """The arrays of a shard that can be joined. Older ones do not say where their labels came from."""
    arrays = {name: array for name, array in read_arrays(path).items() if name not in ("recipe", "customers")}
    with reading(path):
        arrays.setdefault("solved", np.ones(arrays["cost"].shape, bool))
    arrays.setdefault("solver", np.array(["unknown"]))
    arrays.setdefault("seconds", np.array([np.nan]))
    arrays.setdefault("iterations", np.array([0]))
    return arrays
