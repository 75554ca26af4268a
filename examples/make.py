"""Draws the two example instances again, always the same: python examples/make.py

harbour.tsp: 120 stops around a bay, along two piers and on an island: dense along the water, sparse inland.
bakery.vrp: 80 shops in the quarters of a town; the bakery stands at its edge, a van carries 100 crates.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
Points = list[tuple[int, int]]


def distinct(points: Iterable[np.ndarray], count: int) -> Points:
    """The first `count` different points, rounded to whole numbers."""
    seen: dict[tuple[int, int], None] = {}
    for x, y in points:
        seen.setdefault((round(float(x)), round(float(y))))
    if len(seen) < count:
        raise ValueError(f"only {len(seen)} different points of {count}")
    return list(seen)[:count]


def harbour(rng: np.random.Generator) -> Points:
    """Quays on a three-quarter circle, two piers into the water, an island, and a few stops inland."""
    angle = np.radians(np.linspace(-35, 215, 48))
    quays = 500 + 330 * np.stack([np.cos(angle), np.sin(angle)], 1) + rng.normal(0, 9, (48, 2))
    ways = [((260, 700), (430, 560)), ((770, 640), (600, 520))]
    piers = [
        np.linspace(start, end, 9) + rng.normal(0, 4, (9, 2)) + side
        for start, end in ways
        for side in (np.zeros(2), np.array([14, 22]))
    ]
    turn = np.radians(np.arange(0, 360, 30))
    island = np.array([500, 350]) + np.stack([75 * np.cos(turn), 45 * np.sin(turn)], 1) + rng.normal(0, 6, (12, 2))
    outward = rng.uniform(-40, 220, 60) * np.pi / 180
    inland = 500 + rng.uniform(370, 520, 60)[:, None] * np.stack([np.cos(outward), np.sin(outward)], 1)
    return distinct(np.concatenate([quays, *piers, island, inland]), 120)


def bakery(rng: np.random.Generator) -> tuple[Points, list[int]]:
    """The depot first, then shops in eight quarters of unlike size and some in between; crates for each shop."""
    centres = rng.uniform(120, 880, (8, 2))
    spread = rng.uniform(18, 55, 8)
    quarter = rng.choice(8, 66, p=rng.dirichlet(np.full(8, 4.0)))
    clustered = centres[quarter] + rng.normal(0, 1, (66, 2)) * spread[quarter, None]
    scattered = rng.uniform(0, 1000, (60, 2))
    shops = distinct(np.clip(np.concatenate([clustered, scattered]), 0, 1000), 80)
    crates = [int(number) for number in rng.integers(3, 20, 80)]
    return [(420, 180), *shops], crates


def section(title: str, rows: Iterable[Iterable[int]]) -> list[str]:
    return [title, *(" ".join(map(str, (number, *row))) for number, row in enumerate(rows, 1))]


def main() -> None:
    stops = harbour(np.random.default_rng(7))
    head = ["NAME : harbour", "COMMENT : 120 stops around a bay", "TYPE : TSP"]
    head += [f"DIMENSION : {len(stops)}", "EDGE_WEIGHT_TYPE : EUC_2D"]
    (HERE / "harbour.tsp").write_text("\n".join([*head, *section("NODE_COORD_SECTION", stops), "EOF\n"]))

    places, crates = bakery(np.random.default_rng(11))
    head = ["NAME : bakery", "COMMENT : 80 shops and the bakery that serves them", "TYPE : CVRP"]
    head += [f"DIMENSION : {len(places)}", "EDGE_WEIGHT_TYPE : EUC_2D", "CAPACITY : 100"]
    demands = section("DEMAND_SECTION", [(number,) for number in [0, *crates]])
    depot = ["DEPOT_SECTION", "1", "-1", "EOF\n"]
    (HERE / "bakery.vrp").write_text("\n".join([*head, *section("NODE_COORD_SECTION", places), *demands, *depot]))


if __name__ == "__main__":
    main()
