"""Of two ways to decide a partial solution the best one that can be put together: held against trying everything."""

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lehd.problems import of
from lehd.problems.stretches import better_stretches
from lehd.types import Rollout
from tests.builders import cvrp, generator, random_solution, tsp


def muddled(draw, size):
    """0 … size - 1 with the same ends, some stretches of it reversed or shuffled."""
    order = list(range(size))
    for _ in range(draw.randint(1, 4)):
        first, last = sorted(draw.randint(1, size - 2) for _ in range(2))
        stretch = order[first : last + 1]
        draw.shuffle(stretch)
        order[first : last + 1] = stretch if draw.random() < 0.5 else order[first : last + 1][::-1]
    return order


def all_mixtures(order, both_ways):
    """Every path that comes of exchanging stretches between the same two ends, again and again."""
    size = len(order)
    stretches = []
    for first, last in itertools.combinations(range(size), 2):
        inside = sorted(order[first : last + 1])
        ends = [order[first], order[last]]
        alike = ends == [inside[0], inside[-1]] or (both_ways and ends == [inside[-1], inside[0]])
        if inside[-1] - inside[0] == last - first and alike:
            stretches.append((order[first : last + 1], inside))
    found, todo = {tuple(range(size)), tuple(order)}, [tuple(range(size)), tuple(order)]
    while todo:
        path = todo.pop()
        for ways in stretches:
            places = [place for place in range(size) if path[place] in ways[0]]
            if places[-1] - places[0] != len(places) - 1:
                continue
            for way in ways:
                for visits in (way, way[::-1]) if both_ways else (way,):
                    if [visits[0], visits[-1]] != [path[places[0]], path[places[-1]]]:
                        continue
                    other = (*path[: places[0]], *visits, *path[places[-1] + 1 :])
                    if other not in found:
                        found.add(other)
                        todo.append(other)
    return found


@given(st.integers(3, 10), st.integers(0, 10_000), st.booleans())
@settings(max_examples=300, deadline=None)
def test_stretches_are_the_best_that_can_be_put_together(size, seed, symmetric):
    order = muddled(random.Random(seed), size)
    distance = torch.rand(size, size, generator=generator(seed), dtype=torch.float64)
    if symmetric:
        distance = distance + distance.T

    def legs(path):
        return distance[path[:, :-1], path[:, 1:]]

    both = torch.tensor([list(range(size)), order])
    best = better_stretches(both[1:], legs(both[:1]), legs(both[1:]), symmetric)
    everything = [legs(torch.tensor([path])).sum().item() for path in all_mixtures(order, symmetric)]
    assert legs(best).sum().item() == pytest.approx(min(everything))
    assert tuple(best[0].tolist()) in all_mixtures(order, symmetric)


def test_rows_do_not_meet_and_rounded_costs_count_exactly():
    rows = [muddled(random.Random(seed), 40) for seed in range(30)]
    order, old = torch.tensor(rows), torch.arange(40).expand(30, -1)
    coords = (1000 * torch.rand(30, 40, 2, generator=generator(1), dtype=torch.float64)).round()
    distance = torch.cdist(coords, coords).round().long()

    def legs(path):
        return distance[torch.arange(len(path))[:, None], path[:, :-1], path[:, 1:]]

    together = better_stretches(order, legs(old), legs(order), True)
    for row in range(30):
        ends = slice(row, row + 1)
        assert torch.equal(better_stretches(order[ends], legs(old)[ends], legs(order)[ends], True), together[ends])
    cost, whole = legs(together).sum(1), torch.minimum(legs(old).sum(1), legs(order).sum(1))
    assert (cost <= whole).all()
    assert (cost < whole).any()


def test_what_costs_the_same_stays_as_it_was():
    order = torch.tensor([[0, 2, 1, 3, 4]])
    legs = torch.ones(1, 4, dtype=torch.long)
    assert better_stretches(order, legs, legs, True).tolist() == [[0, 1, 2, 3, 4]]


