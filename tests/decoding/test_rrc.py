import itertools
import random
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lehd.decoding import rrc
from lehd.decoding.construct import construct
from lehd.decoding.rrc import random_reconstruct
from lehd.decoding.stop import Stop, max_iterations
from lehd.model.checkpoint import load_model, shipped_weights
from lehd.problems import of
from lehd.symmetry import all_views
from lehd.types import Instances
from tests.builders import cvrp, generator, random_solution, tiny_model, tsp


@given(
    st.sampled_from([tsp, cvrp]),
    st.integers(1, 30),
    st.integers(0, 1000),
    st.booleans(),
    st.sampled_from([0, 8, 100]),
    st.booleans(),
)
@settings(max_examples=60)
def test_no_iteration_makes_any_solution_worse(make, size, seed, asymmetric, coverage, turn):
    instances = make(3, size, seed)
    if asymmetric:
        nodes = instances.num_nodes
        instances = make(
            3, size, seed, matrix=torch.rand(3, nodes, nodes, dtype=torch.float64, generator=generator(seed))
        )
    problem, solution = of(instances), random_solution(instances, seed)
    costs = [problem.cost(instances, solution)]

    def watch(iteration, solution):
        problem.check(instances, solution)
        costs.append(problem.cost(instances, solution))

    random_reconstruct(
        tiny_model(problem, seed),
        problem,
        instances,
        solution,
        max_iterations(8),
        random.Random(seed),
        coverage=coverage,
        on_iteration=watch,
        turn=turn,
    )
    for before, after in itertools.pairwise(costs):
        assert (after <= before + 1e-9).all()


def run_with_detours(instances, solution, stop, coverage=0, seed=0):
    """The solution at the end, and the costs after every iteration."""
    problem, costs = of(instances), []

    def watch(iteration, solution):
        problem.check(instances, solution)
        costs.append(problem.cost(instances, solution))

    end = random_reconstruct(
        tiny_model(problem, seed), problem, instances, solution, stop, random.Random(seed),
        coverage=coverage, on_iteration=watch, detours=True,
    )  # fmt: skip
    return end, torch.stack([problem.cost(instances, solution), *costs])


@pytest.mark.parametrize("coverage", [0, 40])
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_detours_end_with_the_shortest_solution_there_was(make, coverage, monkeypatch):
    monkeypatch.setattr(rrc, "STUCK", 2)
    monkeypatch.setattr(rrc, "DETOUR", 5.0)
    instances = make(4, 25)
    stop = Stop(iterations=40, deadline=time.perf_counter() + 1e6)
    end, costs = run_with_detours(instances, random_solution(instances), stop, coverage)
    assert (costs.diff(dim=0) > 1e-9).any(0).all()  # all of them went by longer ones
    torch.testing.assert_close(of(instances).cost(instances, end), costs.min(0).values)
    assert (costs[-1] > costs.min(0).values).any()


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_there_are_no_detours_without_a_time_limit(make, monkeypatch):
    monkeypatch.setattr(rrc, "STUCK", 0)
    monkeypatch.setattr(rrc, "DETOUR", 5.0)
    instances = make(4, 25)
    _, costs = run_with_detours(instances, random_solution(instances), max_iterations(20))
    assert (costs.diff(dim=0) <= 1e-9).all()


def test_a_part_may_be_longer_where_the_search_is_stuck_and_the_less_the_less_time_is_left():
    class Clock(Stop):
        left = 10.0

        def time_left(self):
            return self.left

    instances, clock = tsp(2, 50), Clock(deadline=0.0)
    solution, problem = random_solution(instances), of(instances)
    best = rrc.Best(problem, instances, solution, clock)
    best.since = torch.tensor([rrc.STUCK - 1, rrc.STUCK])
    for clock.left in (10.0, 5.0, 0.0, -1.0):
        allowed = best.allowance(20_000, clock, generator(0)).view(2, -1)
        mean = rrc.DETOUR * problem.cost(instances, solution)[1] / 50 * max(clock.left, 0) / 10
        assert (allowed[0] == 0).all()
        torch.testing.assert_close(allowed[1].mean(), mean, rtol=0.03, atol=0)
    best.note(problem, instances, solution)
    assert best.since.tolist() == [rrc.STUCK, rrc.STUCK + 1]
    best.cost = best.cost + torch.tensor([0.0, 1.0])
    best.note(problem, instances, solution)
    assert best.since.tolist() == [rrc.STUCK + 1, 0]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_a_trained_model_improves_a_random_start(make, parallel):
    instances = make(8, 20)
    problem, solution = of(instances), random_solution(instances)
    model = load_model(shipped_weights(problem.name))
    better = random_reconstruct(
        model, problem, instances, solution, max_iterations(20), random.Random(0), coverage=100 if parallel else 0
    )
    assert (problem.cost(instances, better) < 0.9 * problem.cost(instances, solution)).all()


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_parts_are_shown_in_all_eight_ways_and_measured_where_they_are(make):
    instances = make(40, 12)
    problem, solution = of(instances), random_solution(instances)
    model = load_model(shipped_weights(problem.name))
    shown, ways = [], set()

    def construct_part(parts, state, nearest, stop):
        shown.append(parts)
        return construct(model, problem, parts, state)

    def run(turn):
        stop, rng = max_iterations(6), random.Random(0)
        return random_reconstruct(
            model, problem, instances, solution, stop, rng, construct_part=construct_part, turn=turn
        )

    upright = run(False)
    for parts in shown:
        assert parts.sites is None
    shown.clear()
    turned = run(True)
    for parts in shown:
        for seen, real in zip(parts.coords, parts.sites):
            found = [
                way for way, view in enumerate(all_views(Instances(real[None])).coords) if torch.allclose(view, seen)
            ]
            assert len(found) == 1
            ways.add(found[0])
    assert ways == set(range(8))
    problem.check(instances, turned)
    for better in (upright, turned):
        assert (problem.cost(instances, better) < 0.9 * problem.cost(instances, solution)).all()


