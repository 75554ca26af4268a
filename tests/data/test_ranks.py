"""Tours by how near the next node is among those that are left."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lehd.data import ranks
from lehd.data.dataset import draw_shard, load_labels, read_arrays, with_ranks, write_arrays
from lehd.data.ranks import from_ranks, from_zero, to_ranks
from lehd.errors import LehdError


def a_file(nodes=7, solved=None):
    """A compact file of random tours, its positions and tours."""
    coords = draw_shard("uniform_tsp", nodes, 3).coords
    tours = np.stack([np.random.default_rng(row).permutation(nodes) for row in range(100)])
    closed = np.concatenate([tours, tours[:, :1]], 1)
    steps = np.diff(np.take_along_axis(coords.astype(np.float64), closed[:, :, None], 1), axis=1)
    arrays = {
        "recipe": np.array("uniform_tsp"),
        "customers": np.array(nodes),
        "shard": np.array([3]),
        "nodes": tours[None],
        "cost": np.linalg.norm(steps, axis=2).sum(1)[None].astype(np.float32),
    }
    return (arrays if solved is None else arrays | {"solved": solved[None]}), coords, tours


def test_by_hand():
    """On a line, from node 0 at 0: the nearest, then two of three are nearer than the next, then as they come."""
    coords = np.array([[[0, 0], [1, 0], [2, 0], [4, 0], [9, 0]]], float)
    assert to_ranks(coords, np.array([[4, 2, 3, 0, 1]])).tolist() == [[0, 2, 1, 0]]
    assert from_ranks(coords, np.array([[0, 2, 1, 0]])).tolist() == [[0, 1, 4, 2, 3]]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 40), st.integers(1, 12), st.sampled_from([1, 2, 3, 1000, None]), st.integers(0, 999), st.booleans()
)
def test_the_same_tours_come_back(nodes, count, grid, seed, whole_numbers):
    """Also where many nodes are equally near, or at the same place."""
    rng = np.random.default_rng(seed)
    coords = rng.random((count, nodes, 2)) if grid is None else rng.integers(0, grid, (count, nodes, 2))
    coords = coords.astype(np.int64 if whole_numbers and grid is not None else np.float32)
    tours = np.stack([rng.permutation(nodes) for _ in range(count)])
    found = from_ranks(coords, to_ranks(coords, tours))
    assert (found == from_zero(tours)).all()
    assert (found[:, 0] == 0).all()
    assert (np.sort(found, 1) == np.arange(nodes)).all()


def test_large_ones_in_parts(monkeypatch):
    monkeypatch.setattr(ranks, "ENTRIES", 900)  # three instances at a time
    rng = np.random.default_rng(0)
    coords, tours = rng.random((10, 300, 2)), np.stack([rng.permutation(300) for _ in range(10)])
    found = to_ranks(coords, tours)
    assert found.dtype == np.uint16
    assert found.max() > 255
    assert (from_ranks(coords, found) == from_zero(tours)).all()


def test_the_nearest_neighbour_tour_is_all_zeros():
    coords = draw_shard("uniform_tsp", 50, 0).coords[:5]
    tours = from_ranks(coords, np.zeros((5, 49), np.uint8))
    for row, tour in enumerate(tours):
        for place in range(49):
            away = np.linalg.norm(coords[row][tour[place + 1 :]] - coords[row][tour[place]], axis=1)
            assert away.argmin() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((2, 4), int),
        np.zeros((1, 3), int),
        np.array([[4, 0, 0, 0]]),
        np.array([[0, 0, 0, 1]]),
        np.array([[0, -1, 0, 0]]),
    ],
)
def test_ranks_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="do not belong to 1 tours of 5 nodes"):
        from_ranks(np.zeros((1, 5, 2)), wrong)


def test_a_compact_file_with_ranks_holds_the_same_labels(tmp_path):
    arrays, _, tours = a_file()
    write_arrays(tmp_path / "nodes.npz", arrays)
    write_arrays(tmp_path / "ranks.npz", with_ranks(arrays))
    assert "nodes" not in read_arrays(tmp_path / "ranks.npz")
    one, other = (load_labels(tmp_path / name) for name in ("nodes.npz", "ranks.npz"))
    assert one.solution.nodes.tolist() == tours.tolist()
    assert other.solution.nodes.tolist() == from_zero(tours).tolist()
    assert (one.instances.coords == other.instances.coords).all()


def test_instances_without_a_label_stay_without(tmp_path):
    solved = np.arange(100) % 3 > 0
    arrays, _, tours = a_file(solved=solved)
    arrays["nodes"][0, ~solved] = 0  # as in a shard that was not finished
    write_arrays(tmp_path / "ranks.npz", with_ranks(arrays))
    assert load_labels(tmp_path / "ranks.npz").solution.nodes.tolist() == from_zero(tours[solved]).tolist()


def test_without_tours_there_are_no_ranks(tmp_path):
    assert to_ranks(np.zeros((0, 5, 2)), np.zeros((0, 5), int)).shape == (0, 4)
    assert from_ranks(np.zeros((0, 5, 2)), np.zeros((0, 4), int)).shape == (0, 5)
    arrays, _, _ = a_file(solved=np.zeros(100, bool))
    write_arrays(tmp_path / "none.npz", with_ranks(arrays))
    with pytest.raises(LehdError, match="no labels in it"):
        load_labels(tmp_path / "none.npz")


def test_what_has_no_label_does_not_make_ranks_larger():
    """Its nodes are zeros, as in a shard whose instance was not solved, and no tour."""
    arrays, coords, _ = a_file(nodes=300, solved=np.arange(100) < 2)
    arrays["nodes"][0, :2] = from_ranks(coords[:2], np.zeros((2, 299), int))
    arrays["nodes"][0, 2:] = 0
    packed = with_ranks(arrays)
    assert packed["ranks"].dtype == np.uint8
    assert not packed["ranks"].any()


def test_a_label_that_is_no_tour_is_not_written():
    arrays, _, _ = a_file()
    arrays["nodes"][0, 5, 1] = arrays["nodes"][0, 5, 0]
    with pytest.raises(LehdError, match="visits a node twice"):
        with_ranks(arrays)


def test_fractions_are_no_ranks(tmp_path):
    arrays, _, _ = a_file()
    packed = with_ranks(arrays)
    write_arrays(tmp_path / "half.npz", packed | {"ranks": packed["ranks"] + 0.5})
    with pytest.raises(LehdError, match="in the array ranks"):
        load_labels(tmp_path / "half.npz")


def test_ranks_of_other_instances_are_noticed_by_their_costs(tmp_path):
    arrays, _, _ = a_file()
    write_arrays(tmp_path / "moved.npz", with_ranks(arrays) | {"shard": np.array([4])})
    with pytest.raises(LehdError, match="draws other instances"):
        load_labels(tmp_path / "moved.npz")
    write_arrays(tmp_path / "short.npz", with_ranks(arrays) | {"ranks": np.zeros((1, 100, 7), np.uint8)})
    with pytest.raises(LehdError, match=r"ranks has the shape \(1, 100, 7\); expected \(1, 100, 6\)"):
        load_labels(tmp_path / "short.npz")
