"""CVRP labels from HGS-CVRP (through hygese, MIT). For training data alone: `solve` never calls it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Small populations suit limits of a fraction of a second: 0.3 s gives about 0.14 % above a 3 s run at 100 customers.
SMALL = {"mu": 8, "lambda_": 12, "nbElite": 3, "nbGranular": 12}


def solve_cvrp(
    coords: NDArray[np.floating], demands: NDArray[np.integer], capacity: int, seconds: float, seed: int = 1
) -> list[list[int]]:
    """Routes of customers 1..n for one instance with its depot in row 0."""
    import hygese

    solver = hygese.Solver(hygese.AlgorithmParameters(timeLimit=seconds, seed=seed, **SMALL), verbose=False)
    scale = 1000 / max(float(np.ptp(coords, axis=0).max()), 1e-12)  # HGS' own tolerances expect lengths of this order
    x, y = (coords.astype(np.float64) * scale).T
    data = {
        "x_coordinates": x,
        "y_coordinates": y,
        "demands": demands.astype(np.float64),
        "vehicle_capacity": float(capacity),
        "service_times": np.zeros(len(x)),
        "depot": 0,
    }
    routes: list[list[int]] = solver.solve_cvrp(data, rounding=False).routes
    return routes
