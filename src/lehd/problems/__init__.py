"""What differs between problems, one file each."""

from lehd.problems.base import Problem
from lehd.problems.cvrp import CVRP
from lehd.problems.tsp import TSP
from lehd.types import Instances

PROBLEMS: dict[str, Problem] = {"TSP": TSP(), "CVRP": CVRP()}


def of(instances: Instances) -> Problem:
    """The problem these instances pose."""
    return PROBLEMS["TSP" if instances.demands is None else "CVRP"]
