"""What must hold for every problem."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from lehd.errors import InfeasibleError
from lehd.problems import of
from lehd.types import Rollout, Solution
from tests.builders import cvrp, generator, random_solution, tsp

makers = st.sampled_from([tsp, cvrp])
seeds = st.integers(0, 10_000)


@given(makers, st.integers(1, 30), seeds)
@settings(max_examples=60)
def test_randomise_keeps_cost_and_feasibility(make, size, seed):
    instances = make(2, size, seed)
    problem, solution = of(instances), random_solution(instances, seed)
    rewritten = problem.randomise(instances, solution, generator(seed))
    problem.check(instances, rewritten)
    torch.testing.assert_close(problem.cost(instances, rewritten), problem.cost(instances, solution))


@given(makers, st.integers(4, 30), seeds, st.data())
@settings(max_examples=60)
def test_sliced_states_equal_stepped_states(make, size, seed, data):
    instances = make(2, size, seed)
    problem, solution = of(instances), random_solution(instances, seed)
    partial = problem.cut(instances, solution, data.draw(st.integers(3, size)))
    state = partial.state()
    for step in range(partial.steps):
        sliced = partial.state(step)
        assert torch.equal(state.start, sliced.start)
        assert torch.equal(state.destination, sliced.destination)
        assert torch.equal(state.resources, sliced.resources)
        assert torch.equal(state.available.sort(1).values, sliced.available.sort(1).values)
        label = sliced.available[:, :1]
        slot = (state.available == label).long().argmax(1)
        allowed = problem.feasible(partial.instances, state)
        if allowed is not None:
            flag = partial.via_depot[:, step].long()
            assert allowed[torch.arange(2), slot, flag].all()
        state = problem.advance(partial.instances, state, slot, partial.via_depot[:, step])
    assert state.available.shape[1] == 0


@given(makers, st.integers(2, 20), st.integers(0, 5), seeds)
@settings(max_examples=40)
def test_places_to_spare_change_no_step(make, size, spare, seed):
    instances, draw = make(2, size, seed), generator(seed)
    problem = of(instances)
    state = problem.initial_state(instances)
    left = state.available.shape[1]
    anything = torch.zeros(2, spare, dtype=torch.long)
    roomy = replace(
        state, available=torch.cat([state.available, anything], 1), left=torch.full((2,), left, dtype=torch.long)
    )
    for count in range(left, 0, -1):
        allowed, found = problem.feasible(instances, state), problem.feasible(instances, roomy)
        if allowed is not None:
            assert torch.equal(found[:, :count], allowed)
            assert not found[:, count:].any()
        slot = torch.randint(0, count, (2,), generator=draw)
        flag = torch.full((2,), problem.actions_per_node == 2)
        state, roomy = (problem.advance(instances, each, slot, flag) for each in (state, roomy))
        assert torch.equal(roomy.left, torch.tensor([count - 1] * 2))
        assert torch.equal(roomy.available[:, : count - 1], state.available)
        assert torch.equal(roomy.start, state.start)
        assert torch.equal(roomy.resources, state.resources)


@given(makers, st.integers(4, 30), seeds, st.data())
@settings(max_examples=40)
def test_a_partial_solution_costs_its_share_and_splices_back(make, size, seed, data):
    """Replacing the suffix by another order changes the whole cost by exactly the change of the part."""
    instances = make(2, size, seed)
    problem, solution = of(instances), random_solution(instances, seed)
    partial = problem.cut(instances, solution, data.draw(st.integers(3, size)))
    state = partial.state()
    # Another feasible order: the label's nodes reversed, each served on its own where there is a depot.
    nodes = partial.path[:, 1:-1].flip(1)
    via = torch.full_like(partial.via_depot, problem.actions_per_node == 2)
    rollout = Rollout(nodes, via, torch.zeros(2))
    both = [(partial.path[:, 1:-1], partial.via_depot), (nodes, via)]
    part = [problem.path_cost(partial.instances, state.start, n, v, state.destination) for n, v in both]
    spliced = problem.splice(solution, partial, rollout, torch.tensor([True, False]))
    problem.check(instances, spliced)
    change = problem.cost(instances, spliced) - problem.cost(instances, solution)
    torch.testing.assert_close(change[0], part[1][0] - part[0][0])
    assert change[1] == 0


@given(makers, st.integers(8, 40), seeds, st.data())
@settings(max_examples=60)
def test_disjoint_parts_are_accepted_each_on_its_own(make, size, seed, data):
    """Any choice of parts can be replaced at once, and the whole cost changes by the sum of their changes."""
    instances = make(3, size, seed)
    problem, solution = of(instances), random_solution(instances, seed)
    length = data.draw(st.integers(3, size // 2))
    count = size // length
    partial = problem.cut(instances, solution, length, count)
    state = partial.state()
    nodes = partial.path[:, 1:-1].flip(1)
    via = torch.full_like(partial.via_depot, problem.actions_per_node == 2)
    rollout = Rollout(nodes, via, torch.zeros(len(nodes)))
    both = [(partial.path[:, 1:-1], partial.via_depot), (nodes, via)]
    before, after = (problem.path_cost(partial.instances, state.start, n, v, state.destination) for n, v in both)
    chosen = torch.rand(len(nodes), generator=generator(seed)) < 0.5
    spliced = problem.splice(solution, partial, rollout, chosen)
    problem.check(instances, spliced)
    real = chosen & (partial.offset >= 0)
    change = torch.where(real, after - before, 0.0).view(3, count).sum(1)
    torch.testing.assert_close(problem.cost(instances, spliced), problem.cost(instances, solution) + change)
    assert (partial.offset.view(3, count).amax(1) >= 0).all()


class Largest(TorchDispatchMode):
    """The most bytes that any tensor takes that is made meanwhile."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, torch.Tensor):
                self.bytes = max(self.bytes, each.untyped_storage().nbytes())
        return made


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_many_parts_take_no_more_memory_than_the_whole(make):
    instances = make(2, 2000)
    problem, solution = of(instances), random_solution(instances)
    with Largest() as largest:
        part = problem.cut(instances, solution, 20, 100)
    assert largest.bytes <= 2 * instances.coords.untyped_storage().nbytes()
    starts = part.offset[:, None] + torch.arange(part.steps)
    row = torch.arange(2).repeat_interleave(100)
    real = part.offset >= 0
    placed = part.nodes.gather(1, part.path[:, 1:-1])
    assert torch.equal(placed[real], solution.nodes[row[real, None], starts[real]])
    assert torch.equal(part.via_depot[real], solution.via_depot[row[real, None], starts[real]])


