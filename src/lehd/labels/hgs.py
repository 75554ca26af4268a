"""CVRP labels from HGS-CVRP (through hygese, MIT). For training data alone: `solve` never calls it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Small populations suit limits of a fraction of a second: 0.3 s gives about 0.14 % above a 3 s run at 100 customers.
SMALL = {"mu": 8, "lambda_": 12, "nbElite": 3, "nbGranular": 12}


def solve_cvrp(
    coords: NDArray[np.floating],
    demands: NDArray[np.integer],
    capacity: int,
    seconds: float,
    iterations: int | None = None,
    seed: int = 1,
) -> list[list[int]]:
    """Routes of customers 1..n for one instance with its depot in row 0.

    With `iterations` it ends after so many in a row without a better solution, whatever the time: the same on every
    machine.
    """
    import hygese

    scale = 1000 / max(float(np.ptp(coords, axis=0).max()), 1e-12)  # HGS' own tolerances expect lengths of this order
    x, y = (coords.astype(np.float64) * scale).T
    data = {
        "x_coordinates": x,
        "y_coordinates": y,
        "demands": demands.astype(np.float64),
        "vehicle_capacity": float(capacity),
        "service_times": np.zeros(len(x)),
        "depot": 0,
        # By default HGS allows few more routes than the demands add up to, and finds nothing where they pack badly.
        "num_vehicles": len(x) - 1,
    }
    for more in (1, 10):  # where capacities are tight, the first feasible solution can take longer
        limit = {"timeLimit": more * seconds} if iterations is None else {"nbIter": more * iterations}
        parameters = hygese.AlgorithmParameters(seed=seed, **limit, **SMALL)
        found = hygese.Solver(parameters, verbose=False).solve_cvrp(data, rounding=False).routes
        routes: list[list[int]] = [route for route in found if route]
        if sum(map(len, routes)) == len(x) - 1:
            return routes
    spent = f"{more * seconds:g} s" if iterations is None else f"{more * iterations} iterations"
    raise RuntimeError(f"HGS found no feasible solution in {spent}")
