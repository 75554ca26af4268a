from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import lehd
from lehd import distance, solver
from lehd.decoding.stop import Stop
from lehd.errors import LehdError
from lehd.problems import PROBLEMS, of
from lehd.types import Instances, Solution
from tests.builders import cvrp, random_solution, tiny_model, tsp

RNG = np.random.default_rng(0)
COORDS = RNG.random((30, 2))
DEMANDS = np.concatenate([[0], RNG.integers(1, 10, 29)])
MODELS = {name: tiny_model(problem) for name, problem in PROBLEMS.items()}


def solve(*args, **options):
    """With a tiny model, unless a test wants another."""
    cvrp = options.get("demands") is not None or (args and getattr(args[0], "demands", None) is not None)
    return lehd.solve(*args, **{"model": MODELS["CVRP" if cvrp else "TSP"], "rrc": 3, **options})


def length(coords, order):
    return sum(np.hypot(*(coords[a] - coords[b])) for a, b in zip(order, [*order[1:], order[0]]))


def test_positions_give_a_tour():
    result = solve(COORDS)
    assert sorted(result.tour) == list(range(30))
    assert result.cost == pytest.approx(length(COORDS, result.tour))
    assert result.problem == "TSP"
    assert result.iterations == 3
    assert result.routes == [result.tour]
    assert result.loads == []


def test_demands_give_routes():
    result = solve(COORDS, demands=DEMANDS, capacity=25)
    assert sorted(node for route in result.routes for node in route) == list(range(1, 30))
    assert result.loads == [sum(DEMANDS[node] for node in route) for route in result.routes]
    assert max(result.loads) <= 25
    assert result.cost == pytest.approx(sum(length(COORDS, [0, *route]) for route in result.routes))
    assert result.tour[0] == result.tour[-1] == 0
    assert result.tour.count(0) == len(result.routes) + 1


def test_a_batch_gives_a_list_and_a_single_instance_does_not():
    batch = solve(np.stack([COORDS, COORDS[::-1]]))
    assert [sorted(result.tour) for result in batch] == [list(range(30))] * 2
    assert isinstance(solve(COORDS[None]), list)
    assert not isinstance(solve(COORDS), list)
    routes = solve(
        np.stack([COORDS] * 3), demands=np.stack([DEMANDS] * 3), capacity=np.array([20, 30, 200]), model=None
    )
    assert len(routes[2].routes) < len(routes[0].routes)


def test_large_batches_are_solved_in_turn(monkeypatch):
    monkeypatch.setattr("lehd.solver.TOKENS_AT_ONCE", {"cpu": 60})
    batch = RNG.random((5, 30, 2))
    results = solve(batch)
    assert [result.cost for result in results] == pytest.approx([length(c, r.tour) for c, r in zip(batch, results)])


def test_a_matrix_alone_is_enough_and_decides_the_cost():
    matrix = RNG.integers(1, 100, (12, 12))
    np.fill_diagonal(matrix, 0)
    result = solve(matrix=matrix)
    assert result.cost == sum(matrix[a, b] for a, b in zip(result.tour, [*result.tour[1:], result.tour[0]]))
    assert isinstance(result.cost, int)
    routes = solve(matrix=matrix, demands=DEMANDS[:12], capacity=15).routes
    assert sorted(node for route in routes for node in route) == list(range(1, 12))


def test_the_same_seed_gives_the_same_result():
    results = [solve(COORDS, demands=DEMANDS, capacity=25, rrc=5, seed=seed) for seed in (1, 1)]
    assert results[0].tour == results[1].tour
    tours = [solve(COORDS, seed=seed).tour for seed in (1, 1, 2, 3, 4)]  # which begin at a random node
    assert tours[0] == tours[1]
    assert len(set(map(tuple, tours))) > 1


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_scale_of_coordinates_does_not_matter(scale):
    result = solve(COORDS * scale, seed=1)
    assert result.tour == solve(COORDS, seed=1).tour
    assert result.cost == pytest.approx(scale * solve(COORDS, seed=1).cost)