def test_iterations_that_reach_some_of_a_tour_follow_each_other():
    """Three times 40 of 120 nodes: each node is looked at once before any is looked at again."""
    instances = tsp(2, 120)
    problem, solution, seen = of(instances), random_solution(instances), []

    class Watched(type(problem)):
        def cut(self, instances, solution, length, count=1):
            part = super().cut(instances, solution, length, count)
            seen.append(part.nodes.view(len(solution.nodes), -1))
            return part

    def sweeps(longest, coverage, iterations):
        seen.clear()
        random_reconstruct(
            tiny_model(problem), Watched(), instances, solution, max_iterations(iterations), random.Random(0),
            longest=longest, coverage=coverage,
        )  # fmt: skip

    sweeps(4, 40, 6)
    for first in (0, 3):
        for row in range(2):
            nodes = torch.cat([part[row] for part in seen[first : first + 3]])
            assert sorted(nodes.tolist()) == list(range(120))
    assert seen[0].tolist() != seen[3].tolist()
    sweeps(7, 40, 21)  # of several lengths: 35 to 40 nodes at a time, so that three of them fit
    for first in range(0, 21, 3):
        for row in range(2):
            nodes = torch.cat([part[row] for part in seen[first : first + 3]]).tolist()
            assert len(set(nodes)) == len(nodes) > 100


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_the_same_seed_gives_the_same_solution(make):
    instances = make(3, 15)
    problem, solution = of(instances), random_solution(instances)
    runs = [
        random_reconstruct(tiny_model(problem), problem, instances, solution, max_iterations(10), random.Random(seed))
        for seed in (4, 4, 5)
    ]
    assert torch.equal(runs[0].nodes, runs[1].nodes)
    assert not torch.equal(runs[0].nodes, runs[2].nodes)


def test_the_longest_length_is_kept(monkeypatch):
    instances = tsp(2, 30)
    problem, lengths = of(instances), []
    cut = problem.cut

    def spy(instances, solution, length, count):
        lengths.append(length)
        return cut(instances, solution, length, count)

    monkeypatch.setattr(problem, "cut", spy, raising=False)
    solution = random_solution(instances)
    random_reconstruct(
        tiny_model(problem), problem, instances, solution, max_iterations(80), random.Random(0), longest=9
    )
    assert (min(lengths), max(lengths)) == (4, 9)
    lengths.clear()
    random_reconstruct(tiny_model(problem), problem, instances, solution, max_iterations(200), random.Random(0))
    assert (min(lengths), max(lengths)) == (4, 30)


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_pieces_are_kept_of_many_parts_at_once_and_not_of_the_papers_one(make, monkeypatch):
    instances = make(3, 30)
    problem, solution, asked = of(instances), random_solution(instances), []
    best_of_both = problem.best_of_both

    def spy(partial, rollout):
        asked.append(partial)
        return best_of_both(partial, rollout)

    monkeypatch.setattr(problem, "best_of_both", spy, raising=False)

    def run(**options):
        asked.clear()
        stop = max_iterations(5)
        random_reconstruct(tiny_model(problem), problem, instances, solution, stop, random.Random(0), **options)
        return len(asked)

    assert run() == run(coverage=30, pieces=False) == 0
    assert run(coverage=30) == run(pieces=True) == 5


def test_out_of_time_returns_what_there_is():
    instances = tsp(2, 12)
    problem, solution = of(instances), random_solution(instances)
    same = random_reconstruct(tiny_model(problem), problem, instances, solution, Stop(deadline=0.0), random.Random(0))
    assert torch.equal(same.nodes, solution.nodes)


def test_a_fleet_limit_is_not_given_up_for_cost():
    """A start within the limit stays within it; a start beyond it may only come closer."""
    for seed in range(6):
        instances = cvrp(4, 15, seed, capacity=25)
        problem, solution = of(instances), random_solution(instances, seed)
        limit = solution.via_depot.sum(1) - torch.tensor([0, 1, 2, 3])
        limited = cvrp(4, 15, seed, capacity=25, vehicles=limit.clamp(min=1))
        start = problem.routes_too_many(limited, solution)
        for parallel in (False, True):
            end = random_reconstruct(
                tiny_model(problem, seed),
                problem,
                limited,
                solution,
                max_iterations(30),
                random.Random(seed),
                coverage=100 if parallel else 0,
            )
            assert (problem.routes_too_many(limited, end) <= start).all()
