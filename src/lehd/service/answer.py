"""A result in the shape of VROOM's answer, with lehd's own record beside it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from lehd.io.arrays import Numbers
from lehd.io.write import result_record
from lehd.service.task import Labels, Problem
from lehd.types import Instances, Result, Solution


def answer(problem: Problem, result: Result) -> dict[str, Any]:
    """VROOM's summary, routes and steps. Durations are there where the request has a matrix of them, distances where
    it has a matrix of them or positions."""
    given = problem.instances.demands
    demands = None if given is None else given[0].tolist()
    routes = [_route(problem, demands, number, visits) for number, visits in enumerate(closed_routes(result))]
    sums = ["service", "delivery"]
    sums += [key for key in ("duration", "distance") if routes and key in routes[0]]
    summary: dict[str, Any] = {"cost": result.cost, "routes": len(routes), "unassigned": 0}
    for key in sums:
        values = [route[key] for route in routes if key in route]
        if values:
            summary[key] = [sum(value[0] for value in values)] if key == "delivery" else sum(values)
    summary["computing_times"] = {"solving": round(result.seconds * 1000)}
    return {"code": 0, "summary": summary, "unassigned": [], "routes": routes, "lehd": result_record(result)}


def closed_routes(result: Result) -> list[list[int]]:
    """Each route from where it starts back to there. A tour starts at the first node."""
    if result.problem == "CVRP":
        return [[0, *route, 0] for route in result.routes]
    tour = result.tour
    first = tour.index(0)
    return [[*tour[first:], *tour[:first], 0]]


def result_of(problem: Problem, visits: list[int] | list[list[int]], **known: Any) -> Result:
    """A result from a tour or routes, with what else is known of it."""
    from lehd import problems

    solution = problems.of(problem.instances).solution(problem.instances, visits)
    return result_from(problem, solution, **known)


def result_from(problem: Problem, solution: Solution, **known: Any) -> Result:
    from lehd import problems

    cost = problems.of(problem.instances).cost(problem.instances, solution)[0].item()
    given: dict[str, Any] = {"history": (), "seconds": 0.0, "iterations": 0, "seed": 0, "model": "", **known}
    return Result(problem.instances, solution, cost, **given)


def _route(problem: Problem, demands: list[float] | None, number: int, visits: list[int]) -> dict[str, Any]:
    """One route; `visits` begins and ends at the depot."""
    labels, instances = problem.labels, problem.instances
    load = sum(demands[node] for node in visits) if demands else 0
    legs = {"duration": _matrix_legs(labels.durations, visits), "distance": _distance_legs(problem, visits)}
    known = {key: lengths for key, lengths in legs.items() if lengths is not None}
    vehicle, words = labels.vehicles[number] if number < len(labels.vehicles) else (number + 1, "")
    covered = dict.fromkeys(known, 0.0)
    served = 0.0
    steps = []
    for place, node in enumerate(visits):
        kind = "start" if place == 0 else "end" if place == len(visits) - 1 else "job"
        for key, lengths in known.items():
            covered[key] += lengths[place - 1] if place else 0
        step: dict[str, Any] = {"type": kind, **_called(labels, node, kind)}
        service = labels.service[node] if labels.service and kind == "job" else 0.0
        if demands:
            load -= demands[node]
            step["load"] = [load]
        step |= {"service": _tidy(service)}
        if "duration" in known:
            step["arrival"] = _tidy(covered["duration"] + served)
        step |= {key: _tidy(value) for key, value in covered.items()}
        served += service
        steps.append(step)
    route: dict[str, Any] = {"vehicle": vehicle, "cost": _tidy(_cost(instances, visits)), "service": _tidy(served)}
    route |= {key: _tidy(value) for key, value in covered.items()}
    if demands:
        route["delivery"] = [sum(demands[node] for node in visits)]
    return route | ({"description": words} if words else {}) | {"steps": steps}


def _called(labels: Labels, node: int, kind: str) -> dict[str, Any]:
    called: dict[str, Any] = {"node": node}
    if labels.locations[node] is not None:
        called["location"] = labels.locations[node]
    if kind == "job":
        called |= {"id": labels.ids[node], "job": labels.ids[node]}  # VROOM's new and old name
    if labels.descriptions[node]:
        called["description"] = labels.descriptions[node]
    return called


def _legs(instances: Instances, visits: list[int]) -> torch.Tensor:
    nodes = torch.tensor([visits])
    legs = instances.distance(nodes[:, :-1], nodes[:, 1:])[0]
    return torch.where(
        nodes[0, :-1] == nodes[0, 1:], torch.zeros_like(legs), legs
    )  # nobody drives from a node to itself


def _cost(instances: Instances, visits: list[int]) -> float:
    return float(_legs(instances, visits).sum())


def _matrix_legs(matrix: Numbers | None, visits: list[int]) -> list[float] | None:
    if matrix is None:
        return None
    return [float(matrix[a, b]) if a != b else 0.0 for a, b in pairwise(visits)]


def _distance_legs(problem: Problem, visits: list[int]) -> list[float] | None:
    if problem.labels.distances is not None or problem.instances.matrix is not None:
        return _matrix_legs(problem.labels.distances, visits)
    return [float(leg) for leg in _legs(problem.instances, visits).tolist()]


def _tidy(number: float) -> float | int:
    """Whole numbers as such, others to a thousandth."""
    rounded = round(number, 3)
    return int(rounded) if rounded == int(rounded) else rounded
