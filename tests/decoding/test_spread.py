import threading
import time

import pytest
import torch

from lehd import search
from lehd.decoding import speed
from lehd.decoding.construct import construct
from lehd.decoding.speed import Speed, gain_by_spreading
from lehd.decoding.spread import Spread
from lehd.decoding.stop import OutOfTime, Stop
from lehd.model.precision import in_half
from lehd.problems import of
from lehd.solver import solve
from tests.builders import cvrp, random_solution, tiny_model, tsp


@pytest.fixture
def spread():
    made = []

    def make(problem, threads=3):
        made.append(Spread(tiny_model(problem), problem, threads))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("nearest", [None, 12])
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_every_row_is_constructed_as_it_would_be_without_threads(make, nearest, half, spread):
    instances = make(5, 80)
    problem = of(instances)
    state = problem.initial_state(instances)
    # Several rows of an instance, and not in the order of the instances.
    state = state.rows(torch.tensor([3, 0, 4, 4, 1, 2, 3]))
    wide, steps = spread(problem), []
    with in_half(half):
        alone = construct(wide.model, problem, instances, state, nearest=nearest)
        rollout = wide.construct(instances, state, nearest=nearest, on_step=steps.append)
    assert torch.equal(rollout.nodes, alone.nodes)
    assert torch.equal(rollout.via_depot, alone.via_depot)
    assert torch.allclose(rollout.log_probability, alone.log_probability, rtol=1e-3, atol=1e-3)
    assert steps == list(range(1, state.available.shape[1] + 1))


def test_parts_of_one_instance_are_spread_too(spread):
    instances = tsp(1, 400)
    problem = of(instances)
    partial = problem.cut(instances, random_solution(instances), 90, 4)
    wide = spread(problem, 2)
    rollout = wide.construct(partial.instances, partial.state())
    assert torch.equal(rollout.nodes, construct(wide.model, problem, partial.instances, partial.state()).nodes)


def test_one_thread_asks_whether_to_stop_and_all_do(spread):
    instances = tsp(6, 100)
    problem = of(instances)
    wide, asked = spread(problem), []

    def ask():
        asked.append(threading.get_ident())
        return len(asked) > 5

    before = torch.get_num_threads()
    with pytest.raises(OutOfTime):
        wide.construct(instances, problem.initial_state(instances), stop=Stop(asked=ask))
    assert set(asked) == {threading.get_ident()}
    assert torch.get_num_threads() == before
    with pytest.raises(OutOfTime):
        wide.construct(instances, problem.initial_state(instances), stop=Stop(deadline=time.perf_counter()))


def test_an_interrupt_leaves_no_thread_at_work(spread):
    instances = tsp(6, 100)
    problem = of(instances)
    wide = spread(problem)

    def interrupt(step):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wide.construct(instances, problem.initial_state(instances), on_step=interrupt)
    idle = threading.Barrier(wide.threads, timeout=10)
    waiting = [wide.pool.submit(idle.wait) for _ in range(wide.threads - 1)]  # all of them are free
    idle.wait()
    assert len({each.result() for each in waiting}) == wide.threads - 1


def test_an_error_in_a_thread_is_raised(spread, monkeypatch):
    instances = tsp(6, 100)
    problem = of(instances)
    wide, caller = spread(problem), threading.get_ident()
    score = wide.model.score

    def broken(*given):
        if threading.get_ident() != caller:
            raise ZeroDivisionError
        return score(*given)

    monkeypatch.setattr(wide.model, "score", broken)
    with pytest.raises(ZeroDivisionError):
        wide.construct(instances, problem.initial_state(instances))


def test_the_gain_is_that_of_as_much_work_for_every_thread(spread, monkeypatch):
    instances = tsp(1, 20)
    wide = spread(of(instances), 4)
    gain = gain_by_spreading(wide, instances, Stop(deadline=time.perf_counter() + 100))
    assert gain > 0
    assert gain_by_spreading(wide, instances, Stop(deadline=time.perf_counter() + 1)) == 1
    clock = iter([0.0, 1.0, 1.0, 9.0, 9.0, 11.0])  # one second alone, two for all four, after the first time
    monkeypatch.setattr("lehd.decoding.spread.time.perf_counter", lambda: next(clock))
    assert wide.gain(lambda: None, instances.device) == 2.0


def test_rows_at_once_take_as_long_as_one():
    alone, four = Speed(0.001, 1e-5), Speed(0.001, 1e-5, rows_at_once=4.0)
    assert four.seconds(1, 100) == four.seconds(4, 100) == alone.seconds(1, 100)
    assert four.seconds(12, 100) == pytest.approx(alone.seconds(3, 100))
    assert four.seconds(0, 100) == alone.seconds(0, 100)


@pytest.mark.parametrize(
    ("limits", "gain", "spreads"),
    [
        ({"time_limit": 0.8}, 1.9, True),
        ({"time_limit": 0.8}, 1.0, False),  # a busy machine
        ({"time_limit": 0.8, "memory": 8.0}, 1.9, False),
        ({"rrc": 1, "parallel": True}, 1.9, False),  # the same result on a machine with more cores
    ],
)
def test_a_search_with_a_time_limit_spreads_its_parts_where_that_is_faster(limits, gain, spreads, monkeypatch):
    wide, threads = [], []
    monkeypatch.setattr(search, "gain_by_spreading", lambda *_: gain)
    monkeypatch.setattr(speed, "WORTH_TRYING", 1e9)  # the threads of torch are not tried
    original = Spread.construct

    def watch(self, instances, state, **options):
        wide.append(len(state.start))
        return original(self, instances, state, **options)

    monkeypatch.setattr(Spread, "construct", watch)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        instances = cvrp(1, 150)
        problem = of(instances)
        start = random_solution(instances)
        result = solve(instances, start=start, model=tiny_model(problem), longest=20, **limits)
        threads.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)
    assert bool(wide) is spreads
    assert threads == [2]
    assert result.cost <= problem.cost(instances, start).item()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rows") and thread.is_alive()]
