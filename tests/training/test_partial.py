import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
import torch

from lehd.data.dataset import Labelled
from lehd.decoding.view import see_nearest
from lehd.problems import PROBLEMS, of
from lehd.symmetry import turned_at_random
from lehd.training.mixture import Mixture
from lehd.training.partial import LENGTHS, VIEW_SIZES, decisions, sample_shape, sample_view
from lehd.training.supervised import cross_entropy
from tests.builders import cvrp, generator, random_solution, tiny_model, tsp


def test_the_eight_symmetries_all_occur_and_keep_distances():
    square = torch.tensor([[[0.1, 0.2], [0.9, 0.3], [0.4, 0.8]]]).expand(400, -1, -1)
    turned = turned_at_random(square, generator(0))
    assert len(torch.unique(turned.reshape(400, -1), dim=0)) == 8
    torch.testing.assert_close(torch.cdist(turned, turned), torch.cdist(square, square), atol=1e-6, rtol=1e-5)
    assert turned.min() >= 0
    assert turned.max() <= 1


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_the_labels_choice_is_allowed_and_in_slot_zero(make):
    instances = make(300, 12)
    problem = of(instances)
    batch = decisions(problem, instances, random_solution(instances), 9, 5, generator(1))
    assert batch.state.available.shape == (300, 5)
    allowed = problem.feasible(batch.instances, batch.state)
    assert batch.action.max() < problem.actions_per_node  # slot 0, with or without the depot
    if allowed is not None:
        assert allowed.flatten(1).gather(1, batch.action[:, None]).all()


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_batches_cover_all_lengths_and_cost_the_same(make):
    instances = make(50, 12)
    problem, rng = of(instances), random.Random(0)
    mixture = Mixture([Labelled(instances, random_solution(instances))], [1.0])
    seen, lengths, shapes = set(), set(), set()
    for _ in range(400):
        shape = sample_shape(problem, mixture.nodes, 1000, 6, rng)
        shapes.add(shape)
        batch = mixture.batch(problem, shape, generator(rng.getrandbits(30)))
        assert len(batch.action) == shape.rows
        available, nodes = batch.state.available.shape[1], batch.instances.num_nodes
        seen.add(available)
        lengths.add(nodes)
        work = len(batch.action) * (6 * (available + 2) + nodes)
        assert 5500 < work < 8000
    assert len(shapes) <= LENGTHS * len(seen)  # few enough to come again
    assert seen == set(range(2, 11) if problem.name == "TSP" else range(1, 13))
    # A CVRP part has the depot, the starting customer and up to 12 more; all 12 start at the depot.
    assert lengths <= set(range(4, 13) if problem.name == "TSP" else range(3, 14))


def test_lengths_are_spread_over_those_that_have_as_many_available_nodes():
    rng, lengths = random.Random(0), defaultdict(set)
    for _ in range(20_000):
        shape = sample_shape(PROBLEMS["TSP"], 100, 1000, 6, rng)
        lengths[shape.available].add(shape.length)
    assert set(lengths) == set(range(2, 99))
    for available, found in lengths.items():
        places = [available + 1, *sorted(found), 101]
        assert max(after - before for before, after in pairwise(places)) <= 2 * (99 - available) / LENGTHS + 2


def test_like_rrc_few_available_nodes_are_as_frequent_as_in_parts_of_all_lengths():
    """A part of w nodes has states with w - 2 available nodes and fewer: that is what RRC meets, with all lengths."""
    met = Counter(left for length in range(4, 101) for left in range(2, length - 1))
    rng = random.Random(0)
    shapes = [sample_shape(PROBLEMS["TSP"], 100, 1000, 6, rng, like_rrc=True) for _ in range(40_000)]
    drawn = Counter(shape.available for shape in shapes)
    assert set(drawn) == set(met)
    for first in range(2, 97, 19):
        some = range(first, first + 19)
        share = [sum(counts[number] for number in some) / counts.total() for counts in (met, drawn)]
        assert share[0] == pytest.approx(share[1], abs=0.01)
    assert {shape.length for shape in shapes if shape.available == 50} == {
        shape.length
        for shape in (sample_shape(PROBLEMS["TSP"], 100, 1000, 6, rng) for _ in range(20_000))
        if shape.available == 50
    }


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_cross_entropy_is_that_of_the_label(make):
    instances = make(20, 10)
    problem = of(instances)
    model = tiny_model(problem)
    batch = decisions(problem, instances, random_solution(instances), 8, 5, generator(0))
    with torch.no_grad():
        loss, right = cross_entropy(model, problem, batch)
    state = batch.state
    logits = model.score(
        model.encode(problem.features(batch.instances, True)), state, problem.context(batch.instances, state)
    )
    allowed = problem.feasible(batch.instances, state)
    for row in range(20):
        scores_of_all = logits[row].detach().flatten().double()
        scores = scores_of_all
        if allowed is not None:
            scores = scores[allowed[row].flatten()]
        label = scores_of_all[batch.action[row]]
        assert float(loss[row]) == pytest.approx(float(scores.logsumexp(0) - label), abs=1e-4)
        assert bool(right[row]) == bool(label >= scores.max())


