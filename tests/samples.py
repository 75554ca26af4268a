"""Small instances and results whose every number can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lehd import distance, problems
from lehd.types import Incumbent, Instances, Result


def square() -> Instances:
    """A TSP: the corners of a square of side 10, named in an order that is not the way around."""
    coords = torch.tensor([[[0.0, 0.0], [10.0, 10.0], [10.0, 0.0], [0.0, 10.0]]], dtype=torch.float64)
    return Instances(coords, distance.EUC_2D, names=("square",))


def cross() -> Instances:
    """A CVRP: four customers of demand 2 around the depot, two fit a vehicle."""
    coords = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [6.0, 8.0], [-3.0, -4.0], [-6.0, -8.0]]], dtype=torch.float64)
    return Instances(
        coords,
        distance.EUC_2D,
        demands=torch.tensor([[0, 2, 2, 2, 2]]),
        capacity=torch.tensor([4]),
        names=("cross",),
    )


def islands() -> Instances:
    """A TSP on the globe: latitude and longitude in degrees, at the equator and at the Greenwich meridian."""
    sites = torch.tensor([[[0.0, 0.0], [0.0, 1.0], [1.0, 0.5]]], dtype=torch.float64)
    return Instances(
        sites.flip(2), distance.HAVERSINE, sites=sites, names=("islands",), node_names=("Uno", "Due", "Tre")
    )


def result(instance: Instances, visits: list[int] | list[list[int]], **changes: Any) -> Result:
    problem = problems.of(instance)
    solution = problem.solution(instance, visits)
    cost = problem.cost(instance, solution)[0].item()
    history = (Incumbent(0.5, 0, cost + 10), Incumbent(1.25, 3, cost))
    made = Result(instance, solution, cost, history, seconds=2.0, iterations=7, seed=5, model="tiny-0123")
    return replace(made, **changes)


def square_result(**changes: Any) -> Result:
    return result(square(), [0, 3, 1, 2], **changes)


def cross_result(**changes: Any) -> Result:
    return result(cross(), [[1, 2], [4, 3]], **changes)