def other_way(instances, partial, seed):
    """Another feasible way to decide each partial solution: actions at random, now and then those of the label."""
    problem, draw, state, label = of(instances), generator(seed), partial.state(), partial.path[:, 1:-1]
    nodes, flags = [], []
    for step in range(partial.steps):
        allowed = problem.feasible(partial.instances, state)
        if allowed is None:
            allowed = torch.ones(*state.available.shape, 1, dtype=torch.bool)
        choice = torch.rand(allowed.shape, generator=draw)
        wanted = (state.available == label[:, step : step + 1])[..., None]
        follow = (torch.rand(len(label), 1, 1, generator=draw) < 0.8) & wanted & allowed
        choice = (choice + 2 * follow).masked_fill(~allowed, -1).flatten(1).argmax(1)
        kinds = problem.actions_per_node
        slot, flag = choice // kinds, choice % kinds == 1
        state = problem.advance(partial.instances, state, slot, flag)
        nodes.append(state.start)
        flags.append(flag)
    return Rollout(torch.stack(nodes, 1), torch.stack(flags, 1), torch.zeros(len(label)))


def objective(problem, partial, nodes, via_depot):
    return problem.objective(partial.instances, partial.path[:, 0], nodes, via_depot, partial.path[:, -1])


@given(st.sampled_from([tsp, cvrp]), st.integers(6, 40), st.integers(0, 1000), st.booleans(), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_no_worse_than_either_and_feasible_in_its_place(make, size, seed, limited, count):
    instances = make(4, size, seed)
    solution = random_solution(instances, seed)
    if limited and make is cvrp:
        routes = solution.via_depot.sum(1) - torch.tensor([0, 1, 0, 3])
        instances = make(4, size, seed, vehicles=routes.clamp(min=1))
    problem = of(instances)
    mixed = problem.randomise(instances, solution, generator(seed))
    length = max(4, size // count)
    partial = problem.cut(instances, mixed, length, size // length)
    rollout = other_way(instances, partial, seed)
    best = problem.best_of_both(partial, rollout)
    cost, old, new = (
        objective(problem, partial, nodes, via_depot).where(partial.offset >= 0, 0)
        for nodes, via_depot in (
            (best.nodes, best.via_depot), (partial.path[:, 1:-1], partial.via_depot), (rollout.nodes, rollout.via_depot)
        )
    )  # fmt: skip
    assert (cost <= new + 1e-9).all()
    assert limited or (cost <= old + 1e-9).all()  # cheaper routes may be more than there are vehicles
    everywhere = torch.ones(len(partial.offset), dtype=torch.bool)
    problem.check(instances, problem.splice(mixed, partial, rollout, everywhere))
    problem.check(instances, problem.splice(mixed, partial, best, everywhere))


def routes_of(nodes, via_depot):
    """The first goes on from the starting node."""
    routes = [[]]
    for node, via in zip(nodes, via_depot):
        if via:
            routes.append([])
        routes[-1].append(node)
    return routes


@given(st.integers(6, 16), st.integers(0, 1000), st.integers(0, 8))
@settings(max_examples=150, deadline=None)
def test_groups_of_routes_are_the_best_that_can_be_put_together(size, seed, less):
    """Held against every choice of routes of either plan that serves each customer once."""
    instances = cvrp(1, size, seed)
    problem = of(instances)
    solution = problem.randomise(instances, random_solution(instances, seed), generator(seed))
    partial = problem.cut(instances, solution, max(4, size - less))
    rollout = other_way(instances, partial, seed)
    best = problem.best_of_both(partial, rollout)

    start = int(partial.path[0, 0])
    coords = partial.instances.coords[0]

    def length(route, first):
        stops = [start if first else 0, *route, 0]
        return sum(float((coords[a] - coords[b]).norm()) for a, b in itertools.pairwise(stops))

    plans = [
        routes_of(nodes[0].tolist(), via_depot[0].tolist())
        for nodes, via_depot in ((partial.path[:, 1:-1], partial.via_depot), (rollout.nodes, rollout.via_depot))
    ]
    firsts = [(plan[0], length(plan[0], True)) for plan in plans]
    others = {frozenset(route): min(length(r, False) for p in plans for r in p[1:] if set(r) == set(route))
              for plan in plans for route in plan[1:]}  # fmt: skip

    def cheapest(missing):
        """Of ways to serve these customers."""
        if not missing:
            return 0.0
        node = min(missing)
        choices = [cost + cheapest(missing - route) for route, cost in others.items()
                   if node in route and route <= missing]  # fmt: skip
        return min(choices, default=float("inf"))

    customers = frozenset(partial.path[0, 1:-1].tolist())
    everything = min(cost + cheapest(customers - set(route)) for route, cost in firsts)
    assert objective(problem, partial, best.nodes, best.via_depot).item() == pytest.approx(everything)
