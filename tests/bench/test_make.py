import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from lehd.bench import make
from lehd.bench.make import RECIPES, Recipe, choose_sets, make_set
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


@pytest.fixture
def stored(tmp_path):
    """A folder with a set of either problem, their references, and what else people keep in such files."""
    folder = tmp_path / "stored"
    folder.mkdir()
    coords = np.random.default_rng(0).random((3, 7, 2), dtype=np.float32)
    np.savez(folder / "old_tsp.npz", coords=coords, opt_cost=np.ones(3), ref_tour=np.zeros((3, 7)), source="somebody")
    demands, capacity = np.array([[0, 1, 2, 1, 2, 1, 2]] * 3), np.full(3, 5)
    np.savez(folder / "old_cvrp.npz", coords=coords, demands=demands, capacity=capacity, lkh_cost=np.ones(3))
    return folder


def test_stored_sets_get_new_references(stored, tmp_path):
    pytest.importorskip("fast_tsp")
    pytest.importorskip("hygese")
    path = make_set("old_tsp", tmp_path, "fast-tsp", 0.01, 2, 1, source=stored)
    with np.load(path) as archive, np.load(stored / "old_tsp.npz") as old:
        assert sorted(archive.files) == ["coords", "ref_cost", "ref_source"]
        np.testing.assert_array_equal(archive["coords"], old["coords"][:2])
    test_set = load_set(path)
    tours = torch.tensor([[0, *order] for order in itertools.permutations(range(1, 7))])
    steps = test_set.instances.coords[0][tours]
    shortest = (steps - steps.roll(-1, 1)).norm(dim=2).sum(1).min().item()
    assert test_set.reference[0] == pytest.approx(shortest, rel=1e-12)  # in double precision, whatever the file has
    cvrp = load_set(make_set("old_cvrp", tmp_path, "hgs", 0.05, 1, 1, source=stored))
    assert cvrp.problem == "CVRP"
    assert cvrp.reference[0] > 1
    np.savez(tmp_path / "old_cvrp-costs.npz", ref_cost=np.arange(3.0))
    known = make_set("old_cvrp", tmp_path / "known", "fast-tsp", costs=tmp_path, source=stored)
    assert load_set(known).reference == [0, 1, 2]


def test_stored_sets_that_cannot_be_used(stored, tmp_path):
    with pytest.raises(LehdError, match=r"stored/old_tsp\.npz: new references come from --solver"):
        make_set("old_tsp", tmp_path, source=stored)
    with pytest.raises(LehdError, match="exists"):
        make_set("old_tsp", stored, "fast-tsp", source=stored)
    with pytest.raises(LehdError, match=r"none\.npz"):
        make_set("none", tmp_path, "fast-tsp", source=stored)
    np.savez(stored / "odd.npz", nothing=np.zeros(3))
    with pytest.raises(LehdError, match=r"odd\.npz: expected an array coords"):
        make_set("odd", tmp_path, "fast-tsp", source=stored)
    np.savez(stored / "odd.npz", coords=np.zeros((1, 2, 2)), demands=[[0, 0.4]], capacity=[1.0])
    with pytest.raises(LehdError, match="whole numbers"):
        make_set("odd", tmp_path, "hgs", source=stored)
    with pytest.raises(LehdError, match="no test sets"):
        choose_sets([], source=tmp_path)


def test_sets_of_the_other_problem_are_left_out(stored, tmp_path):
    tsp = ["tsp20", "tsp50", "tsp100_s2023"]
    cvrp = [name for name in RECIPES if name not in tsp]
    assert choose_sets([], "hgs") == (cvrp, tsp)
    assert choose_sets([], "fast-tsp") == (tsp, cvrp)
    assert choose_sets([], "ortools") == choose_sets([]) == choose_sets([], "magic") == (list(RECIPES), [])
    assert choose_sets(["tsp20"], "hgs") == (["tsp20"], [])  # a mistake, which the solver complains about
    np.savez(tmp_path / "tsp20-costs.npz", ref_cost=np.ones(10_000))
    assert choose_sets([], "hgs", tmp_path) == (["tsp20", *cvrp], tsp[1:])
    assert choose_sets([], "hgs", source=stored) == (["old_cvrp"], ["old_tsp"])


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
