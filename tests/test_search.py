"""How a search with a time limit plans, on machines that are as fast as a test says."""

import random
import time

import pytest
import torch

import lehd
from lehd import search
from lehd.decoding import picture
from lehd.decoding.speed import Speed
from lehd.decoding.stop import max_runtime
from lehd.plan import Options, affordable_views, plan_parts
from lehd.problems import of
from lehd.problems.tsp import TSP
from lehd.search import Search
from tests.builders import cvrp, tiny_model, tsp


def plan(instances, monkeypatch, construction, options=None):
    """What is planned for 60 s, if a first construction with the nearest in view takes `construction` seconds."""
    nodes = instances.num_nodes
    one = Speed(0.0, 1.0).seconds(1, nodes, of(instances).in_view)
    monkeypatch.setattr(search, "measure_speed", lambda *_: Speed(0.0, construction / one))
    monkeypatch.setattr(Search, "_construct", lambda *_: pytest.fail("there is no time for it"))
    found = []
    monkeypatch.setattr(search, "random_reconstruct", lambda *_, **how: found.append(how))
    problem = of(instances)
    run = Search(
        problem, instances, tiny_model(problem), torch.device("cpu"), max_runtime(60), options or Options(),
        random.Random(0), time.perf_counter(), None,
    )  # fmt: skip
    run.run(None)
    assert run.cheap.all()
    return found[0]


def test_where_there_is_no_time_to_construct_long_parts_are_all_constructed_at_once(monkeypatch):
    how = plan(tsp(1, 5000), monkeypatch, construction=45)
    assert (how["longest"], how["coverage"], how["nearest"]) == (1000, 5000, 50)


def test_where_there_is_no_time_for_all_at_once_some_are_constructed_after_the_others(monkeypatch):
    how = plan(tsp(1, 20_000), monkeypatch, construction=107)
    assert (how["longest"], how["nearest"]) == (1000, 50)
    assert 1000 < how["coverage"] <= 6000


def test_where_there_is_no_time_for_that_either_parts_are_short(monkeypatch):
    how = plan(tsp(1, 5000), monkeypatch, construction=600)
    assert how["longest"] <= 200
    assert how["coverage"] < 5000
    assert how["nearest"] is None


@pytest.mark.parametrize(
    ("customers", "fast", "slow"), [(150, None, None), (500, None, 100), (1000, None, 100), (1001, 100, 100)]
)
def test_a_first_construction_sees_all_customers_where_that_takes_hardly_longer(customers, fast, slow):
    """On a GPU steps with few rows take the same time whatever is in view."""
    for speed, view in ((Speed(2e-4, 1e-9), fast), (Speed(1e-5, 1e-6), slow)):
        assert affordable_views(of(cvrp(1, 3)), speed, 1, customers, None, left=600)[0] == view
        assert affordable_views(of(cvrp(1, 3)), speed, 1, customers, 40, left=600)[0] == 40  # as asked for


def test_long_parts_are_shown_whole_where_that_takes_hardly_longer():
    """With few rows a step of a GPU takes as long whatever is in view; with many, or on a CPU, it does not."""

    def planned(instances, speed, **wish):
        return plan_parts(of(instances), instances, Options(**wish), speed, left=60, cheap=False)

    gpu = Speed(2e-4, 1e-9)
    assert planned(tsp(1, 1000), gpu)[:3] == (1000, 1000, None)
    assert planned(tsp(100, 1000), gpu)[:3] == (1000, 1000, TSP.in_view)
    assert planned(tsp(1, 1000), Speed(1e-5, 1e-6)).nearest == TSP.in_view
    assert planned(tsp(1, 1000), gpu, nearest=70).nearest == 70
    assert planned(tsp(1, 3000), gpu, longest=3000).nearest == TSP.in_view  # more than the model was ever good at
    assert planned(tsp(100, 1000), gpu, longest=200).nearest is None


