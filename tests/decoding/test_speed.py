from lehd.decoding.speed import Speed, measure_speed
from lehd.decoding.stop import max_runtime
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


def test_measuring_works_for_every_problem_and_size():
    for instances in (tsp(1, 2), tsp(3, 50), cvrp(1, 1), cvrp(2, 40)):
        problem = of(instances)
        speed = measure_speed(tiny_model(problem), problem, instances, max_runtime(1))
        assert speed.per_step > 0
        assert speed.per_token > 0
