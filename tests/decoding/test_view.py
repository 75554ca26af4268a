import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lehd.decoding.construct import construct
from lehd.decoding.rrc import random_reconstruct
from lehd.decoding.select import GREEDY, Beam
from lehd.decoding.stop import max_iterations
from lehd.decoding.view import embed, see_all, see_nearest
from lehd.model.checkpoint import load_model, shipped_weights
from lehd.problems import of
from lehd.problems.cvrp import CVRP
from lehd.problems.tsp import TSP, scattered
from lehd.types import State
from tests.builders import cvrp, generator, tiny_model, tsp


@given(st.sampled_from([tsp, cvrp]), st.integers(2, 25), st.integers(2, 12), st.integers(0, 1000), st.booleans())
@settings(max_examples=40)
def test_solutions_are_feasible_whatever_is_in_view(make, size, nearest, seed, limited):
    extra = {"vehicles": torch.tensor([4, 4])} if limited and make is cvrp else {}
    instances = make(2, size, seed, **extra)
    problem = of(instances)
    state = problem.initial_state(instances)
    for select in (GREEDY, Beam(2)):
        rollout = construct(tiny_model(problem, seed), problem, instances, state, select, nearest)
        complete = problem.complete(state.repeat(select.width), rollout)
        rows = torch.arange(2) * select.width
        problem.check(instances, complete.rows(rows))


def test_the_nearest_nodes_of_a_tsp_are_the_nearest():
    instances = tsp(4, 30)
    state = TSP().initial_state(instances, torch.tensor([0, 5, 9, 29]))
    slots = TSP().nearest(instances, state, 7)
    for row in range(4):
        away = (instances.coords[row] - instances.coords[row, state.start[row]]).norm(dim=1)
        expected = set(away.argsort()[1:8].tolist())
        assert set(state.available[row, slots[row]].tolist()) == expected


def from_start(instances, state):
    """How far every available node is."""
    start = instances.coords[state.instance, state.start][:, None]
    return (instances.coords[state.instance[:, None], state.available] - start).norm(dim=2)


def test_a_larger_view_of_a_tsp_has_landmarks():
    """One node in five, wherever it is; the others are the nearest."""
    instances = tsp(3, 2000)
    state = TSP().initial_state(instances)
    seen = state.available.gather(1, TSP().nearest(instances, state, 126))
    assert all(len(set(row)) == 126 for row in seen.tolist())
    by_distance = from_start(instances, state).argsort(dim=1)
    near = state.available.gather(1, by_distance[:, :126])
    for row in range(3):
        landmarks = set(seen[row].tolist()) - set(near[row].tolist())
        assert 13 <= len(landmarks) <= 39
        assert set(near[row, : 126 - len(landmarks) - 8].tolist()) <= set(seen[row].tolist())
        spread = instances.coords[row, sorted(landmarks)]
        assert (spread.amax(0) - spread.amin(0)).min() > 0.6


@pytest.mark.parametrize("steps", [20, 75, 113, 377, 755, 3774, 7549, 20_000])
def test_landmarks_are_scattered_on_lattices_too(steps):
    """Of whatever grid: in every quarter of it about as many as there should be."""
    grid = torch.arange(min(steps, 120), dtype=torch.float64) / steps
    numbers = scattered(torch.cartesian_prod(grid, grid)).view(len(grid), -1)
    half = len(grid) // 2
    for quarter in (numbers[:half, :half], numbers[:half, half:], numbers[half:, :half], numbers[half:, half:]):
        expected = 0.2 * quarter.numel()
        assert (quarter < 0.2).sum().item() == pytest.approx(expected, abs=5 * expected**0.5)
    lines = (numbers < 0.2).double()
    assert lines.mean(0).std() < 0.15
    assert lines.mean(1).std() < 0.15


def test_landmarks_stay_until_they_are_visited():
    instances = tsp(1, 1500)
    state = TSP().initial_state(instances)
    before = set()
    for left in (1499, 1400, 1000, 500):
        state = replace(state, available=state.available[:, -left:])
        slots = TSP().nearest(instances, state, 126)
        far = from_start(instances, state).gather(1, slots) > 0.4
        now = set(state.available.gather(1, slots)[far].tolist())
        assert before & set(state.available[0].tolist()) <= now
        assert len(now) > 8
        before = now