@pytest.mark.parametrize("name", ["TSP", "CVRP"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_tiny_instances(name, size):
    coords = COORDS[:size]
    extra = {} if name == "TSP" else {"demands": DEMANDS[:size], "capacity": 9}
    result = solve(coords, time_limit=0.5, rrc=None, **extra) if size > 1 or name == "TSP" else None
    if result is not None:
        assert sorted(set(result.tour)) == list(range(size))


def test_equal_and_collinear_points():
    assert solve(np.ones((9, 2))).cost == 0
    line = np.stack([np.arange(9.0), np.zeros(9)], 1)
    assert solve(line, rrc=200, seed=1).cost == pytest.approx(16)


def test_a_start_is_improved_and_never_worsened():
    start = list(range(30))
    first = solve(COORDS, start=start, rrc=0)
    assert first.tour == start
    assert solve(COORDS, start=start, rrc=20).cost <= first.cost
    routes = [[node] for node in range(1, 30)]
    alone = solve(COORDS, demands=DEMANDS, capacity=25, start=routes, rrc=0)
    assert alone.routes == routes
    assert solve(COORDS, demands=DEMANDS, capacity=25, start=routes, rrc=20, model=None).cost < alone.cost
    assert solve(COORDS, demands=DEMANDS, capacity=25, start=routes, rrc=20).cost <= alone.cost
    instances = tsp(4, 9)
    given = random_solution(instances)
    results = solve(instances, start=given, rrc=0)
    assert [result.tour for result in results] == given.nodes.tolist()


def test_history_begins_with_the_first_solution_and_falls():
    result = solve(COORDS, start=list(range(30)), rrc=40, model=None)
    costs = [point.cost for point in result.history]
    assert len(costs) > 3
    assert result.history[0].iteration == 0
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == pytest.approx(result.cost)


def test_beam_and_sample_choose_the_best_row():
    greedy = solve(COORDS, rrc=0, seed=2, model=None)
    beam = solve(COORDS, rrc=0, seed=2, beam=8, model=None)
    assert beam.cost <= greedy.cost + 1e-9
    one, many = (solve(COORDS, rrc=0, seed=2, sample=k).cost for k in (1, 64))
    assert many < one
    tight = solve(COORDS, demands=DEMANDS, capacity=9, rrc=0, beam=4)
    assert max(tight.loads) <= 9


def test_costs_follow_the_rule_of_the_instance():
    instances = Instances(torch.as_tensor(COORDS * 100)[None], rule=distance.CEIL_2D)
    result = solve(instances)
    steps = zip(result.tour, [*result.tour[1:], result.tour[0]])
    assert result.cost == sum(int(np.ceil(100 * np.hypot(*(COORDS[a] - COORDS[b])))) for a, b in steps)


def test_a_short_limit_returns_a_cheap_start():
    coords = np.random.default_rng(1).random((3000, 2))
    result = solve(coords, time_limit=0.01, rrc=None, model=None)
    assert sorted(result.tour) == list(range(3000))
    assert result.notes == ("the search started from insertion, not from a solution of the model",)
    demands = np.concatenate([[0], np.ones(2999)])
    assert max(solve(coords, demands=demands, capacity=50, time_limit=0.01, rrc=None).loads) == 50


def test_without_limits_the_budget_is_ten_seconds(monkeypatch):
    monkeypatch.setattr("lehd.solver.DEFAULT_SECONDS", 0.2)
    assert solve(COORDS, rrc=None).seconds >= 0.2


def test_fleet_limits_are_met_or_named():
    demands = np.array([0, 5, 5, 5, 4, 3, 3, 2, 2, 1])
    met = solve(COORDS[:10], demands=demands, capacity=10, vehicles=3)
    assert len(met.routes) == 3
    assert not any("too many" in note for note in met.notes)
    missed = solve(COORDS[:10], demands=demands, capacity=10, vehicles=2)
    assert any("1 route too many" in note for note in missed.notes)
    instances = cvrp(1, 9, capacity=100)
    assert len(solve(instances, vehicles=1).routes) == 1


def test_progress_tells_of_both_phases():
    seen: list[lehd.Progress] = []
    solve(COORDS, rrc=4, progress=seen.append)
    construct = [each for each in seen if each.phase == "construct"]
    reconstruct = [each for each in seen if each.phase == "reconstruct"]
    assert [each.done for each in construct] == list(range(1, 30))
    assert {each.cost for each in construct} == {None}
    assert [(each.done, each.total) for each in reconstruct] == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(each.cost is not None and each.gain is not None and each.gain >= 0 for each in reconstruct)
    assert isinstance(reconstruct[-1].solution, Solution)


@pytest.mark.parametrize("phase", ["construct", "reconstruct"])
def test_an_interrupt_keeps_the_best_so_far(phase):
    def interrupt(progress):
        if progress.phase == phase and progress.done == 3:
            raise KeyboardInterrupt

    result = solve(COORDS, rrc=1000, progress=interrupt)
    assert result.interrupted
    assert sorted(result.tour) == list(range(30))
    assert result.iterations == (0 if phase == "construct" else 3)


def test_an_infeasible_search_result_never_leaves(monkeypatch):
    """Whatever goes wrong in the search, the check before the answer catches it."""

    def broken(model, problem, instances, solution, *rest, on_iteration, **options):
        on_iteration(1, replace(solution, nodes=torch.zeros_like(solution.nodes)))

    monkeypatch.setattr("lehd.search.random_reconstruct", broken)
    with pytest.raises(lehd.InfeasibleError):
        solve(COORDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": float("nan")}, "time_limit"),
        ({"rrc": -1}, "rrc"),
        ({"rrc": 2.5}, "rrc"),
        ({"beam": 0}, "beam"),
        ({"beam": 2, "sample": 2}, "not both"),
        ({"longest": 2}, "longest"),
        ({"device": "abacus"}, "abacus"),
        ({"model": "nowhere.safetensors"}, "nowhere"),
        ({"model": MODELS["CVRP"]}, "not made for a TSP"),
        ({"start": [0, 1, 2]}, "node 3 is not visited"),
        ({"seed": None}, "seed"),
        ({"time_limit": True}, "time_limit"),
        ({"nearest": 1}, "nearest"),
        ({"model": 7}, "model"),
        ({"model": ""}, "model"),
        ({"device": "meta"}, "meta"),
        ({"device": 5.5}, "5.5"),
        ({"start": [0] * 30}, "node 0 is visited 30 times"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(LehdError, match=message):
        solve(COORDS, **options)


def test_bad_data_is_refused():
    with pytest.raises(LehdError, match="nothing to solve"):
        solve()
    with pytest.raises(LehdError, match=r"lehd\.read"):
        solve("a280.tsp")
    with pytest.raises(LehdError, match="already"):
        solve(tsp(1, 5), matrix=np.zeros((5, 5)))
    with pytest.raises(LehdError, match="without demands"):
        solve(tsp(1, 5), vehicles=2)


def test_numpy_numbers_are_numbers():
    result = solve(
        COORDS, rrc=np.int64(2), seed=np.uint8(3), beam=np.uint8(2), time_limit=np.float32(20), longest=np.int32(9)
    )
    assert result.iterations == 2
    assert result.seed == 3


def test_instances_put_together_by_hand_are_checked():
    good = cvrp(2, 6)
    with pytest.raises(LehdError, match=r"expected \(B, n, 2\)"):
        solve(Instances(torch.rand(5, 2)))
    with pytest.raises(LehdError, match="finite"):
        solve(Instances(torch.full((1, 5, 2), float("nan"))))
    with pytest.raises(LehdError, match="without a capacity"):
        solve(replace(good, capacity=None))
    with pytest.raises(LehdError, match="depot"):
        solve(replace(good, demands=torch.ones_like(good.demands)))
    with pytest.raises(LehdError, match="vehicles"):
        solve(good, vehicles=2.5)
    single = solve(Instances(torch.as_tensor(COORDS, dtype=torch.float32)[None]), rrc=0)
    assert single.cost == pytest.approx(length(COORDS, single.tour), rel=1e-5)


@pytest.mark.parametrize("at", [0, 5, 200])  # before, during and after the first construction
def test_a_stop_keeps_the_best_so_far(at):
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > at

    result = solve(COORDS, rrc=1000, stop=stop)
    assert result.interrupted
    assert result.iterations < 1000
    assert sorted(result.tour) == list(range(30))
    assert not solve(COORDS, rrc=2, stop=lambda: False).interrupted


def test_an_interrupt_ends_all_parts_of_a_batch(monkeypatch):
    monkeypatch.setattr("lehd.solver.TOKENS_AT_ONCE", {"cpu": 100})
    calls = []

    def interrupt(progress):
        calls.append(progress)
        raise KeyboardInterrupt

    results = solve(RNG.random((20, 20, 2)), rrc=1000, progress=interrupt)
    assert len(calls) == 1
    assert len(results) == 20
    assert all(result.interrupted and sorted(result.tour) == list(range(20)) for result in results)


def test_the_callers_model_is_left_alone():
    model = tiny_model(PROBLEMS["TSP"]).train()
    solve(COORDS, model=model)
    assert model.training


def test_weights_that_are_not_finite_still_give_feasible_solutions():
    model = tiny_model(PROBLEMS["CVRP"])
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))
    result = solve(COORDS, demands=DEMANDS, capacity=12, model=model)
    assert max(result.loads) <= 12


def test_a_result_can_be_the_start():
    first = solve(COORDS, rrc=0)
    assert solve(COORDS, start=first, rrc=0).tour == first.tour
    assert solve(COORDS, start=np.array(first.tour), rrc=0).tour == first.tour


def test_one_way_streets_between_three_nodes():
    matrix = [[0, 1, 100], [100, 0, 1], [1, 100, 0]]
    assert {solve(matrix=matrix, seed=seed).cost for seed in range(6)} == {3}


def test_the_models_name_and_seed_are_kept():
    result = solve(COORDS, model=None, rrc=0, seed=7)
    assert result.model.startswith("tsp@")
    assert result.seed == 7
    assert of(result.instance).name == "TSP"


def test_a_result_says_when_the_search_did_not_start_from_the_model():
    assert solve(COORDS, rrc=2).notes == ()
    hurried = solve(RNG.random((20_000, 2)), time_limit=1)
    assert any("started from insertion" in note for note in hurried.notes)


def test_shipped_weights_are_loaded_once(monkeypatch):
    first = lehd.solve(COORDS[:8], rrc=1)
    monkeypatch.setattr("lehd.solver.load_model", lambda path: pytest.fail("they are there already"))
    again = lehd.solve(COORDS[:8], rrc=1)
    assert (again.tour, again.model) == (first.tour, first.model)


@pytest.mark.parametrize(("limit", "left"), [(10.0, 0.05), (0.1, 0.025)])
def test_a_gpu_has_time_to_end_its_steps(limit, left, monkeypatch):
    """But no more than a quarter of all there is."""
    deadlines = []

    class Noted(solver.Search):
        def run(self, *what):
            deadlines.append(self.stop.deadline)
            self.stop = Stop(0)
            super().run(*what)

    monkeypatch.setattr(solver, "time", SimpleNamespace(perf_counter=lambda: 100.0))
    monkeypatch.setattr(solver, "Search", Noted)
    for ending in (0.0, solver.ENDING["cuda"]):
        monkeypatch.setitem(solver.ENDING, "cpu", ending)
        lehd.solve(tsp(1, 12), time_limit=limit, device="cpu")
    alone, shorter = deadlines
    assert alone - shorter == pytest.approx(left)
    assert alone == pytest.approx(100 + limit, abs=1e-3)
