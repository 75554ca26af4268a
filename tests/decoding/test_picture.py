"""Pictures of a few nodes each, where one map cannot show the distances."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lehd import solve
from lehd.decoding import picture
from lehd.decoding.picture import LARGEST, draw, faithful, redrawn
from lehd.io import read_text
from lehd.io.arrays import matrix_instances
from lehd.types import Instances


def planar(nodes: int, seed: int = 0) -> np.ndarray:
    positions = np.random.default_rng(seed).random((nodes, 2))
    return np.asarray(np.linalg.norm(positions[:, None] - positions[None], axis=-1))


def roads(nodes: int, seed: int = 0) -> np.ndarray:
    """Distances that are longer than in the plane, some more than others."""
    noise = np.random.default_rng(seed).normal(0, 0.3, (nodes, nodes))
    return np.rint(1000 * planar(nodes, seed) * np.exp(np.abs(noise + noise.T)))


def towns(latitudes: tuple[float, float], longitudes: tuple[float, float]) -> Instances:
    rng = np.random.default_rng(1)
    rows = zip(rng.uniform(*latitudes, 60), rng.uniform(*longitudes, 60))
    return read_text("lat,lon\n" + "".join(f"{a:.4f},{b:.4f}\n" for a, b in rows), "towns.csv")


def distances_of(positions: torch.Tensor) -> torch.Tensor:
    return (positions[:, :, None] - positions[:, None]).norm(dim=-1)


def shown(instances: Instances) -> torch.Tensor:
    return distances_of(instances.coords.double())[0]


def error_among_neighbours(instances: Instances) -> float:
    """How far off the distances to the three nearest nodes are in the picture, at its best scale."""
    assert instances.matrix is not None
    true = instances.matrix[0].double() + torch.diag(torch.full((instances.num_nodes,), torch.inf))
    near = true.topk(3, largest=False)
    ratio = shown(instances).gather(1, near.indices) / near.values
    return float((ratio / ratio.median() - 1).abs().mean())


def test_what_a_map_shows_as_it_is() -> None:
    assert faithful(Instances(coords=torch.rand(3, 50, 2, dtype=torch.float64)))
    assert faithful(matrix_instances(1e6 * planar(40)))
    assert faithful(towns((48.0, 48.5), (16.0, 16.7)))
    assert faithful(matrix_instances(np.zeros((5, 5))))  # all in one place


def test_what_no_map_shows_as_it_is() -> None:
    assert not faithful(matrix_instances(roads(40)))
    assert not faithful(towns((-50.0, 65.0), (-170.0, 170.0)))
    assert not faithful(matrix_instances(roads(30), coords=np.zeros((30, 2))))  # a map that shows nothing
    two = [matrix_instances(1000 * planar(30)), matrix_instances(roads(30))]
    coords, matrix = (torch.cat([getattr(each, name).double() for each in two]) for name in ("coords", "matrix"))
    assert not faithful(Instances(coords, rule=two[0].rule, matrix=matrix))


@given(nodes=st.integers(3, 60), seed=st.integers(0, 2**32 - 1))
def test_distances_in_the_plane_are_drawn_as_they_are(nodes: int, seed: int) -> None:
    distances = torch.from_numpy(planar(nodes, seed)).float()[None]
    distances = distances / distances.max()
    torch.testing.assert_close(distances_of(draw(distances)), distances, atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_are_drawn_better_than_on_the_map(seed: int) -> None:
    whole = matrix_instances(roads(80, seed))
    part = whole.take(whole.matrix[0, :1].argsort(1)[:, :20])
    drawn = redrawn(part, torch.Generator().manual_seed(0))
    assert error_among_neighbours(drawn) < 0.85 * error_among_neighbours(part)
    assert drawn.matrix is part.matrix  # costs stay what they are


def test_two_pictures_of_the_same_nodes_differ_a_little() -> None:
    part, generator = matrix_instances(roads(20)), torch.Generator().manual_seed(0)
    one, other = redrawn(part, generator), redrawn(part, generator)
    apart = (shown(one) - shown(other)).abs().mean()
    assert 0.001 < apart < 0.1
    away = towns((-50.0, 65.0), (-170.0, 170.0)).take(torch.arange(20)[None])  # exact distances are not blurred
    torch.testing.assert_close(redrawn(away, generator).coords, redrawn(away, generator).coords)


def test_forbidden_edges_do_not_shrink_the_rest() -> None:
    distances = 1000 * planar(20)
    distances[0, 7] = distances[7, 0] = 1e7
    drawn = shown(redrawn(matrix_instances(distances), torch.Generator().manual_seed(0)))
    others = [node for node in range(20) if node not in (0, 7)]
    part, wanted = drawn[others][:, others], torch.from_numpy(distances)[others][:, others]
    assert part.max() > 0.3
    assert torch.corrcoef(torch.stack([part.flatten(), wanted.flatten()]))[0, 1] > 0.9


def test_a_node_that_is_near_to_all_does_not_hide_the_rest() -> None:
    """Such as the free end of an open path."""
    distances = 1000 * planar(20)
    distances[0] = distances[:, 0] = 0
    drawn = shown(redrawn(matrix_instances(distances), torch.Generator().manual_seed(0)))[1:, 1:]
    wanted = torch.from_numpy(distances)[1:, 1:]
    assert torch.corrcoef(torch.stack([drawn.flatten(), wanted.flatten()]))[0, 1] > 0.8


def test_costs_on_the_globe_stay_what_they_are() -> None:
    globe = towns((-50.0, 65.0), (-170.0, 170.0))
    degrees = replace(globe, coords=globe.sites, sites=None)  # positions that the rule measures itself
    ends = torch.arange(5)[None], torch.arange(5, 10)[None]
    for each in (globe, degrees):
        assert redrawn(each, torch.Generator()).distance(*ends).equal(each.distance(*ends))


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 5e14])
def test_units_do_not_matter(scale: float) -> None:
    one, other = (redrawn(matrix_instances(s * planar(20)), torch.Generator().manual_seed(0)) for s in (1.0, scale))
    torch.testing.assert_close(shown(one), shown(other), atol=1e-3, rtol=0)


def test_many_pictures_are_drawn_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    away = towns((-50.0, 65.0), (-170.0, 170.0)).take(torch.arange(60).view(12, 5), torch.zeros(12, dtype=torch.long))
    together = redrawn(away, torch.Generator())
    monkeypatch.setattr(picture, "AT_ONCE", 130)  # five at once
    torch.testing.assert_close(redrawn(away, torch.Generator()).coords, together.coords, atol=1e-4, rtol=0)


def test_nothing_to_draw() -> None:
    generator = torch.Generator()
    for nodes in (2, LARGEST + 1):
        assert (same := matrix_instances(planar(nodes))) is redrawn(same, generator)
    nowhere = matrix_instances(np.zeros((5, 5)))
    assert redrawn(nowhere, generator).coords.isfinite().all()
    far = matrix_instances(np.full((5, 5), 1e15) * (1 - np.eye(5)))
    assert redrawn(far, generator).coords.isfinite().all()


@pytest.mark.parametrize("seed", range(3))
def test_the_best_tour_by_a_matrix_is_found(seed: int) -> None:
    distances = roads(8, seed)
    tours = ((0, *rest, 0) for rest in itertools.permutations(range(1, 8)))
    best = min(sum(distances[a, b] for a, b in itertools.pairwise(tour)) for tour in tours)
    found = solve(matrix=distances, rrc=150, seed=seed, device="cpu")
    assert found.cost == best
    assert solve(matrix=distances, rrc=150, seed=seed, device="cpu").tour == found.tour
