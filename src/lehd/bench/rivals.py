"""The solvers a user would pick instead, each behind the same call: one instance and so many seconds in, routes out.

They get the instance's own distances, rounded where its file rounds. Where those are the unrounded lengths between
positions, LKH and Concorde get the positions.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from lehd.labels.binaries import concorde_tour, lkh_tour, tsplib_text
from lehd.labels.fast_tsp import LARGEST
from lehd.labels.ortools import solve_matrix

Routes = list[list[int]]
SCALE = 1_000_000  # the longest distance of an instance without rounding, for solvers that count in whole numbers

PYVRP_SCALE = 20_000  # its penalties for overloaded vehicles have a bound, which distances must stay below


class Work(NamedTuple):
    """One instance, and how it is to be solved."""

    coords: NDArray[np.float64]  # (N, 2)
    distances: NDArray[np.float64]  # (N, N)
    rounded: bool  # whether distances are whole numbers
    plain: bool  # whether they are the unrounded lengths between coords
    demands: NDArray[np.int64] | None  # None: a TSP
    capacity: int | None
    seconds: float
    seed: int = 0
    binary: Path | None = None

    def whole(self, longest: int = SCALE) -> NDArray[np.int64]:
        """Distances as whole numbers: as they are, or scaled to be accurate."""
        top = self.distances.max()
        if self.rounded and top <= longest:
            return self.distances.astype(np.int64)
        scaled: NDArray[np.float64] = np.rint(self.distances * (longest / max(top, 1e-12)))
        return scaled.astype(np.int64)

    def tsplib(self) -> str:
        """For programs that measure positions themselves; with the distances where they would measure others."""
        return tsplib_text(self.coords, None if self.plain else self.whole())


class Rival(NamedTuple):
    solve: Callable[[Work], Routes]
    problems: tuple[str, ...]
    package: str | None  # the module that must be there; None: a program whose path the user gives
    distribution: str  # what to install, or the option that names the program

    def version(self) -> str | None:
        """None where it is not installed."""
        if self.package is None or find_spec(self.package) is None:
            return None
        return metadata.version(self.distribution)


def _fast_tsp(work: Work) -> Routes:
    import fast_tsp

    return [fast_tsp.find_tour(work.whole(LARGEST).tolist(), work.seconds)]


def _hgs(work: Work) -> Routes:
    """HGS-CVRP with its own defaults."""
    import hygese

    assert work.demands is not None
    assert work.capacity is not None
    factor = 1.0 if work.rounded else 1000 / max(work.distances.max(), 1e-12)  # its tolerances expect such lengths
    x, y = ((work.coords - work.coords.min(0)) * factor).T
    data = {
        "x_coordinates": x,
        "y_coordinates": y,
        "distance_matrix": work.distances * factor,
        "demands": work.demands.astype(np.float64),
        "vehicle_capacity": float(work.capacity),
        "depot": 0,
    }
    parameters = hygese.AlgorithmParameters(timeLimit=work.seconds, seed=work.seed)
    return _nonempty(hygese.Solver(parameters, verbose=False).solve_cvrp(data).routes)


def _ortools(work: Work) -> Routes:
    return solve_matrix(work.whole(), work.demands, work.capacity, work.seconds)


def _pyvrp(work: Work) -> Routes:
    from pyvrp import Client, Depot, Location, ProblemData, VehicleType, solve
    from pyvrp.stop import MaxRuntime

    nodes, distances = len(work.coords), cast(Any, work.whole(PYVRP_SCALE))
    loads = [] if work.demands is None else work.demands.tolist()
    limits = [] if work.capacity is None else [work.capacity]
    data = ProblemData(
        locations=[Location(float(x), float(y)) for x, y in work.coords],
        clients=[Client(node, delivery=[loads[node]] if loads else []) for node in range(1, nodes)],
        depots=[Depot(0)],
        vehicle_types=[VehicleType(1 if work.demands is None else nodes - 1, capacity=limits)],
        distance_matrices=[distances],
        duration_matrices=[np.zeros_like(distances)],
    )
    best = solve(data, MaxRuntime(work.seconds), seed=work.seed, collect_stats=False, display=False).best
    if not best.is_feasible():
        raise RuntimeError(f"PyVRP found no feasible solution in {work.seconds:g} s")
    routes = [[int(stop.idx) + 1 for stop in route.schedule() if stop.is_client()] for route in best.routes()]
    return _with_start(work, routes)


def _vroom(work: Work) -> Routes:
    """VROOM ends when it has nothing left to try: it may need less than its time."""
    import vroom

    problem = vroom.Input()
    problem.set_durations_matrix("car", work.whole().astype(np.uint32))
    customers = range(1, len(work.coords))
    if work.demands is None:
        problem.add_vehicle(vroom.Vehicle(0, start=0, end=0))
        problem.add_job([vroom.Job(node, location=node) for node in customers])
    else:
        assert work.capacity is not None
        fleet = len(customers)
        problem.add_vehicle([vroom.Vehicle(k, start=0, end=0, capacity=[work.capacity]) for k in range(fleet)])
        jobs = [vroom.Job(node, location=node, delivery=[int(work.demands[node])]) for node in customers]
        problem.add_job(jobs)
    found = problem.solve(5, nb_threads=1, timeout=timedelta(seconds=work.seconds))
    stops = found.routes[found.routes["type"] == "job"]
    routes = [group["id"].astype(int).tolist() for _, group in stops.groupby("vehicle_id", sort=False)]
    return _with_start(work, routes)


def _lkh(work: Work) -> Routes:
    assert work.binary is not None
    return [lkh_tour(work.binary, work.tsplib(), work.seconds, work.seed + 1)]


def _concorde(work: Work) -> Routes:
    assert work.binary is not None
    return [concorde_tour(work.binary, work.tsplib(), work.seconds, work.seed + 1)]


def _with_start(work: Work, routes: Routes) -> Routes:
    """Solvers that know depots alone begin a tour at node 0."""
    return [[0, *routes[0]]] if work.demands is None else _nonempty(routes)


def _nonempty(routes: Routes) -> Routes:
    return [route for route in routes if route]


RIVALS = {
    "fast-tsp": Rival(_fast_tsp, ("TSP",), "fast_tsp", "fast-tsp"),
    "HGS": Rival(_hgs, ("CVRP",), "hygese", "hygese"),
    "PyVRP": Rival(_pyvrp, ("TSP", "CVRP"), "pyvrp", "pyvrp"),
    "OR-Tools": Rival(_ortools, ("TSP", "CVRP"), "ortools", "ortools"),
    "VROOM": Rival(_vroom, ("TSP", "CVRP"), "vroom", "pyvroom"),
    "LKH": Rival(_lkh, ("TSP",), None, "--lkh"),
    "Concorde": Rival(_concorde, ("TSP",), None, "--concorde"),
}
