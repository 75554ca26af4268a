"""Labels from OR-Tools' routing solver: CVRP or TSP, slower to good solutions than HGS and fast-tsp."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SCALE = 1_000_000  # OR-Tools counts in whole numbers


def solve_routes(
    coords: NDArray[np.floating], demands: NDArray[np.integer] | None, capacity: int | None, seconds: float
) -> list[list[int]]:
    """Routes of customers 1..n from the depot, node 0; for a TSP, which has no demands, one tour of all nodes."""
    points = coords.astype(np.float64) / max(float(np.ptp(coords, axis=0).max()), 1e-12)
    apart = np.rint(np.linalg.norm(points[:, None] - points, axis=2) * SCALE).astype(np.int64)
    return solve_matrix(apart, demands, capacity, seconds)


def solve_matrix(
    apart: NDArray[np.int64], demands: NDArray[np.integer] | None, capacity: int | None, seconds: float
) -> list[list[int]]:
    """The same by distances."""
    from ortools.constraint_solver import pywrapcp, routing_enums_pb2

    nodes = len(apart)
    vehicles = 1 if demands is None else nodes - 1
    manager = pywrapcp.RoutingIndexManager(nodes, vehicles, 0)
    routing = pywrapcp.RoutingModel(manager)
    leg = routing.RegisterTransitMatrix(apart.tolist())
    routing.SetArcCostEvaluatorOfAllVehicles(leg)
    if demands is not None:
        load = routing.RegisterUnaryTransitVector(demands.astype(int).tolist())
        routing.AddDimension(load, 0, int(capacity or 0), True, "load")
    parameters = pywrapcp.DefaultRoutingSearchParameters()
    parameters.first_solution_strategy = routing_enums_pb2.FirstSolutionStrategy.SAVINGS
    parameters.local_search_metaheuristic = routing_enums_pb2.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
    parameters.time_limit.FromMilliseconds(max(1, round(1000 * seconds)))
    found = routing.SolveWithParameters(parameters)
    if found is None:
        raise RuntimeError(f"OR-Tools found no feasible solution in {seconds:g} s")
    routes = []
    for vehicle in range(vehicles):
        index, route = routing.Start(vehicle), []
        while not routing.IsEnd(index):
            route.append(manager.IndexToNode(index))
            index = found.Value(routing.NextVar(index))
        routes.append(route if demands is None else route[1:])
    return [route for route in routes if route]