def test_a_mixture_draws_every_label_and_each_file_by_its_share():
    instances = tsp(30, 6)
    labelled = Labelled(instances, random_solution(instances))
    few, many = labelled.rows(slice(5)), labelled.rows(slice(5, None))
    mixture = Mixture([few, many], [3.0, 1.0])
    drawn = mixture.draw(8000, generator(0)).instances.coords[:, 0]
    counts = (drawn[:, None] == instances.coords[None, :, 0]).all(2).sum(0)
    assert counts.sum() == 8000
    assert counts[:5].sum() / 8000 == pytest.approx(0.75, abs=0.03)
    assert (counts[:5] > 1000).all()
    assert (counts[5:] > 40).all()


def test_larger_problems_have_no_more_shapes():
    rng = random.Random(0)
    for nodes in (150, 200, 1000):
        shapes = [sample_shape(PROBLEMS["CVRP"], nodes, 100_000, 6, rng) for _ in range(20_000)]
        assert len(set(shapes)) <= LENGTHS * 100
        assert max(shape.available for shape in shapes) == nodes
        assert min(shape.available for shape in shapes) <= -(-nodes // 100)
        assert all(shape.available <= shape.length <= nodes for shape in shapes)


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_neighbourhoods_are_shown_as_decoding_shows_them(make):
    """The same loss as what decoding thinks of the label's next node, with as many nodes in view."""
    instances = make(60, 20)
    problem = of(instances)
    model, solution = tiny_model(problem), random_solution(instances)
    whole, part = (decisions(problem, instances, solution, 16, 13, generator(3), view) for view in (None, 5))
    assert part.state.available.shape == (60, 5)
    assert part.instances.num_nodes == 7
    assert torch.equal(part.action, whole.action)
    with torch.no_grad():
        loss, _ = cross_entropy(model, problem, part)
        seen = see_nearest(model, problem, whole.instances, whole.state, 5)
    row, place = (seen.slots == 0).nonzero().T  # where the label's next node is in view anyway
    assert 5 < len(row) < 60
    expected = seen.scores().flatten(1).log_softmax(1)[row, place * problem.actions_per_node + whole.action[row]]
    torch.testing.assert_close(-loss[row], expected, atol=1e-5, rtol=1e-5)
    # The others see it too, in place of the farthest: it is what slot 0 of the whole state stands for.
    directions = []
    for batch in (whole, part):
        coords, rows = batch.instances.coords.double(), torch.arange(60)
        way = coords[rows, batch.state.available[:, 0]] - coords[rows, batch.state.start]
        directions.append(way / way.norm(dim=1, keepdim=True))
    torch.testing.assert_close(*directions, atol=1e-4, rtol=1e-4)


def test_neighbourhoods_leave_out_some_nodes_and_have_few_shapes():
    rng, problem = random.Random(0), PROBLEMS["TSP"]
    assert sample_view(problem, 60, 1000, (50, 100), rng) is None
    for nodes, views in ((100, {50}), (200, {50, 100})):
        shapes = {sample_view(problem, nodes, 10_000, (50, 100), rng) for _ in range(2000)}
        assert {shape.view for shape in shapes} == views
        assert len(shapes) <= 2 * VIEW_SIZES * len(views)
        for shape in shapes:
            assert shape.view <= 0.7 * shape.available
            assert shape.available + problem.fixed_in_suffix <= shape.length <= nodes
            assert 9000 < shape.rows * (shape.seen + 2) <= 10_000
            assert shape.embedded == shape.seen + 2
        assert max(shape.available for shape in shapes) == nodes - problem.fixed_in_suffix