def test_where_many_nodes_stand_in_one_place_they_do_not_hide_the_near_ones():
    """They are landmarks all together, or none of them is."""
    places = torch.rand(20, 2, dtype=torch.float64, generator=generator(3))
    instances = replace(tsp(1, 2000), coords=places.repeat(100, 1)[None])
    state = TSP().initial_state(instances)
    for _ in range(20):
        state = replace(state, start=state.start + 1)
        slots = TSP().nearest(instances, state, 126)
        far = from_start(instances, state)
        assert (far.gather(1, slots) == 0).sum() > 95 - 2
        assert far.gather(1, slots).isfinite().all()


@pytest.mark.parametrize("count", [40, 126])
def test_what_a_tsp_sees_does_not_depend_on_where_it_stands(count):
    """In training the next nodes of the label come first, and a recorded step has room to spare."""
    instances = tsp(2, 900)
    state = TSP().initial_state(instances)
    order = torch.randperm(899, generator=generator(1))
    shuffled = replace(state, available=state.available[:, order])
    spare = replace(
        state,
        available=torch.cat([state.available, state.available[:, :50]], 1),
        left=torch.full_like(state.start, 899),
    )
    wanted, *others = (
        each.available.gather(1, TSP().nearest(instances, each, count)).sort(1).values
        for each in (state, shuffled, spare)
    )
    assert all(torch.equal(seen, wanted) for seen in others)


def test_a_cvrp_sees_its_neighbours_and_where_routes_may_begin():
    """A cluster of customers around the last one must not hide those along the way home and at the depot."""
    near = 1 + 0.01 * torch.rand(50, 2, dtype=torch.float64, generator=generator(0))
    along = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    at_depot = torch.tensor([[-0.01, 0.02]], dtype=torch.float64)
    coords = torch.cat([torch.zeros(1, 2, dtype=torch.float64), near, along, at_depot])[None]
    instances = replace(cvrp(1, 52), coords=coords)
    state = State(
        instance=torch.tensor([0]),
        start=torch.tensor([1]),
        destination=torch.tensor([0]),
        available=torch.arange(2, 53)[None],
        resources=torch.tensor([[5, 100]]),
    )
    seen = state.available[0, CVRP().nearest(instances, state, 20)[0]].tolist()
    assert len(set(seen)) == 20
    assert {51, 52} <= set(seen)


