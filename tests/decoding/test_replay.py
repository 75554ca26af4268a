"""Recorded constructions: the same as others, whatever is put in. Doing it again stands in for a GPU's recording."""

import random
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
    """Keeps the work, and counts."""

    made = 0

    def __init__(self, work):
        work()
        self.replay = work
        DoAgain.made += 1


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_what_is_replayed_is_what_would_be_constructed(make):
    instances = make(5, 12)
    problem = of(instances)
    model = tiny_model(problem)
    replays, before = Replays(model, problem, DoAgain), DoAgain.made
    kept = []
    for turn in range(8):
        solution = problem.randomise(instances, random_solution(instances), generator(turn))
        part = problem.cut(instances, solution, 6 + turn % 2)
        state = part.state()
        found = replays.construct(part.instances, state, None, None)
        wanted = construct(model, problem, part.instances, state)
        assert torch.equal(found.nodes, wanted.nodes)
        assert torch.equal(found.via_depot, wanted.via_depot)
        kept.append((found.nodes, wanted.nodes))
    # A customer before the part may be there or not (CVRP), so there may be more shapes than lengths.
    assert before < DoAgain.made <= before + 4
    assert all(torch.equal(one, two) for one, two in kept)  # later replays leave earlier answers alone


def test_few_lengths_are_spread_from_the_shortest_to_the_longest():
    assert few_lengths(4, 9) == [4, 5, 6, 7, 8, 9]
    many = few_lengths(4, 1000)
    assert (len(many), many[0], many[-1]) == (FEW, 4, 1000)
    assert max(b - a for a, b in pairwise(many)) <= 44


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
