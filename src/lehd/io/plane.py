"""Positions in the plane for instances that have none: the model needs some picture of every instance.

Costs never come from these positions, only from the instance's own distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lehd.distance import EARTH_RADIUS_METRES

Floats = NDArray[np.float64]
Entries = NDArray[np.floating[Any]]

_SUBSPACE = 32  # dimensions carried through the power iteration; two are kept
_ROUNDS = 10
_DOUBLE = 2000  # nodes; of more, single precision shows as much and takes a third of the time
_DETOUR_BUDGET = 2e7  # entries compared when long distances are replaced by detours


def project(latlon: Floats) -> Floats:
    """Metres east and north (n, 2) of positions in degrees (n, 2), true to scale around their mean latitude.

    The map is cut where the widest gap between longitudes is, so a region across the antimeridian stays whole.
    """
    latitude, longitude = np.deg2rad(latlon[:, 0]), np.deg2rad(latlon[:, 1]) % (2 * np.pi)
    west_to_east = np.sort(longitude)
    gaps = np.append(west_to_east[1:], west_to_east[0] + 2 * np.pi) - west_to_east
    west_end = np.roll(west_to_east, -1)[np.argmax(gaps)]
    east = longitude - west_end
    east[east < 0] += 2 * np.pi
    return EARTH_RADIUS_METRES * np.stack([east * np.cos(latitude.mean()), latitude], axis=1)


def embed(matrix: Floats) -> Floats:
    """Positions (n, 2) whose distances resemble a matrix (n, n): classical multidimensional scaling.

    The two leading eigenvectors come from a power iteration on a subspace, which is exact for matrices that do lie in
    a plane and takes a second or two, not minutes, for thousands of nodes.
    """
    n = len(matrix)
    gram = np.add(matrix, matrix.T, dtype=np.float64 if n <= _DOUBLE else np.float32, casting="same_kind")
    # In place from here on: to make room for another large matrix takes longer than to compute it.
    gram /= 2
    _take_detours(gram)
    scale = float(gram.max(initial=0.0)) or 1.0
    gram /= scale
    np.square(gram, out=gram)
    gram *= -0.5
    columns, rows, mean = gram.mean(0, keepdims=True), gram.mean(1, keepdims=True), gram.mean()
    gram -= columns
    gram -= rows
    gram += mean
    basis = np.random.default_rng(0).standard_normal((n, min(n, _SUBSPACE))).astype(gram.dtype)
    for _ in range(_ROUNDS):
        basis, _ = np.linalg.qr(gram @ basis)
    values, vectors = np.linalg.eigh(basis.T @ gram @ basis)
    axes = (basis @ vectors[:, ::-1])[:, :2] * np.sqrt(values[::-1][:2].clip(min=0))
    axes *= np.where(axes[np.abs(axes).argmax(0), range(axes.shape[1])] < 0, -1.0, 1.0)  # either sign would do: fix it
    return scale * np.pad(axes.astype(np.float64), ((0, 0), (0, 2 - axes.shape[1])))


def _take_detours(distances: Entries) -> None:
    """Makes no distance longer than the way over other nodes, so that a huge entry that forbids an edge does not
    squeeze all other nodes into one point. Large matrices try some of the detours only."""
    n = len(distances)
    np.fill_diagonal(distances, 0)
    detours = max(1, min(n, int(_DETOUR_BUDGET / n**2)))
    for via in np.linspace(0, n - 1, detours).astype(int):
        np.minimum(distances, distances[:, via, None] + distances[None, via], out=distances)
