import os
from pathlib import Path

import numpy as np
import pytest

from lehd.bench import make
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


def test_sets_of_the_appendix_come_from_their_seed():
    assert RECIPES["tsp20"] == Recipe("TSP", 10_000, 20, 1234)
    assert RECIPES["tsp50"] == Recipe("TSP", 10_000, 50, 1234)


def test_known_references_need_no_solver(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "references", None)
    monkeypatch.setitem(RECIPES, "tsp9", Recipe("TSP", 6, 9, 1234))
    np.savez(tmp_path / "tsp9-costs.npz", ref_cost=np.arange(6.0), ref_source="somebody")
    with np.load(make_set("tsp9", tmp_path / "sets", "fast-tsp", limit=4, costs=tmp_path)) as archive:
        assert archive["ref_cost"].tolist() == [0, 1, 2, 3]
        drawn = np.random.RandomState(1234).uniform(size=(6, 9, 2))[:4]
        np.testing.assert_array_equal(archive["coords"], drawn)
    np.savez(tmp_path / "tsp9-costs.npz", ref_cost=np.arange(3.0))
    with pytest.raises(LehdError, match="ref_cost"):
        make_set("tsp9", tmp_path / "other", costs=tmp_path)


@pytest.mark.parametrize("name", ["tsp20", "tsp50"])
def test_the_stored_references_are_those_of_the_seed(name, request, tmp_path):
    """No tour is shorter than its minimum spanning tree, and a good one not much longer than its nodes suggest."""
    costs = request.config.rootpath / "labels"
    if not (costs / f"{name}-costs.npz").exists():
        pytest.skip("no stored references")
    with np.load(make_set(name, tmp_path, costs=costs)) as archive:
        coords, found = archive["coords"], archive["ref_cost"]
    for row in range(0, 10_000, 500):
        assert spanning_tree(coords[row]) < found[row] < 1.5 * spanning_tree(coords[row])


def spanning_tree(points):
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    nearest, total, left = apart[0].copy(), 0.0, set(range(1, len(points)))
    while left:
        node = min(left, key=lambda each: nearest[each])
        total += nearest[node]
        left.remove(node)
        nearest = np.minimum(nearest, apart[node])
    return total
