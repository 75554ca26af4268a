from dataclasses import replace

import pytest

from lehd.decoding.replay import COARSE
from lehd.decoding.speed import RECORDING, Speed, faster_threads, measure_speed
from lehd.decoding.stop import Stop, max_runtime
from lehd.problems import of
from tests.builders import cvrp, tiny_model, tsp

SPEED = Speed(per_step=1e-3, per_token=1e-5)


def test_more_work_takes_longer():
    assert SPEED.seconds(1, 100) < SPEED.seconds(2, 100) < SPEED.seconds(2, 200)
    assert SPEED.seconds(1, 0) == 0


def test_a_view_of_the_nearest_makes_cost_nearly_linear():
    whole, near = (SPEED.seconds(1, 10_000, view) / SPEED.seconds(1, 1000, view) for view in (None, 100))
    assert whole > 100
    assert near < 15
    assert SPEED.seconds(1, 80, 100) == SPEED.seconds(1, 80)


def test_routes_take_longer_to_find_the_nearest():
    """Which shows among many nodes; a part of a few hundred takes the same."""
    speeds = [
        measure_speed(tiny_model(of(instances)), of(instances), instances, max_runtime(1)).search_cost
        for instances in (tsp(1, 9), cvrp(1, 9))
    ]
    tour, routes = (replace(SPEED, search_cost=cost) for cost in speeds)
    assert routes.seconds(1, 20_000, 100) > 1.5 * tour.seconds(1, 20_000, 100)
    assert routes.seconds(1, 200, 100) < 1.1 * tour.seconds(1, 200, 100)
    assert routes.seconds(1, 20_000) == tour.seconds(1, 20_000)


def test_measuring_works_for_every_problem_and_size():
    for instances in (tsp(1, 2), tsp(3, 50), cvrp(1, 1), cvrp(2, 40)):
        problem = of(instances)
        speed = measure_speed(tiny_model(problem), problem, instances, max_runtime(1))
        assert speed.per_step > 0
        assert speed.per_token > 0


def test_where_steps_are_recorded_the_recordings_count(monkeypatch):
    """A clock that stands still, but for launched steps (a second each) and replays (a hundredth)."""
    now = [0.0]
    monkeypatch.setattr("lehd.decoding.speed.time.perf_counter", lambda: now[0])
    problem = of(tsp(1, 20))
    model = tiny_model(problem)
    score = model.score

    def slow(*given):
        now[0] += 1.0
        return score(*given)

    class Fast:
        def __init__(self, work):
            pass

        def replay(self):
            now[0] += 0.01

    monkeypatch.setattr(model, "score", slow)
    stop = Stop(deadline=1e9)
    assert measure_speed(model, problem, tsp(1, 20), stop).per_step == pytest.approx(1.2)
    per_step = measure_speed(model, problem, tsp(1, 20), stop, record=Fast).per_step
    assert per_step == pytest.approx(1.2 * (0.01 + RECORDING * 1.0 / COARSE))


@pytest.mark.parametrize(("slow", "chosen"), [(4, 1), (1, 4)])
def test_one_thread_if_it_is_faster(slow, chosen, monkeypatch):
    now, threads = [0.0], [4]
    monkeypatch.setattr("lehd.decoding.speed.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("lehd.decoding.speed.torch.set_num_threads", lambda number: threads.__setitem__(0, number))
    monkeypatch.setattr("lehd.decoding.speed.torch.get_num_threads", lambda: threads[0])
    instances = tsp(1, 20)
    model = tiny_model(of(instances))
    score = model.score

    def timed(*given):
        now[0] += 2.0 if threads[0] == slow else 1.0
        return score(*given)

    monkeypatch.setattr(model, "score", timed)
    assert faster_threads(model, of(instances), instances, Stop(deadline=1000.0)) == chosen
    spent, threads[0] = now[0], 4
    assert faster_threads(model, of(instances), instances, Stop(deadline=spent + 1)) == 1
    threads[0] = 1
    assert faster_threads(model, of(instances), instances, Stop(deadline=1000.0)) == 1
    assert now[0] == spent  # there was nothing to try, or no time
