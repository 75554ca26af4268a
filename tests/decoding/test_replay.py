"""Recorded steps: the same as others, whatever is put in. Doing it again stands in for a GPU's recording."""

import random
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise

import pytest
import torch

from lehd.decoding import replay
from lehd.decoding.construct import construct
from lehd.decoding.replay import Replays
from lehd.decoding.rrc import FEW, few_lengths, random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.memory import Memory
from lehd.model import ends, fused
from lehd.model.precision import arithmetic, in_half
from lehd.problems import of
from tests.builders import cvrp, generator, random_solution, tiny_model, tsp
from tests.interpreter import interpret


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


def with_few_vehicles(size, customers, seed=0):
    instances = cvrp(size, customers, seed)
    return replace(instances, vehicles=1 + -(-instances.demands.sum(1) // 20))


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
    # One recording has room for all of them; one more after the desk had to grow, and if all is in view or not.
    assert 0 < counts.made <= 2 * 2
    assert counts.replayed > 5 * counts.made


@pytest.mark.parametrize(("nearest", "grain"), [(None, 1), (None, 8), (None, 64), (9, 8), (33, 64)])
@pytest.mark.parametrize(("make", "rows"), [(tsp, 1), (tsp, 3), (cvrp, 1), (with_few_vehicles, 3)])
def test_whatever_room_a_recording_has(make, rows, nearest, grain, monkeypatch):
    monkeypatch.setattr(replay, "COARSE", grain)
    monkeypatch.setattr(replay, "FINE", min(grain, replay.FINE))
    problem = of(make(1, 3))
    model = tiny_model(problem, sharpen=0.5)
    replays = Replays(model, problem, DoAgain(), nodes=72)
    for size in (70, 1, 2, 3, 6, 7, 8, 30, 31, 32, 62, 63, 64, 71, 70):
        instances = make(rows, size, seed=size)
        state = problem.initial_state(instances)
        found = replays.construct(instances, state, nearest)
        wanted = construct(model, problem, instances, state, nearest=nearest)
        assert torch.equal(found.nodes, wanted.nodes)
        assert torch.equal(found.via_depot, wanted.via_depot)
        torch.testing.assert_close(found.log_probability, wanted.log_probability, atol=1e-4, rtol=1e-4)


def test_a_first_construction_is_replayed_already():
    instances, counts, heard = tsp(1, 300), DoAgain(), []
    problem = of(instances)
    model, state = tiny_model(problem), problem.initial_state(instances)
    found = Replays(model, problem, counts).construct(instances, state, on_step=heard.append)
    assert torch.equal(found.nodes, construct(model, problem, instances, state).nodes)
    assert heard == list(range(1, 300))
    assert counts.made == 6  # up to 30, 62, 126, 190, 254, 318 nodes
    assert counts.replayed == 299 - 6


@pytest.mark.parametrize(("rows", "grain"), [(1, 64), (64, 64), (100, 40), (128, 32), (1000, 8), (10_000, 8)])
def test_the_more_rows_the_less_room_to_spare(rows, grain):
    instances = tsp(rows, 5)
    desk = replay._Desk(instances, of(instances).initial_state(instances), None, 1024)
    assert desk.grain == grain
    for left in range(1, 1024):
        assert left <= desk.room(left) < left + grain
    assert desk.room(1024) == 1024


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("places", [1024, 1 << 17, 1 << 19])
def test_a_view_of_the_nearest_leaves_recordings_for_others(rows, places):
    instances = tsp(rows, 5)
    small = replay._Desk(instances, of(instances).initial_state(instances), None, 8)
    small.places = places  # as if there were so many
    small.grain = replay._grain(rows, places, whole=False)
    rooms = {small.room(left) for left in range(1, places + 1)}
    assert len(rooms) < 1.1 * replay.DESK < replay.MOST / 2
    assert all(room >= left for left, room in ((left, small.room(left)) for left in (1, 77, places // 3, places)))
    assert replay._grain(rows, places, whole=True) <= replay.COARSE


@pytest.mark.parametrize("why", ["memory", "norm"])
def test_what_cannot_be_recorded_is_constructed_all_the_same(why):
    instances, counts = tsp(3, 12), DoAgain()
    problem = of(instances)
    model, state = tiny_model(problem, norm="instance" if why == "norm" else "none"), problem.initial_state(instances)
    replays = Replays(model, problem, counts, memory=Memory(1e6) if why == "memory" else Memory())
    for _ in range(3):
        assert torch.equal(replays.construct(instances, state).nodes, construct(model, problem, instances, state).nodes)
    assert counts.made == 0


def test_out_of_memory_it_is_constructed_without_recordings(monkeypatch):
    """In smaller groups if need be; what comes later is recorded again."""
    instances, counts, sizes = tsp(8, 12), DoAgain(), []
    problem = of(instances)
    model, state = tiny_model(problem), problem.initial_state(instances)
    wanted = construct(model, problem, instances, state)

    def small(model, problem, instances, embeddings, state, *others, **more):
        sizes.append(len(state.start))
        if len(state.start) > 5:
            raise torch.OutOfMemoryError
        return see(model, problem, instances, embeddings, state, *others, **more)

    see = replay.see
    monkeypatch.setattr(replay, "see", small)
    monkeypatch.setattr("lehd.decoding.construct.see", small)
    replays = Replays(model, problem, counts)
    found = replays.construct(instances, state)
    assert torch.equal(found.nodes, wanted.nodes)
    assert sizes == [8, 8, *[4] * 22]
    assert not replays.desks
    first = problem.initial_state(instances.rows(slice(4)))
    assert torch.equal(replays.construct(instances.rows(slice(4)), first).nodes, wanted.nodes[:4])
    assert counts.made > 0


@contextmanager
def kernels():
    """On a CPU, for the interpreter: kernels run, but for the layers, which are too small."""
    before, fused.kernels_run = fused.kernels_run, lambda x: True
    yield
    fused.kernels_run = before


def check_by_kernels(make, nearest, rows=3):
    """A construction whose steps go by kernels beside one without them."""
    problem = of(make(rows, 12))
    model, replays = tiny_model(problem), Replays(tiny_model(problem), problem, DoAgain(), nodes=20)
    for size in (12, 7, 1):
        instances = make(rows, size, seed=size)
        state = problem.initial_state(instances)
        wanted = construct(model, problem, instances, state, nearest=nearest)
        with kernels():
            found = replays.construct(instances, state, nearest)
        assert torch.equal(found.nodes, wanted.nodes)
        assert torch.equal(found.via_depot, wanted.via_depot)
        torch.testing.assert_close(found.log_probability, wanted.log_probability)


@torch.no_grad()
def check_what_the_decoder_sees(make, by_kernels, device="cpu"):
    """Of parts of solutions, whose ends and nodes lie among others in memory."""
    instances = make(3, 40)
    problem = of(instances)
    model = tiny_model(problem).to(device)
    part = problem.cut(instances, problem.randomise(instances, random_solution(instances), generator(0)), 37).to(device)
    state, embeddings = part.state(), model.encode(problem.features(part.instances, True))
    assert not state.start.is_contiguous()
    given = (embeddings, state, problem.context(part.instances, state), model.start, model.destination)
    wanted = ends.decoder_input(*given)
    with by_kernels:
        assert ends._by_one_kernel(embeddings, state)
        found = ends.decoder_input(*given)
    torch.testing.assert_close(found, wanted)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_kernels_decide_as_steps_do():
    script = "from tests.decoding import test_replay as t\n" + "".join(
        f"t.check_by_kernels(t.{make}, {nearest})\n"
        for make in ("tsp", "cvrp", "with_few_vehicles")
        for nearest in (None, 4)
    )
    script += "".join(f"t.check_what_the_decoder_sees(t.{make}, t.kernels())\n" for make in ("tsp", "cvrp"))
    script += "t.replay.ACTIONS = 8\nt.check_by_kernels(t.with_few_vehicles, None)\n"  # a few at a time
    interpret(script)


def test_where_distances_are_measured_is_nothing_to_the_recordings():
    instances, counts = tsp(3, 12), DoAgain()
    problem = of(instances)
    replays, state = Replays(tiny_model(problem), problem, counts), problem.initial_state(instances)
    replays.construct(instances, state)
    replays.construct(replace(instances, sites=instances.coords), state)
    assert len(replays.desks) == 1


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
    monkeypatch.setattr(replay, "LARGE", 60)
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
    assert desk.seen == {30, 40}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_on_a_gpu_the_decoder_sees_what_it_should(make):
    check_what_the_decoder_sees(make, arithmetic(torch.device("cuda")), "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("nearest", [None, 9])
@pytest.mark.parametrize("half", [False, True])  # without and with fused kernels
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_on_a_gpu_recorded_steps_give_what_others_do(make, half, nearest):
    """In half precision room to spare changes how sums are rounded, and now and then what is chosen."""
    instances = make(20, 30).to("cuda")
    problem = of(instances)
    model = tiny_model(problem, dim=128, heads=8, feed_forward=128, sharpen=0.5).to("cuda")
    replays = Replays(model, problem)
    equal = []
    for turn, length in enumerate([6, 7, 30, 12, 6, 29, 30, 4, 11, 30]):
        solution = problem.randomise(
            instances, random_solution(make(20, 30)).to("cuda"), torch.Generator("cuda").manual_seed(turn)
        )
        part = problem.cut(instances, solution, length)
        with in_half(half):
            found = replays.construct(part.instances, part.state(), nearest)
            wanted = construct(model, problem, part.instances, part.state(), nearest=nearest)
        assert torch.equal(found.nodes.sort(1).values, wanted.nodes.sort(1).values)
        equal.append((found.nodes == wanted.nodes).all(1))
    assert float(torch.cat(equal).double().mean()) >= (0.5 if half else 1.0)


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
