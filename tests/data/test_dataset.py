import numpy as np
import pytest
import torch

from lehd.data.dataset import SHARD, concatenate, draw_shard, load_labels
from lehd.data.generate import uniform_cvrp, x_type_cvrp
from lehd.errors import InfeasibleError, LehdError


def compact(tmp_path, recipe="x_type_cvrp", customers=6, shard=3, named=None, **changes):
    """A label file that serves every customer alone."""
    drawn = draw_shard(recipe, customers, shard)
    out = np.linalg.norm(drawn.coords[:, 1:] - drawn.coords[:, :1], axis=2)
    arrays = {
        "recipe": np.array(recipe) if named is None else named,
        "customers": np.array(customers),
        "shard": np.array([shard]),
        "nodes": np.broadcast_to(np.arange(1, customers + 1, dtype=np.uint8), (1, SHARD, customers)),
        "via": np.packbits(np.ones((1, SHARD, customers), bool), axis=2),
        "cost": 2 * out.sum(1)[None],
    } | changes
    np.savez(tmp_path / "labels.npz", **arrays)
    return tmp_path / "labels.npz"


def test_compact_labels_draw_their_instances_again(tmp_path):
    labelled = load_labels(compact(tmp_path))
    drawn = draw_shard("x_type_cvrp", 6, 3)
    assert len(labelled) == SHARD
    np.testing.assert_array_equal(labelled.instances.coords.numpy(), drawn.coords)
    assert labelled.solution.via_depot.all()


def test_another_generator_is_noticed(tmp_path):
    with pytest.raises(LehdError, match="draws other instances"):
        load_labels(compact(tmp_path, cost=np.full((1, SHARD), 1.0)))
    with pytest.raises(LehdError, match="unknown recipe"):
        load_labels(compact(tmp_path, named=np.array("soup")))


def test_plain_tours(tmp_path):
    rng = np.random.default_rng(0)
    tours = np.stack([rng.permutation(7) for _ in range(5)]).astype(np.uint8)
    np.savez(tmp_path / "tsp.npz", coords=rng.random((5, 7, 2)), tour=tours)
    labelled = load_labels(tmp_path / "tsp.npz")
    assert labelled.solution.nodes.tolist() == tours.tolist()
    assert len(concatenate([labelled, labelled.rows(slice(2))])) == 7


def test_bad_label_files_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    with pytest.raises(LehdError, match="readable"):
        load_labels(path)
    path.write_bytes(b"PK nothing")
    with pytest.raises(LehdError, match="readable"):
        load_labels(path)
    np.savez(path, coords=np.zeros((2, 3, 2)))
    with pytest.raises(LehdError, match="tour"):
        load_labels(path)
    np.savez(path, coords=np.zeros((2, 3, 2)), nodes=np.array([[0, 1, 2], [0, 1, 1]]))
    with pytest.raises(InfeasibleError, match="node 1 is visited 2 times"):
        load_labels(path)


def test_sizes_do_not_mix(tmp_path):
    parts = []
    for size in (5, 6):
        np.savez(tmp_path / f"{size}.npz", coords=np.zeros((1, size, 2)), nodes=np.arange(size)[None])
        parts.append(load_labels(tmp_path / f"{size}.npz"))
    with pytest.raises(LehdError, match="sizes"):
        concatenate(parts)


def test_the_same_seed_draws_the_same_instances():
    for make in (x_type_cvrp, uniform_cvrp):
        first, second = (make(np.random.default_rng(5), 3, 20) for _ in range(2))
        for a, b in zip(first, second):
            np.testing.assert_array_equal(a, b)


def test_x_type_instances_are_as_described():
    drawn = x_type_cvrp(np.random.default_rng(1), 300, 50)
    assert drawn.coords.min() >= 0
    assert drawn.coords.max() <= 1000
    np.testing.assert_array_equal(drawn.coords, np.round(drawn.coords))
    for coords in drawn.coords:
        assert len(np.unique(coords, axis=0)) == 51
    assert (drawn.demands[:, 0] == 0).all()
    assert drawn.demands[:, 1:].min() >= 1
    assert drawn.demands.max() <= 100
    assert (drawn.capacity >= drawn.demands.max(1)).all()
    route_size = drawn.capacity * 50 / drawn.demands.sum(1)
    assert np.quantile(route_size, 0.02) < 6
    assert np.quantile(route_size, 0.98) > 40
    depots = drawn.coords[:, 0]
    for place in ([500, 500], [0, 0]):
        assert 0.2 < (depots == place).all(1).mean() < 0.47


def test_varied_capacities_span_their_range():
    drawn = uniform_cvrp(np.random.default_rng(1), 2000, 4)
    assert drawn.capacity.min() in range(15, 18)
    assert drawn.capacity.max() in range(240, 251)
    assert 50 < np.median(drawn.capacity) < 75  # log-uniform: the middle is at 61
    fixed = uniform_cvrp(np.random.default_rng(1), 5, 4, capacity=50)
    assert (fixed.capacity == 50).all()
    assert torch.as_tensor(fixed.demands[:, 1:]).min() >= 1
