"""The picture of an instance: maps of degrees, and plane embeddings of distances."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lehd.distance import haversine
from lehd.io import plane
from lehd.io.plane import embed, project


def distances(positions: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.norm(positions[:, None] - positions[None], axis=-1))


@pytest.mark.parametrize("longitude", [0.0, 16.4, 179.99, -179.99, 359.99])
@pytest.mark.parametrize("latitude", [0.0, 48.2, -61.0])
def test_a_region_keeps_its_distances(latitude: float, longitude: float) -> None:
    rng = np.random.default_rng(0)
    degrees = np.array([latitude, longitude]) + rng.uniform(-0.2, 0.2, (30, 2))
    degrees[:, 1] = (degrees[:, 1] + 180) % 360 - 180
    sites = torch.from_numpy(degrees)
    metres = haversine(sites[:, None], sites[None]).numpy()
    np.testing.assert_allclose(distances(project(degrees)), metres, rtol=0.01, atol=1)


def test_the_map_is_cut_at_the_widest_gap() -> None:
    pacific = np.array([[-18.0, 178.0], [-14.0, -171.0], [-21.0, -175.0], [-9.0, 160.0]])
    assert np.argsort(project(pacific)[:, 0]).tolist() == [3, 0, 2, 1]  # west to east


def test_one_place_and_the_pole() -> None:
    assert np.isfinite(project(np.array([[90.0, 0.0]]))).all()
    assert distances(project(np.array([[5.0, -170.0]] * 3))).max() == 0


@given(n=st.integers(1, 60), scale=st.sampled_from([1e-9, 1.0, 1e9]), seed=st.integers(0, 2**32 - 1))
def test_distances_in_the_plane_are_kept(n: int, scale: float, seed: int) -> None:
    wanted = distances(scale * np.random.default_rng(seed).random((n, 2)))
    np.testing.assert_allclose(distances(embed(wanted)), wanted, atol=1e-6 * scale)


def test_as_good_as_the_leading_eigenvectors() -> None:
    wanted = distances(np.random.default_rng(3).random((200, 5)))  # five dimensions do not fit in two
    centred = np.eye(200) - 1 / 200
    eigenvalues = np.linalg.eigvalsh(-0.5 * centred @ wanted**2 @ centred)
    np.testing.assert_allclose(np.square(embed(wanted)).sum(0), eigenvalues[:-3:-1], rtol=1e-3)


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_all_in_one_place(n: int) -> None:
    assert embed(np.zeros((n, n))).tolist() == [[0.0, 0.0]] * n


def test_forbidden_edges_do_not_hide_the_rest() -> None:
    wanted = distances(np.random.default_rng(5).random((40, 2)))
    forbidding = wanted.copy()
    forbidding[np.random.default_rng(6).random((40, 40)) < 0.2] = 1e15
    positions = embed(forbidding)
    kept = np.corrcoef(distances(positions).ravel(), wanted.ravel())[0, 1]
    assert kept > 0.98


def test_both_directions_count_alike() -> None:
    matrix = np.random.default_rng(7).random((12, 12))
    np.testing.assert_array_equal(embed(matrix), embed(matrix.T.copy()))


def test_the_same_matrix_gives_the_same_picture() -> None:
    matrix = np.random.default_rng(8).random((50, 50))
    picture = embed(matrix)
    np.testing.assert_array_equal(picture, embed(matrix))
    assert (picture[np.abs(picture).argmax(0), [0, 1]] > 0).all()


def test_large_matrices_are_embedded_in_single_precision_and_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, qr = [], np.linalg.qr

    def watched(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kinds.append(matrix.dtype)
        return qr(matrix)

    monkeypatch.setattr(np.linalg, "qr", watched)
    monkeypatch.setattr(plane, "_DOUBLE", 100)
    for n, kind in ((100, np.float64), (101, np.float32)):
        wanted = 1e9 * distances(np.random.default_rng(9).random((n, 2)))
        given = wanted.copy()
        picture = embed(given)
        assert picture.dtype == np.float64
        np.testing.assert_array_equal(given, wanted)
        np.testing.assert_allclose(distances(picture), wanted, atol=1e5)
        assert set(kinds) == {np.dtype(kind)}
        kinds.clear()
