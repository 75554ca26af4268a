"""Instances from arrays, and the one check that instances from every source go through.

Whole numbers become int64, so that loads and explicit distances add up exactly; anything else is float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lehd.distance import EUCLIDEAN, EXPLICIT, Rule
from lehd.errors import LehdError
from lehd.io.plane import embed
from lehd.io.text import LARGEST, shown
from lehd.types import Instances

Numbers = NDArray[np.float64]

_LARGEST_SUM = 1e18  # int64 holds the cost of every solution, and the sum of all demands, below this


class Where(Protocol):
    """Says, for a message, where a value stands: its kind, the instance of the batch, and its index there."""

    def __call__(self, what: str, instance: int, *index: int) -> str: ...


def coordinate_instances(
    coords: Any, demands: Any = None, capacity: Any = None, vehicles: Any = None, name: str = "instance"
) -> Instances:
    """Instances with Euclidean distances from coordinates (n, 2), or a batch of them (B, n, 2).

    With demands (n,) or (B, n) they are CVRPs: node 0 is the depot, its demand 0. Capacity and fleet limit are one
    number for all, or one for each instance.
    """
    positions = as_numbers(coords, f"{name}: coordinates")
    if positions.ndim not in (2, 3) or positions.shape[-1] != 2:
        raise LehdError(f"{name}: coordinates have the shape {positions.shape}; expected (n, 2) or (B, n, 2)")
    batch = positions if positions.ndim == 3 else positions[None]
    return build(batch, name, demands=demands, capacity=capacity, vehicles=vehicles)


def matrix_instances(
    matrix: Any,
    demands: Any = None,
    capacity: Any = None,
    vehicles: Any = None,
    coords: Any = None,
    name: str = "instance",
) -> Instances:
    """An instance whose distances are a matrix (n, n), from row to column, symmetric or not. Its diagonal is ignored.

    Without coordinates (n, 2) the model sees an embedding of the matrix in the plane.
    """
    distances = as_numbers(matrix, f"{name}: the matrix")
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise LehdError(f"{name}: the matrix has the shape {distances.shape}; expected (n, n)")
    positions = None if coords is None else as_numbers(coords, f"{name}: coordinates")[None]
    return build(positions, name, matrix=distances[None], demands=demands, capacity=capacity, vehicles=vehicles)


def build(
    coords: Numbers | None,  # (B, N, 2); None where there is a matrix to embed
    name: str,
    *,
    rule: Rule = EUCLIDEAN,  # a matrix makes it EXPLICIT
    sites: Numbers | None = None,
    matrix: Numbers | None = None,
    demands: Any = None,
    capacity: Any = None,
    vehicles: Any = None,
    node_names: tuple[str, ...] = (),
    where: Where | None = None,
) -> Instances:
    """Check all that makes instances sound, and put them together."""
    shaping = coords if matrix is None else matrix
    assert shaping is not None
    batch, n = shaping.shape[:2]
    where = where or _in_arrays(name, batch)
    if batch == 0 or n == 0:
        raise LehdError(f"{name}: there is no node; expected at least one")
    if matrix is not None:
        rule = EXPLICIT
        matrix = matrix.copy()
        matrix[:, range(n), range(n)] = 0.0  # nobody travels from a node to itself
        _check(matrix, "distance", n, where, least=0)
        if coords is None:
            coords = np.stack([embed(distances) for distances in matrix])
    assert coords is not None
    if coords.shape != (batch, n, 2):
        raise LehdError(f"{name}: coordinates have the shape {coords.shape[1:]}; expected ({n}, 2)")
    _check(coords, "coordinate", n, where)
    if sites is not None:
        _check_degrees(sites, where)
    return Instances(
        coords=torch.from_numpy(coords),
        rule=rule,
        sites=None if sites is None else torch.from_numpy(sites),
        matrix=None if matrix is None else _tensors(matrix)[0],
        names=(name,) if batch == 1 else tuple(f"{name}-{i + 1}" for i in range(batch)),
        node_names=node_names,
        **_loads(batch, n, demands, capacity, vehicles, where),
    )


def checked(instances: Instances, vehicles: Any = None) -> Instances:
    """Instances that somebody put together by hand, on the CPU and as sound as if they had been read; `vehicles`
    replaces their fleet limit."""
    name = instances.names[0] if instances.names else "instance"
    coords = as_numbers(instances.coords, f"{name}: coordinates")
    if coords.ndim != 3:
        raise LehdError(f"{name}: coordinates of instances have the shape {coords.shape}; expected (B, n, 2)")
    limit = instances.vehicles if vehicles is None else vehicles
    matrix = None if instances.matrix is None else as_numbers(instances.matrix, f"{name}: the matrix")
    demands, capacity = instances.demands, instances.capacity
    sound = build(coords, name, matrix=matrix, demands=demands, capacity=capacity, vehicles=limit)
    sites = None
    if instances.sites is not None:
        positions = as_numbers(instances.sites, f"{name}: sites")
        if positions.shape != coords.shape:
            raise LehdError(f"{name}: sites have the shape {positions.shape}; expected {coords.shape}")
        _check(positions, "coordinate", coords.shape[1], _in_arrays(name, len(coords)))
        sites = torch.from_numpy(positions)
    rule = instances.rule if matrix is None else EXPLICIT
    names = instances.names if len(instances.names) == len(coords) else sound.names
    return replace(sound, rule=rule, sites=sites, names=names, node_names=instances.node_names)


def as_numbers(values: Any, what: str) -> Numbers:
    """A fresh float64 array of anything that holds numbers."""
    try:
        array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (OverflowError, TypeError, ValueError) as error:
        raise LehdError(f"{what}: expected an array of numbers ({error})") from error
    if array.dtype.kind not in "iuf":
        raise LehdError(f"{what}: expected numbers, found {array.dtype}")
    return array.astype(np.float64)


def _loads(batch: int, n: int, demands: Any, capacity: Any, vehicles: Any, where: Where) -> dict[str, Tensor]:
    """The checked fields of a CVRP; none for a TSP."""
    if demands is None:
        for what, value in (("capacity", capacity), ("vehicles", vehicles)):
            if value is not None:
                raise LehdError(f"{where(what, 0)}: {what} given without demands; expected both for a CVRP")
        return {}
    if capacity is None:
        raise LehdError(f"{where('capacity', 0)}: demands without a capacity; expected capacity=… with them")
    demands = _shaped(demands, "demand", (batch, n), where)
    capacity = _shaped(capacity, "capacity", (batch,), where)
    _check(demands, "demand", n, where, least=0)
    _check(capacity, "capacity", n, where)
    for b in np.flatnonzero(capacity <= 0)[:1]:
        raise LehdError(f"{where('capacity', b)}: the capacity is {shown(capacity[b])}; expected more than 0")
    for b in np.flatnonzero(demands[:, 0])[:1]:
        raise LehdError(f"{where('demand', b, 0)}: the demand of the depot is {shown(demands[b, 0])}; expected 0")
    for b, i in np.argwhere(demands > capacity[:, None])[:1]:
        limit = shown(capacity[b])
        raise LehdError(
            f"{where('demand', b, i)}: demand {shown(demands[b, i])} exceeds the capacity; expected at most {limit}"
        )
    demands, capacity = _tensors(demands, capacity)
    if vehicles is None:
        return {"demands": demands, "capacity": capacity}
    fleet = _shaped(vehicles, "vehicles", (batch,), where)
    _check(fleet, "vehicles", n, where)
    for b in np.flatnonzero((fleet < 1) | (fleet != np.floor(fleet)))[:1]:
        raise LehdError(f"{where('vehicles', b)}: {shown(fleet[b])} vehicles; expected a whole number from 1 on")
    return {"demands": demands, "capacity": capacity, "vehicles": torch.from_numpy(fleet.astype(np.int64))}


def _shaped(values: Any, what: str, shape: tuple[int, ...], where: Where) -> Numbers:
    """Numbers of the given shape; one instance's serve a whole batch."""
    place = where("instance", 0)
    numbers = as_numbers(values, f"{place}: {what}")
    if numbers.shape not in (shape, shape[1:]):
        raise LehdError(f"{place}: {what} of shape {numbers.shape}; expected {shape[1:]} or {shape}")
    return np.broadcast_to(numbers, shape).copy()