@pytest.mark.parametrize(("share", "long"), [(0.19, True), (0.21, False)])
def test_parts_of_tours_are_long_if_all_of_them_take_a_fifth_of_the_time(share, long):
    instances = tsp(1, 1000)
    speed = Speed(0.0, share * 60 / Speed(0.0, 1.0).seconds(1, 1000, TSP.in_view))
    how = plan_parts(of(instances), instances, Options(), speed, left=60, cheap=False)
    assert (how.longest == 1000) is long
    assert speed.seconds(how.coverage // how.longest, how.longest, how.nearest) <= 0.2 * 60


@pytest.mark.parametrize(("share", "everywhere"), [(0.09, True), (0.11, False)])
def test_parts_of_routes_are_everywhere_if_that_takes_a_tenth_of_the_time(share, everywhere):
    instances = cvrp(1, 1000)
    speed = Speed(0.0, share * 60 / Speed(0.0, 1.0).seconds(10, 100))
    how = plan_parts(of(instances), instances, Options(), speed, left=60, cheap=False)
    assert how.longest == 100
    assert (how.coverage == 1000) is everywhere


@pytest.mark.parametrize("options", [Options(longest=300), Options(nearest=110), Options(parallel=False)])
def test_what_a_user_asks_for_counts(monkeypatch, options):
    how = plan(tsp(1, 5000), monkeypatch, construction=60, options=options)
    assert (how["longest"], how["nearest"]) != (1000, 50)
    assert options.longest in (None, how["longest"])
    assert options.nearest in (None, how["nearest"])


@pytest.mark.parametrize(("asked", "turned"), [(None, True), (True, True), (False, False)])
def test_parts_are_turned_under_a_time_limit_unless_asked_otherwise(monkeypatch, asked, turned):
    for construction in (45, 600):
        assert plan(tsp(1, 5000), monkeypatch, construction, Options(turn=asked))["turn"] is turned


@pytest.mark.parametrize(("fleet", "detours"), [({}, True), ({"vehicles": torch.tensor([9])}, False)])
def test_there_are_detours_where_lengths_are_all_that_counts(monkeypatch, fleet, detours):
    assert plan(cvrp(1, 900, **fleet), monkeypatch, construction=600)["detours"] is detours


@pytest.mark.parametrize(("asked", "turned"), [(None, False), (True, True), (False, False)])
def test_with_a_number_of_iterations_parts_are_as_in_the_paper(monkeypatch, asked, turned):
    found = []
    monkeypatch.setattr(search, "random_reconstruct", lambda *_, **how: found.append(how))
    lehd.solve(tsp(1, 9), rrc=3, turn=asked)
    assert found[0]["turn"] is turned


def test_what_no_map_shows_is_reconstructed_in_parts_that_can_be_drawn(monkeypatch):
    monkeypatch.setattr(picture, "faithful", lambda _: False)
    assert plan(tsp(1, 5000), monkeypatch, construction=45)["longest"] <= picture.LARGEST


def test_routes_have_parts_of_their_own(monkeypatch):
    assert plan(cvrp(1, 900), monkeypatch, construction=45)["longest"] <= 100


def test_there_is_a_stopgap_while_a_long_construction_goes_on(monkeypatch):
    """From the first moment on; the construction takes over, and if it is stopped, what insertion finds."""
    monkeypatch.setattr(search, "measure_speed", lambda *_: Speed(1e-9, 1e-12))
    monkeypatch.setattr(search, "NOTICEABLE", 0.0)
    instances, told = tsp(2, 40), []

    def one_iteration():
        return bool(told) and told[-1].phase == "reconstruct" and told[-1].done == 1

    for result in lehd.solve(instances, time_limit=60, progress=told.append, stop=one_iteration, device="cpu"):
        costs = [point.cost for point in result.history]
        assert costs == sorted(costs, reverse=True)
        assert not result.notes
    assert told[0].phase == "construct"
    assert told[0].solution is not None
    assert told[0].gain is None
    begun = next(each for each in told if each.phase == "reconstruct")
    assert begun.cost < told[0].cost
    assert begun.gain == 0
    for result in lehd.solve(instances, time_limit=60, stop=lambda: True, device="cpu"):
        assert result.interrupted
        assert result.notes == (search.CHEAP,)
        assert result.cost < told[0].cost


def test_who_calls_a_large_search_off_waits_neither_for_the_model_nor_for_insertion(monkeypatch):
    instances, hurries = tsp(1, 8000), []
    problem = type(of(instances))
    cheap_start = problem.cheap_start

    def watched(self, instances, hurried=False):
        hurries.append(hurried)
        return cheap_start(self, instances, hurried)

    monkeypatch.setattr(problem, "cheap_start", watched)
    monkeypatch.setattr("lehd.decoding.construct.embed", lambda *_: pytest.fail("nobody waits for it"))

    def ctrl_c(progress):
        raise KeyboardInterrupt

    for how in ({"stop": lambda: True}, {"progress": ctrl_c, "nearest": 5}):
        assert lehd.solve(instances, rrc=5, model=tiny_model(of(instances)), device="cpu", **how).interrupted
    assert hurries == [True, True]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("something else")])
def test_without_memory_for_a_recording_speed_is_measured_without(monkeypatch, error):
    recorded, instances = [], tsp(1, 9)

    def measure(model, problem, instances, stop, record=None):
        recorded.append(record)
        if record is not None:
            raise error
        return Speed(1e-6, 1e-9)

    monkeypatch.setattr(search, "measure_speed", measure)
    monkeypatch.setattr(Search, "_record", lambda _: "a recorder")
    asked = iter(range(5))

    def solve():
        return lehd.solve(instances, time_limit=60, stop=lambda: next(asked, None) is None, device="cpu")

    if isinstance(error, torch.OutOfMemoryError):
        assert sorted(solve().tour) == list(range(9))
        assert recorded == ["a recorder", None]
    else:
        with pytest.raises(RuntimeError, match="something else"):
            solve()
