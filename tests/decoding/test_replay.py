"""Recorded steps: the same as others, whatever is put in. Doing it again stands in for a GPU's recording."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from lehd.decoding.construct import construct
from lehd.decoding.replay import Replays
from lehd.decoding.rrc import FEW, few_lengths, random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.problems import of
from tests.builders import cvrp, generator, random_solution, tiny_model, tsp


class DoAgain:
    """Keeps the work, and counts. Like a GPU's recording it does nothing before it is replayed."""

    def __init__(self):
        self.made = self.replayed = 0

    def __call__(self, work):
        self.made += 1
        return _Again(self, work)


class _Again:
    def __init__(self, counts, work):
        self.counts, self.work = counts, work

    def replay(self):
        self.counts.replayed += 1
        self.work()


def with_vehicles(size, customers):
    instances = cvrp(size, customers)
    return replace(instances, vehicles=torch.full((size,), customers))


@pytest.mark.parametrize("nearest", [None, 4])
@pytest.mark.parametrize("make", [tsp, cvrp, with_vehicles])
def test_what_is_replayed_is_what_would_be_constructed(make, nearest):
    instances = make(5, 12)
    problem = of(instances)
    model, counts = tiny_model(problem), DoAgain()
    replays = Replays(model, problem, counts)
    kept = []
    for turn, length in enumerate([6, 7, 5, 12, 6, 9, 12, 4, 11]):
        solution = problem.randomise(instances, random_solution(instances), generator(turn))
        part = problem.cut(instances, solution, length)
        state = part.state()
        found = replays.construct(part.instances, state, nearest, None)
        wanted = construct(model, problem, part.instances, state, nearest=nearest)
        assert torch.equal(found.nodes, wanted.nodes)
        assert torch.equal(found.via_depot, wanted.via_depot)
        torch.testing.assert_close(found.log_probability, wanted.log_probability)
        kept.append((found.nodes, wanted.nodes))
    assert all(torch.equal(one, two) for one, two in kept)  # later replays leave earlier answers alone
    # Steps are recorded by how many nodes are left, whatever the length; once more after the desk had to grow.
    assert 0 < counts.made <= 2 * 2 * 12
    assert counts.replayed > counts.made


def test_a_larger_problem_gets_a_larger_desk():
    model, counts = tiny_model(of(tsp(2, 5))), DoAgain()
    replays = Replays(model, of(tsp(2, 5)), counts)
    for size in (5, 5, 5, 40, 40, 40, 5, 20):
        instances = tsp(2, size)
        state = of(instances).initial_state(instances)
        found = replays.construct(instances, state, None, None)
        assert torch.equal(found.nodes, construct(model, of(instances), instances, state).nodes)
    assert len(replays.desks) == 1


def test_few_lengths_are_spread_from_the_shortest_to_the_longest():
    assert few_lengths(4, 9) == [4, 5, 6, 7, 8, 9]
    many = few_lengths(4, 1000)
    assert (len(many), many[0], many[-1]) == (FEW, 4, 1000)
    assert max(b - a for a, b in pairwise(many)) <= 44


def test_what_keeps_a_gpu_busy_anyway_is_not_recorded(monkeypatch):
    monkeypatch.setattr("lehd.decoding.replay.LARGE", 60)
    counts, instances = DoAgain(), tsp(5, 14)
    problem = of(instances)
    model = tiny_model(problem)
    replays = Replays(model, problem, counts)
    state = problem.initial_state(instances)
    for _ in range(3):
        found = replays.construct(instances, state, None, None)
        assert torch.equal(found.nodes, construct(model, problem, instances, state).nodes)
    assert (counts.made, replays.desks) == (0, {})


def test_room_for_the_largest_is_made_at_once():
    replays = Replays(tiny_model(of(tsp(2, 5))), of(tsp(2, 5)), DoAgain(), nodes=40)
    for size in (5, 40, 20):
        instances = tsp(2, size)
        replays.construct(instances, of(instances).initial_state(instances), None, None)
    (desk,) = replays.desks.values()
    assert desk.places == 40
    assert desk.seen == set(range(1, 40))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("sizes", [{}, {"dim": 128, "heads": 8, "feed_forward": 128}])  # without and with fused kernels
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_on_a_gpu_recorded_steps_give_what_others_do(make, sizes):
    instances = make(20, 30).to("cuda")
    problem = of(instances)
    model = tiny_model(problem, **sizes).to("cuda")
    replays = Replays(model, problem)
    for turn, length in enumerate([6, 7, 30, 12, 6, 29, 30, 4, 11, 30]):
        solution = problem.randomise(
            instances, random_solution(make(20, 30)).to("cuda"), torch.Generator("cuda").manual_seed(turn)
        )
        part = problem.cut(instances, solution, length)
        found = replays.construct(part.instances, part.state(), None, None)
        wanted = construct(model, problem, part.instances, part.state())
        assert torch.equal(found.nodes, wanted.nodes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_on_a_gpu_rrc_never_gets_worse_and_is_the_same_again(make):
    instances = make(20, 30).to("cuda")
    problem = of(instances)
    model = tiny_model(problem).to("cuda")
    start = random_solution(make(20, 30)).to("cuda")
    runs = []
    for coverage in (0, 0, 30, 30):
        costs = [problem.cost(instances, start)]
        random_reconstruct(
            model, problem, instances, start, max_iterations(120), random.Random(1), coverage=coverage,
            on_iteration=lambda _, solution: costs.append(problem.cost(instances, solution)),  # noqa: B023
        )  # fmt: skip
        assert all((after <= before).all() for before, after in pairwise(costs))
        runs.append(costs[-1])
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[2], runs[3])