def _check(values: Numbers, what: str, n: int, where: Where, least: float = -np.inf) -> None:
    """Refuse values that are not finite, too large to add up exactly, or below `least`."""
    largest = min(LARGEST, _LARGEST_SUM / n)
    if values.size and max(least, -largest) <= values.min() and values.max() <= largest:
        return  # in which a large matrix needs no table of what is sound
    sound = (np.abs(values) <= largest) & (values >= least)
    for index in np.argwhere(~sound)[:1]:
        value = values[tuple(index)]
        expected = "0 or more" if value < least else f"a finite number of at most {largest:g}"
        raise LehdError(f"{where(what, *index)}: {what} {value:g}; expected {expected}")


def _check_degrees(sites: Numbers, where: Where) -> None:
    """Refuse latitudes and longitudes that are not on the globe."""
    for axis, what, least, most in ((0, "latitude", -90, 90), (1, "longitude", -180, 360)):
        values = sites[..., axis]
        for b, i in np.argwhere((values < least) | (values > most))[:1]:
            place = where("coordinate", b, i)
            raise LehdError(f"{place}: {what} {shown(values[b, i])}; expected a value from {least} to {most}")


def _tensors(*arrays: Numbers) -> tuple[Tensor, ...]:
    """int64 where all numbers are whole, else float64."""
    whole = all(bool((array == np.floor(array)).all()) for array in arrays)
    return tuple(torch.from_numpy(array.astype(np.int64) if whole else array) for array in arrays)


def _in_arrays(name: str, batch: int) -> Where:
    def where(what: str, instance: int, *index: int) -> str:
        nodes = index if what == "distance" else index[:1]
        place = f"{name} {instance}" if batch > 1 else name
        return ", ".join([place, *(f"node {node}" for node in nodes)])

    return where
