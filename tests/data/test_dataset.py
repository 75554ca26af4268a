import numpy as np
import pytest
import torch

from lehd.data.dataset import SHARD, concatenate, draw_shard, load_labels, read_arrays
from lehd.data.generate import uniform_cvrp, x_type_cvrp
from lehd.data.label_file import read_label_file
from lehd.errors import InfeasibleError, LehdError
from tests.training.circles import star_labels


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
    for read in (load_labels, read_label_file):
        with pytest.raises(InfeasibleError, match=r"x\.npz: instance 1: node 1 is visited 2 times"):
            read(path)
    with open(path, "wb") as file:
        np.save(file, np.zeros((2, 3, 2)))
    with pytest.raises(LehdError, match=r"x\.npz: .*\.npy"):
        load_labels(path)


STAR = star_labels(count=4, customers=6)


@pytest.mark.parametrize("read", [load_labels, read_label_file])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"demands": STAR["demands"] / 7, "capacity": STAR["capacity"] / 7}, "0.714286 in the array demands: .* whole"),
        ({"capacity": STAR["capacity"] + 0.5}, "10.5 in the array capacity: expected a whole number"),
        ({"demands": STAR["demands"] * np.nan}, "nan in the array demands"),
        ({"nodes": STAR["nodes"] + 0.5}, "1.5 in the array nodes"),
        ({"coords": STAR["coords"] * np.nan}, "a coordinate is not a finite number"),
        ({"coords": np.full((4, 7, 2), 1e300)}, "a coordinate is not a finite number"),
        ({"coords": STAR["coords"][..., 0]}, r"coords has the shape \(4, 7\)"),
        ({"coords": np.zeros((4, 7, 3))}, r"coords has the shape \(4, 7, 3\)"),
        ({"coords": np.full((4, 7, 2), "x")}, "'x'"),
        ({"nodes": np.full((4, 6), "x")}, "'x'"),
        ({"via_depot": np.full((4, 6), "x")}, "str_"),
        ({"via_depot": np.ones((4, 5), bool)}, "the array via_depot has the shape"),
        ({"capacity": np.array(10)}, r"capacity has the shape \(\); expected \(4,\)"),
        ({"demands": STAR["demands"][:3]}, "the array demands has the shape"),
    ],
)
def test_arrays_that_make_no_instances_are_refused(tmp_path, read, changes, message):
    np.savez(tmp_path / "x.npz", **STAR | changes)
    with pytest.raises(LehdError, match=rf"x\.npz: .*{message}"):
        read(tmp_path / "x.npz")


def test_whole_numbers_may_be_written_as_fractions(tmp_path):
    np.savez(tmp_path / "x.npz", **STAR | {"demands": STAR["demands"] * 1.0, "capacity": STAR["capacity"] * 1.0})
    instances = load_labels(tmp_path / "x.npz").instances
    assert instances.demands.tolist() == STAR["demands"].tolist()
    assert instances.capacity.tolist() == STAR["capacity"].tolist()


@pytest.mark.parametrize("read", [load_labels, read_label_file])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": np.zeros((1, 50, 6), np.uint8)}, r"nodes has the shape \(1, 50, 6\); expected \(1, 100, 6\)"),
        ({"via": np.zeros((1, SHARD, 2), np.uint8)}, "the array via has the shape"),
        ({"cost": np.ones(3)}, "the array cost has the shape"),
        ({"solved": np.ones((1, 5), bool)}, "the array solved has the shape"),
        ({"shard": np.array([-1])}, "shard -1: shards are counted from 0"),
        ({"shard": np.array(3)}, "the array shard has the shape"),
        ({"customers": np.array(-2)}, "-2 customers"),
    ],
)
def test_compact_files_that_do_not_fit_together_are_refused(tmp_path, read, changes, message):
    path = compact(tmp_path)
    np.savez(path, **read_arrays(path) | changes)
    with pytest.raises(LehdError, match=rf"labels\.npz: .*{message}"):
        read(path)


def test_a_file_without_a_single_label_is_refused(tmp_path):
    with pytest.raises(LehdError, match=r"labels\.npz: no labels"):
        load_labels(compact(tmp_path, solved=np.zeros((1, SHARD), bool)))


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
