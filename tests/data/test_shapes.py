import numpy as np
import pytest

from lehd.data.dataset import RECIPES, draw_shard
from lehd.data.shapes import SHAPES, shapes_tsp


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [5, 100, 130])
def test_shapes_give_as_many_points_as_asked_for(shape, nodes):
    for seed in range(10):
        points = shape(np.random.default_rng(seed), nodes)
        assert points.shape == (nodes, 2)
        assert np.isfinite(points).all()
        np.testing.assert_array_equal(points, shape(np.random.default_rng(seed), nodes))


def test_shapes_fill_the_unit_box():
    coords = shapes_tsp(np.random.default_rng(0), 300, 40)
    assert coords.dtype == np.float32
    assert (coords.min(1) == 0).all()
    np.testing.assert_allclose(coords.max((1, 2)), 1)


def nearest(points):
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    return np.where(np.eye(len(points), dtype=bool), np.inf, apart).min(1)


def test_shapes_are_what_they_are_called():
    named = {shape.__name__: [shape(np.random.default_rng(seed), 100) for seed in range(30)] for shape in SHAPES}
    assert len(named) == 10
    for points in named["lattice"]:
        assert (points == np.round(points)).all()
        assert len(np.unique(points, axis=0)) == 100
    assert all(len(np.unique(points[:, 0])) < 20 for points in named["lines"])
    spans = [np.ptp(points, axis=0).max() for points in named["coarse"]]
    assert max(np.ptp(points, axis=0).max() for points in named["lattice"]) <= min(spans) + 6
    for points in named["boards"]:  # most holes have a neighbour at one of a few distances
        assert len(np.unique(nearest(points).round(9))) < 40
    uniform = np.mean([nearest(np.random.default_rng(seed).random((100, 2))).mean() for seed in range(30)])
    for name in ("clusters", "compression", "implosion"):
        assert np.mean([nearest(points).mean() for points in named[name]]) < uniform
    holes = [np.linalg.norm(points[:, None] - np.random.default_rng(1).random((2000, 2)), axis=2).min(0).max()
             for points in named["explosion"]]  # fmt: skip
    assert np.median(holes) > 0.2


# Positions and demands of the first instances, added up: what a recipe draws may never change.
DRAWN = {
    "x_type_cvrp": 112025.0,
    "varied_cvrp": 1358.2468971014023,
    "uniform_cvrp": 834.0315657258034,
    "uniform_tsp": 104.23901826143265,
    "shapes_tsp": 91.38237700983882,
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_draw_the_same_for_ever(recipe):
    drawn = draw_shard(recipe, 20, 7)
    assert sum(float(np.asarray(part[:5], dtype=np.float64).sum()) for part in drawn) == pytest.approx(
        DRAWN[recipe], rel=1e-6
    )