@given(makers, st.integers(1, 40), seeds)
@settings(max_examples=40)
def test_cheap_starts_are_feasible(make, size, seed):
    instances = make(2, size, seed)
    of(instances).check(instances, of(instances).cheap_start(instances))


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_check_finds_a_corrupted_last_row(make):
    instances = make(3, 10)
    problem, good = of(instances), random_solution(instances)
    problem.check(instances, good)
    nodes = good.nodes.clone()
    nodes[-1, -1] = nodes[-1, 0]
    missing = int(good.nodes[-1, -1])
    with pytest.raises(InfeasibleError, match=rf"instance 2: node {min(missing, int(nodes[-1, 0]))} is"):
        problem.check(instances, Solution(nodes, good.via_depot))
    with pytest.raises(InfeasibleError, match="shape"):
        problem.check(instances, Solution(good.nodes[:, :-1], good.via_depot[:, :-1]))
    nodes[-1, -1] = 99
    with pytest.raises(InfeasibleError, match="instance 2"):
        problem.check(instances, Solution(nodes, good.via_depot))


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_reversal_needs_symmetric_distances(make):
    """With one-way distances every rewriting must keep the direction of travel."""
    plain = make(1, 10)
    size = plain.num_nodes
    matrix = torch.rand(1, size, size, dtype=torch.float64, generator=generator(5))
    instances = make(1, 10, matrix=matrix)
    assert not instances.symmetric
    problem, solution = of(instances), random_solution(instances)
    for seed in range(20):
        rewritten = problem.randomise(instances, solution, generator(seed))
        torch.testing.assert_close(problem.cost(instances, rewritten), problem.cost(instances, solution))
