"""The eight views of an instance, and construction by all of them."""

import numpy as np
import pytest
import torch

import lehd
from lehd.decoding.construct import construct
from lehd.decoding.select import Beam
from lehd.decoding.view import embed, see_all
from lehd.errors import LehdError
from lehd.problems import of
from lehd.symmetry import COUNT, all_views, in_all_views
from tests.builders import cvrp, tiny_model, tsp

MAKES = [tsp, cvrp]


def test_views_are_all_different_and_keep_every_distance():
    instances = tsp(2, 6)
    views = all_views(instances)
    assert len({tuple(view.flatten().tolist()) for view in views.coords[:COUNT]}) == COUNT
    assert torch.equal(views.coords[0], instances.coords[0])
    for row, view in enumerate(views.coords):
        torch.testing.assert_close(torch.cdist(view, view), torch.cdist(*[instances.coords[row // COUNT]] * 2))


@pytest.mark.parametrize("make", MAKES)
def test_a_view_is_one_instance_with_its_own_row(make):
    instances = make(3, 7)
    problem = of(instances)
    state = problem.initial_state(instances)
    views, rows = all_views(instances), in_all_views(state)
    assert rows.instance.tolist() == list(range(3 * COUNT))
    assert torch.equal(problem.context(views, rows), problem.context(instances, state).repeat_interleave(COUNT, 0))


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("nearest", [None, 5])
def test_averaged_scores_do_not_care_how_the_instance_is_turned(make, nearest):
    """The one property that the model itself lacks."""
    instances = make(1, 14, seed=4)
    problem = of(instances)
    model, views = tiny_model(problem), all_views(instances)
    state = problem.initial_state(views)
    rollout = construct(model, problem, views, state, nearest=nearest, views=COUNT)
    assert (rollout.nodes == rollout.nodes[0]).all()
    torch.testing.assert_close(rollout.log_probability, rollout.log_probability[:1].expand(COUNT))
    if nearest is None:
        embeddings = embed(model, problem, views, 1)
        alone = see_all(model, problem, views, embeddings, state).scores().flatten(1).log_softmax(1)
        assert not torch.allclose(alone, alone[:1].expand_as(alone))
        mean = see_all(model, problem, views, embed(model, problem, views, COUNT), state, COUNT).scores()
        allowed = mean[0].flatten().isfinite()
        torch.testing.assert_close(mean[0].flatten()[allowed], alone.mean(0)[allowed])


@pytest.mark.parametrize("make", MAKES)
def test_the_best_view_is_at_least_as_short_as_each(make):
    instances = make(4, 15, seed=1)
    model = tiny_model(of(instances))
    plain, best = (lehd.solve(instances, model=model, rrc=0, views=views) for views in (None, "best"))
    assert all(b.cost <= p.cost + 1e-12 for b, p in zip(best, plain, strict=True))
    assert sum(b.cost < p.cost for b, p in zip(best, plain, strict=True)) >= 1


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("views", ["average", "best"])
@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"sample": 2}, {"nearest": 4}, {"rrc": 3}])
def test_views_go_with_every_other_way_to_construct(make, views, options):
    instances = make(2, 9)
    results = lehd.solve(instances, model=tiny_model(of(instances)), views=views, **{"rrc": 0, **options})
    assert [len(result.solution.nodes[0]) for result in results] == [9, 9]  # checked when they left


def test_averages_go_with_a_beam():
    instances = tsp(2, 8)
    problem = of(instances)
    rollout = construct(tiny_model(problem), problem, instances, problem.initial_state(instances), Beam(2), views=COUNT)
    assert rollout.nodes.shape == (4, 7)


def test_distances_of_a_matrix_decide_which_view_is_best():
    rng = np.random.default_rng(0)
    matrix = rng.integers(1, 100, (9, 9))
    result = lehd.solve(matrix=matrix, rrc=0, views="best")
    assert result.cost == sum(matrix[a, b] for a, b in zip(result.tour, [*result.tour[1:], result.tour[0]]))


def test_other_words_are_refused():
    with pytest.raises(LehdError, match="views = 'mean': expected average or best"):
        lehd.solve(tsp(1, 5), views="mean")
