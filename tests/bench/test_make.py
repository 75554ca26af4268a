import os
from pathlib import Path

import numpy as np
import pytest

from lehd.bench.make import RECIPES, Recipe, make_set
from lehd.bench.uniform import load_set
from lehd.errors import LehdError

DATA = os.environ.get("LEHD_DATA", "")


@pytest.mark.skipif(not DATA, reason="LEHD_DATA does not name a folder of benchmark files")
@pytest.mark.parametrize("name", ["tsp100_s2023", "cvrp200", "cvrp500", "cvrp1000"])
def test_sets_are_drawn_bit_for_bit(name):
    drawn = RECIPES[name].draw()
    with np.load(Path(DATA) / "uniform" / f"{name}.npz") as published:
        for key, array in drawn.items():
            assert np.array_equal(array, published[key]), key


def test_references_come_from_a_solver(tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "small_tsp", Recipe("TSP", 9, 6, 1))
    monkeypatch.setitem(RECIPES, "small_cvrp", Recipe("CVRP", 9, 6, 1, 20))
    steps = []
    tsp = make_set("small_tsp", tmp_path, "fast-tsp", 0.01, 3, 1, watch=lambda *step: steps.append(step))
    assert steps == [(1, 3), (2, 3), (3, 3)]
    test_set = load_set(tsp)
    assert len(test_set.reference) == 3
    points = test_set.instances.coords[0].numpy()
    spread = np.ptp(points, axis=0)
    assert spread.sum() < test_set.reference[0] < 6 * np.linalg.norm(spread)
    cvrp = load_set(make_set("small_cvrp", tmp_path, "hgs", 0.05, 2, 1))
    assert cvrp.problem == "CVRP"
    assert min(cvrp.reference) > 0
    with pytest.raises(LehdError, match="exists"):
        make_set("small_tsp", tmp_path)
    with pytest.raises(LehdError, match="no seed"):
        make_set("tsp1000_fu", tmp_path)