@given(st.integers(2, 40), st.integers(1, 20), st.integers(0, 1000), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_what_a_cvrp_sees_does_not_depend_on_where_it_stands(customers, count, seed, grid, at_depot):
    """In training the next customers of the label come first."""
    draw = generator(seed)
    instances = cvrp(1, customers, seed)
    if grid:  # many are equally far, but no two in one place
        places = torch.randperm(100, generator=draw)[: customers + 1]
        instances = replace(instances, coords=torch.stack([places // 10, places % 10], 1)[None].double())
    state = CVRP().initial_state(instances)
    if not at_depot:
        state = CVRP().advance(instances, state, torch.tensor([0]), torch.tensor([True]))
    shuffled = replace(state, available=state.available[:, torch.randperm(state.available.shape[1], generator=draw)])
    seen, again = (each.available.gather(1, CVRP().nearest(instances, each, count)) for each in (state, shuffled))
    assert torch.equal(seen, again)


def test_a_far_destination_is_moved_to_the_border():
    coords = torch.tensor([[[2.0, 2.0], [50.0, -7.0], [3.0, 4.0], [1.0, 2.5]]])
    scaled = TSP().neighbourhood_box(coords)[0]
    torch.testing.assert_close(scaled, torch.tensor([[0.5, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.25]]))


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_a_view_of_everything_scores_like_the_whole(make):
    """With all nodes near and the destination among them, the neighbourhood is the instance itself, renumbered."""
    instances = make(3, 9)
    problem = of(instances)
    model = tiny_model(problem)
    state = problem.initial_state(instances)
    if make is tsp:  # a box that does not depend on the destination being in it
        coords = instances.coords.clone()
        coords[:, 1], coords[:, 2] = 0.0, 1.0
        instances = replace(instances, coords=coords)
    seen = see_nearest(model, problem, instances, state, 100)
    logits, slots = seen.scores(), seen.slots
    whole = model.score(model.encode(problem.features(instances, True)), state, problem.context(instances, state))
    assert logits.shape == whole.shape
    # The starting node stands twice in a neighbourhood that starts at its destination: scores are close, not equal.
    again = logits.scatter(1, slots[..., None].expand_as(logits), logits)
    allowed = again > -torch.inf
    torch.testing.assert_close(again[allowed], whole[allowed], atol=0.2, rtol=0.2)


def test_looking_around_solves_large_instances_well():
    """300 nodes with 60 in view: not far from what insertion and a whole view give."""
    instances = tsp(2, 300, seed=4)
    problem = of(instances)
    model = load_model(shipped_weights("TSP"))
    state = problem.initial_state(instances)
    seen = problem.complete(state, construct(model, problem, instances, state, nearest=60))
    problem.check(instances, seen)
    cost = problem.cost(instances, seen)
    assert (cost < 0.97 * problem.cost(instances, problem.cheap_start(instances))).all()
    better = random_reconstruct(
        model, problem, instances, seen, max_iterations(2), random.Random(0), longest=80, coverage=300, nearest=40
    )
    assert (problem.cost(instances, better) <= cost).all()


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_small_states_are_seen_whole(make):
    instances = make(2, 15)
    problem = of(instances)
    state, model = problem.initial_state(instances), tiny_model(problem)
    whole = construct(model, problem, instances, state)
    near = construct(model, problem, instances, state, nearest=15)
    assert torch.equal(whole.nodes, near.nodes)


def padded(state, spare):
    """The same with so many more places, where any node stands but none is."""
    anything = torch.randint(0, 2, (len(state.start), spare), generator=generator(spare))
    left = torch.full_like(state.start, state.available.shape[1])
    return replace(state, available=torch.cat([state.available, anything], 1), left=left)


def limited(size, customers):
    """With so few vehicles that what is needed later decides what is allowed now."""
    instances = cvrp(size, customers)
    return replace(instances, vehicles=-(-instances.demands.sum(1) // 20))


@pytest.mark.parametrize("spare", [0, 1, 9])
@pytest.mark.parametrize("make", [tsp, cvrp, limited])
def test_places_without_a_node_change_nothing(make, spare):
    instances = make(4, 12)
    problem = of(instances)
    model = tiny_model(problem, sharpen=0.5)
    whole = problem.initial_state(instances)
    state = problem.advance(instances, whole, torch.tensor([3, 0, 10, 5]), torch.ones(4, dtype=torch.bool))
    left = state.available.shape[1]
    embeddings = embed(model, problem, instances)
    with torch.no_grad():
        wanted = see_all(model, problem, instances, embeddings, state).scores()
        found = see_all(model, problem, instances, embeddings, padded(state, spare)).scores()
        torch.testing.assert_close(found[:, :left], wanted, atol=1e-5, rtol=1e-5)
        assert (found[:, left:] == -torch.inf).all()
        for count in (1, 4, left, left + 1, left + 20):
            near = see_nearest(model, problem, instances, state, count)
            some = see_nearest(model, problem, instances, padded(state, spare), count)
            shown = min(count, left)
            assert torch.equal(some.slots[:, :shown], near.slots)
            torch.testing.assert_close(some.scores()[:, :shown], near.scores(), atol=1e-5, rtol=1e-5)
            assert some.scores().shape[1] == min(count, left + spare)
            assert (some.scores()[:, shown:] == -torch.inf).all()


def test_more_nodes_than_in_training_are_seen_as_sharply_with_places_to_spare():
    instances = cvrp(2, 150)
    problem, state = of(instances), of(instances).initial_state(instances)
    model = tiny_model(problem, sharpen=0.5)
    embeddings = embed(model, problem, instances)
    with torch.no_grad():
        wanted = see_all(model, problem, instances, embeddings, state).scores()
        found = see_all(model, problem, instances, embeddings, padded(state, 40)).scores()
    torch.testing.assert_close(found[:, :150], wanted, atol=1e-5, rtol=1e-5)
