from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from lehd import distance, plot, problems
from lehd.errors import LehdError
from lehd.plot import _colours, plot_result, plot_solution
from lehd.types import Instances
from tests import samples

# Of the drawing, that is: what other tests left open may be collected meanwhile.
NO_WARNINGS = pytest.mark.filterwarnings("error", "ignore::pytest.PytestUnraisableExceptionWarning")


def lines(axes: Any) -> list[Any]:
    return [artist for artist in axes.collections if isinstance(artist, LineCollection)]


def test_tour_is_drawn_closed_and_in_order():
    figure = plot_result(samples.square_result())
    (tour,) = lines(figure.axes[0])
    (path,) = tour.get_segments()
    assert path.tolist() == [[0, 0], [0, 1], [1, 1], [1, 0], [0, 0]]  # in the unit box
    assert figure.axes[0].get_aspect() == 1


def test_routes_have_colours_of_their_own_and_legs_to_the_depot():
    axes: Any = plot_result(samples.cross_result()).axes[0]
    inner, legs = lines(axes)
    assert len(inner.get_segments()) == 2
    assert len({tuple(colour) for colour in inner.get_colors()}) == 2
    centre = np.array([12, 16]) / 32
    assert [leg[0].tolist() for leg in legs.get_segments()] == [[*centre]] * 4  # out and back, two routes
    depot = next(artist for artist in axes.collections if artist.get_label() == "depot")
    assert depot.get_offsets().tolist() == [[*centre]]


def test_a_depot_alone(tmp_path):
    nobody = Instances(torch.zeros(1, 1, 2).double(), demands=torch.tensor([[0]]), capacity=torch.tensor([4]))
    samples.result(nobody, []).plot(tmp_path / "depot.png")


def test_cost_over_time_holds_the_last_cost_until_the_end():
    history: Any = plot_result(samples.square_result()).axes[1]
    (steps,) = history.lines
    assert steps.get_xydata().tolist() == [[0.5, 50], [1.25, 40], [2.0, 40]]
    assert steps.get_drawstyle() == "steps-post"
    assert history.get_title("left") == "cost over time: 20.00 % gained"


def test_titles():
    figure = plot_result(samples.square_result(), optimum=32)
    assert figure.axes[0].get_title("left") == "square: cost 40, 25.00 % above 32"
    result = samples.cross_result()
    figure = plot_solution(result.instance, result.solution)
    assert figure.axes[0].get_title("left") == "cross: cost 40"
    assert len(figure.axes) == 1  # no history to show
    assert plot_solution(result.instance, result.solution, "mine").axes[0].get_title("left") == "mine"


@pytest.mark.parametrize(
    ("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_endings(tmp_path, ending, magic):
    path = tmp_path / "new" / f"square.{ending}"
    samples.square_result().plot(path)
    assert path.read_bytes().startswith(magic)
    assert [*path.parent.iterdir()] == [path]


def test_unknown_ending(tmp_path):
    with pytest.raises(LehdError, match=r"unknown ending '\.bmp'; expected one of \.png, \.svg, \.pdf"):
        plot_result(samples.square_result(), tmp_path / "a.bmp")


@pytest.mark.parametrize(
    "coords",
    [
        [[5.0, 5.0]],
        [[5.0, 5.0]] * 4,
        [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]],
        [[1e9, 1e9], [1e9 + 1, 1e9]],
        [[0.0, 0.0], [1e-300, 0.0], [0.0, 1e-300]],
    ],
    ids=["one", "equal", "collinear", "far", "tiny"],
)
@NO_WARNINGS
def test_odd_shapes(tmp_path, coords):
    instance = Instances(torch.tensor([coords], dtype=torch.float64))
    samples.result(instance, list(range(len(coords)))).plot(tmp_path / "odd.png")


@NO_WARNINGS
def test_names_are_shown_as_they_are(tmp_path):
    """A dollar sign would start a formula, and a broken one would stop the drawing."""
    instance = samples.square()
    named = Instances(instance.coords, names=("cash $_{ $",), node_names=("$a_$", "東京", "c", "d"))
    samples.result(named, [0, 3, 1, 2]).plot(tmp_path / "named.svg")
    assert "cash $_{ $" in (tmp_path / "named.svg").read_text()


@pytest.mark.parametrize("vehicles", [False, True])
def test_large_instances_have_no_markers(tmp_path, vehicles):
    generator = torch.Generator().manual_seed(0)
    nodes = 20_000
    coords = torch.rand(1, nodes, 2, dtype=torch.float64, generator=generator)
    demands = torch.ones(1, nodes, dtype=torch.long)
    demands[0, 0] = 0
    instance = Instances(coords, distance.EUCLIDEAN)
    if vehicles:
        instance = Instances(coords, distance.EUCLIDEAN, demands=demands, capacity=torch.tensor([100]))
    figure: Any = plot_solution(instance, problems.of(instance).cheap_start(instance), path=tmp_path / "large.png")
    drawn = sum(
        len(artist.get_offsets()) for artist in figure.axes[0].collections if artist not in lines(figure.axes[0])
    )
    assert drawn == (1 if vehicles else 0)  # the depot alone


def test_of_very_many_routes_the_way_to_the_depot_is_not_dashed(monkeypatch):
    """Dashes shorter than a pixel would take most of the time. As much ink is used."""
    result = samples.cross_result()
    looks = []
    for most in (5, 4):
        monkeypatch.setattr(plot, "DASHED", most)
        _, legs = lines(plot_result(result).axes[0])
        ((_, dashes),) = legs.get_linestyle()
        inked = 1.0 if dashes is None else dashes[0] / sum(dashes)
        looks.append((dashes is None, legs.get_alpha() * inked, [leg.tolist() for leg in legs.get_segments()]))
    assert [solid for solid, _, _ in looks] == [False, True]
    assert looks[0][1] == pytest.approx(looks[1][1])
    assert looks[0][2] == looks[1][2]


def test_neighbouring_routes_never_share_a_colour():
    colours = _colours(200)
    assert all(a != b for a, b in itertools.pairwise(colours))
    assert len(set(colours)) == 30
    assert all(0 <= part <= 1 for colour in colours for part in colour)


def test_no_global_state():
    code = "import sys, lehd.plot; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
