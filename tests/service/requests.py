"""Bodies for the tests."""

from __future__ import annotations

import random
from typing import Any

SQUARE = "x,y\n0,0\n10,10\n10,0\n0,10\n"
DEPOT = [2.35, 48.85]


def vroom(jobs: int = 4, vehicles: int = 2, capacity: int = 10, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A small CVRP in VROOM's words."""
    draw = random.Random(seed)
    return {
        "vehicles": [
            {"id": 10 + number, "start": DEPOT, "end": DEPOT, "capacity": [capacity]} for number in range(vehicles)
        ],
        "jobs": [
            {
                "id": 100 + number,
                "location": [2.3 + draw.random() / 10, 48.8 + draw.random() / 10],
                "delivery": [draw.randint(1, 5)],
            }
            for number in range(jobs)
        ],
    } | changes


def table(nodes: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    return "x,y\n" + "".join(f"{draw.random()},{draw.random()}\n" for _ in range(nodes))


def demand_table(customers: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    rows = [f"{draw.random()},{draw.random()},{draw.randint(1, 9)}\n" for _ in range(customers)]
    return "x,y,demand\n0.5,0.5,0\n" + "".join(rows)
