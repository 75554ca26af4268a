"""lehd: learned construction and improvement of tours and vehicle routes.

    import lehd
    result = lehd.solve(lehd.read("a280.tsp"), time_limit=10)
    print(result.cost, result.tour)

The names below are imported when first used, so that `lehd --help` need not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "CVRP": "lehd.problems.cvrp",
    "TSP": "lehd.problems.tsp",
    "Incumbent": "lehd.types",
    "InfeasibleError": "lehd.errors",
    "Instances": "lehd.types",
    "LehdError": "lehd.errors",
    "Progress": "lehd.solver",
    "Result": "lehd.types",
    "Solution": "lehd.types",
    "load_model": "lehd.model.checkpoint",
    "read": "lehd.io",
    "solve": "lehd.solver",
}
__all__ = [  # noqa: RUF022 - grouped by use
    "solve", "read", "load_model", "TSP", "CVRP", "Instances", "Solution", "Result", "Incumbent", "Progress",
    "LehdError", "InfeasibleError",
]  # fmt: skip

if TYPE_CHECKING:
    from lehd.errors import InfeasibleError, LehdError
    from lehd.io import read
    from lehd.model.checkpoint import load_model
    from lehd.problems.cvrp import CVRP
    from lehd.problems.tsp import TSP
    from lehd.solver import Progress, solve
    from lehd.types import Incumbent, Instances, Result, Solution


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lehd' has no attribute {name!r}")
