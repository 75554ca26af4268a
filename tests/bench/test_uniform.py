import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import lehd.bench.sets as sets
from lehd.bench.sets import Options, SetRun
from lehd.bench.store import BUDGET, Store
from lehd.bench.uniform import find_sets, load_set, run_uniform
from lehd.bench.watch import Watch
from lehd.decoding import rrc
from lehd.decoding.construct import construct
from lehd.decoding.stop import Stop
from lehd.errors import LehdError
from lehd.model.checkpoint import load_model, shipped_weights
from lehd.problems import PROBLEMS
from lehd.solver import TOKENS_AT_ONCE
from lehd.types import Incumbent


@pytest.fixture
def small(tmp_path):
    coords = np.random.default_rng(0).random((4, 15, 2))
    path = tmp_path / "small.npz"
    np.savez(path, coords=coords, ref_cost=np.array([3.0, 4.0, 3.5, 3.5]), source="here")
    return path


class Listener(Watch):
    def __init__(self):
        self.words, self.summaries = [], []

    def working(self, words):
        self.words.append(words)

    def complete(self, summary):
        self.summaries.append(summary)


def costs(records):
    return {(record.instance, record.budget): record.cost for record in records}


def test_budgets_are_points_of_one_run(small):
    listener = Listener()
    records = run_uniform([small], Options((2, 4), device="cpu"), Store(), listener)
    assert [each.label for each in listener.summaries] == ["greedy", "RRC 2", "RRC 4"]
    for each in listener.summaries:
        assert each.gap == pytest.approx((each.cost / 3.5 - 1) * 100)
    greedy, two, four = (each.cost for each in listener.summaries)
    assert greedy >= two >= four
    alone = costs(run_uniform([small], Options((4,), device="cpu"), Store(), Watch()))
    assert alone.items() <= costs(records).items()


def test_runs_that_turn_their_parts_are_runs_of_their_own(small, tmp_path, monkeypatch):
    """In the same file, each with its lines and its progress; what both have is the construction."""
    monkeypatch.setattr("lehd.bench.curve.SEGMENT", 2)
    monkeypatch.setattr("lehd.bench.sets.SEGMENT", 2)
    turned_parts, seen = rrc.turned_at_random, []

    def watched(coords, draws):
        seen.append(len(coords))
        return turned_parts(coords, draws)

    monkeypatch.setattr(rrc, "turned_at_random", watched)
    store = Store(tmp_path / "r.jsonl")
    run_uniform([small], Options((2, 4), device="cpu"), store, Watch())
    assert not seen
    listener = Listener()
    run_uniform([small], Options((2, 4), device="cpu", turn=True), store, listener)
    assert seen == [4] * 4
    assert [each.label for each in listener.summaries] == ["greedy", "RRC 2 turned", "RRC 4 turned"]
    assert len(list((tmp_path / "r.parts").iterdir())) == 2
    records = sorted(store.found.values(), key=lambda record: record.order)
    labels = list(dict.fromkeys(record.budget for record in records))
    assert labels == ["greedy", "RRC 2", "RRC 4", "RRC 2 turned", "RRC 4 turned"]


def test_the_nearest_in_view_are_runs_of_their_own(small, tmp_path, monkeypatch):
    """As solve with the same view; in one file with plain runs, and found again."""
    monkeypatch.setattr("lehd.bench.sets.SEGMENT", 1)
    store = Store(tmp_path / "r.jsonl")
    plain = run_uniform([small], Options((2,), device="cpu"), store, Watch())
    near = run_uniform([small], Options((2,), device="cpu", nearest=3), store, Watch())
    assert {record.budget for record in near} == {"greedy, 3 nearest", "RRC 2, 3 nearest"}
    assert len(store.records) == 16
    assert len(list((tmp_path / "r.parts").iterdir())) == 2
    problem, instances = PROBLEMS["TSP"], load_set(small).instances
    state = problem.initial_state(instances)
    rollout = construct(load_model(shipped_weights("TSP")), problem, instances, state, nearest=3)
    expected = problem.cost(instances, problem.complete(state, rollout))
    assert [record.cost for record in near[:4]] == pytest.approx(expected.tolist())
    assert [record.cost for record in near] != [record.cost for record in plain]
    again = Listener()
    assert run_uniform([small], Options((2,), device="cpu", nearest=3), Store(store.path), again) == near
    assert not again.words
    everything = run_uniform([small], Options((2,), device="cpu", nearest=99), store, Watch())
    assert [record.cost for record in everything] == pytest.approx([record.cost for record in plain])
    with pytest.raises(LehdError, match="at least 2"):
        Options(nearest=1)
    with pytest.raises(LehdError, match="--nearest"):
        run_uniform([small], Options(device="cpu", nearest=3), store, Watch(), time_limits=(1,))


def test_time_limits_are_points_of_one_search_of_all_instances(small, tmp_path, monkeypatch):
    """The longest limit is what the search gets; what it had earlier is read off its history."""
    calls, solve = [], sets.solve

    def watched(instances, time_limit, **given):
        calls.append((len(instances), time_limit))
        results = solve(instances, rrc=2, **given)
        curve = ((0.5, 0, 2.0), (3.0, 1, 1.0), (8.0, 2, 0.0))
        return [
            replace(
                result, seconds=9.0, history=tuple(Incumbent(at, done, result.cost + more) for at, done, more in curve)
            )
            for result in results
        ]

    monkeypatch.setattr(sets, "solve", watched)
    listener, store = Listener(), Store(tmp_path / "r.jsonl")
    records = run_uniform([small], Options(device="cpu"), store, listener, time_limits=(5, 10, 0.1))
    assert calls == [(4, 10)]
    assert [each.label for each in listener.summaries] == ["0.1 of 10 s", "5 of 10 s", "10 s"]
    early, half, whole = (records[first : first + 4] for first in (0, 4, 8))
    assert [each.error for each in early] == ["no solution yet"] * 4
    assert [a.cost - b.cost for a, b in zip(half, whole, strict=True)] == pytest.approx([1.0] * 4)
    assert [each.seconds for each in half + whole] == [5 / 4] * 4 + [9 / 4] * 4
    assert [each.iterations for each in half + whole] == [1] * 4 + [2] * 4
    assert run_uniform([small], Options(device="cpu"), store, Watch(), time_limits=(5, 10, 0.1)) == records
    assert len(calls) == 1  # all is there
    for limits, limit in (((7, 10), None), ((5, 10, 0.1), 2)):  # nothing of another run is mixed in
        with pytest.raises(LehdError, match="another file"):
            run_uniform([small], Options(device="cpu", limit=limit), store, Watch(), time_limits=limits)


def test_a_search_that_has_ended_goes_on_later(small, tmp_path, monkeypatch):
    """From its solutions, for the rest of the time, with draws of its own; and says so."""
    calls, solve = [], sets.solve

    def watched(instances, time_limit, start, seed, **given):
        calls.append((time_limit, start, seed))
        results = solve(instances, rrc=2, start=start, seed=seed, **given)
        curve = ((0.0, 0, 3.0), (4.0, 1, 1.0), (8.0, 2, 0.0))
        return [
            replace(
                result, seconds=time_limit, history=tuple(Incumbent(at, i, result.cost + more) for at, i, more in curve)
            )
            for result in results
        ]

    monkeypatch.setattr(sets, "solve", watched)
    path, options = tmp_path / "r.jsonl", Options(device="cpu")

    def run(*limits, **given):
        return run_uniform([small], given.pop("options", options), Store(path), Watch(), limits, **given)

    first = run(10)
    assert calls == [(10, None, 0)]
    later = run(15, 20, start=10)
    assert [each.budget for each in later[::4]] == ["15 of 20 s after 10 s", "20 s after 10 s"]
    limit, start, _ = calls[1]
    assert limit == 10
    instances = load_set(small).instances
    assert PROBLEMS["TSP"].cost(instances, start).tolist() == pytest.approx([each.cost for each in first])
    assert all(new.cost <= old.cost for new, old in zip(later[4:], first, strict=True))
    assert [(each.iterations, each.seconds) for each in (later[0], later[4])] == [(3, 15 / 4), (4, 20 / 4)]
    assert [a.cost - b.cost for a, b in zip(later[:4], later[4:], strict=True)] == pytest.approx([1.0] * 4)
    assert run(15, 20, start=10) == later
    assert len(calls) == 2  # all is there
    assert {each.budget for each in run(30, start=20)} == {"30 s after 20 s"}
    assert len({seed for _, _, seed in calls}) == 3
    assert all(BUDGET.fullmatch(each.budget) for each in (*first, *later))
    for limits, given, words in (
        ((10, 40), {"start": 10}, "10 s are over after 10"),
        ((40,), {"start": 12}, "no search of small with 12 s"),
        ((40,), {"start": 10, "options": Options(device="cpu", limit=2)}, "had 4 instances, here are 2"),
        ((), {"start": 10}, "--time-limit"),
    ):
        with pytest.raises(LehdError, match=words):
            run(*limits, **given)
    with pytest.raises(LehdError, match="without --output: no search"):
        run_uniform([small], options, Store(), Watch(), (40,), 10)
    run(20, options=replace(options, seed=1))
    assert {each.seed for each in run(25, start=20, options=replace(options, seed=1))} == {1}  # seeds do not mix
    run(20)
    with pytest.raises(LehdError, match="more than one search"):
        run(50, start=20)
    for part in path.with_suffix(".parts").iterdir():
        part.unlink()
    with pytest.raises(LehdError, match="are gone"):
        run(50, start=10)


def test_searches_that_were_stopped_or_do_not_run_together_are_no_measurements(small, tmp_path, monkeypatch):
    store, solve = Store(tmp_path / "r.jsonl"), sets.solve

    def stopped(instances, time_limit, **given):
        return [replace(result, interrupted=True) for result in solve(instances, rrc=0, **given)]

    monkeypatch.setattr(sets, "solve", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_uniform([small], Options(device="cpu"), store, Watch(), time_limits=(10,))
    assert not store.found
    monkeypatch.setitem(TOKENS_AT_ONCE, "cpu", 45)
    with pytest.raises(LehdError, match="at most 3"):
        run_uniform([small], Options(device="cpu"), store, Watch(), time_limits=(5, 10))


def test_a_stopped_run_goes_on_and_ends_the_same(small, tmp_path, monkeypatch):
    monkeypatch.setattr("lehd.bench.curve.SEGMENT", 2)
    monkeypatch.setattr("lehd.bench.sets.SEGMENT", 2)
    options = Options((2, 6), device="cpu")
    whole = costs(run_uniform([small], options, Store(), Watch()))

    class Stopper(Watch):
        def working(self, words):
            if "iteration 5" in words:
                raise KeyboardInterrupt

    path = tmp_path / "r.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_uniform([small], options, Store(path), Stopper())
    assert len(path.read_text().splitlines()) == 8
    listener = Listener()
    records = run_uniform([small], options, Store(path), listener)
    assert costs(records) == whole
    assert listener.words[0].endswith("iteration 4 of 6")  # not from the beginning
    assert [each.label for each in listener.summaries] == ["greedy", "RRC 2", "RRC 6"]
    longer = Listener()
    more = run_uniform([small], Options((2, 6, 8), device="cpu"), Store(path), longer)
    assert costs(more) == costs(run_uniform([small], Options((2, 6, 8), device="cpu"), Store(), Watch()))
    assert longer.words[0].endswith("iteration 6 of 8")
    path.unlink()  # without the results, the states they came from are of no use
    anew = Listener()
    assert costs(run_uniform([small], options, Store(path), anew)) == whole
    assert anew.words[0].endswith("iteration 0 of 6")
    monkeypatch.setattr(SetRun, "_run_rows", lambda *_: pytest.fail("all is there"))
    run_uniform([small], options, Store(path), Watch())


def test_a_run_that_is_out_of_time_leaves_the_rest(small, tmp_path, monkeypatch):
    monkeypatch.setattr("lehd.bench.curve.SEGMENT", 2)
    monkeypatch.setattr("lehd.bench.sets.SEGMENT", 2)
    path = tmp_path / "r.jsonl"
    records = run_uniform(
        [small], Options((2, 4), device="cpu", batch=2, stop=Stop(deadline=0.0)), Store(path), Watch()
    )
    assert records == []

    class Soon(Stop):
        asked = 0

        def out_of_time(self):
            Soon.asked += 1
            return Soon.asked > 2  # before the first batch, after its construction, after its first two iterations

    stopped = run_uniform([small], Options((2, 4), device="cpu", batch=2, stop=Soon()), Store(path), Watch())
    assert [(record.instance, record.budget) for record in stopped] == [
        ("0", "greedy"),
        ("1", "greedy"),
        ("0", "RRC 2"),
        ("1", "RRC 2"),
    ]


def test_out_of_memory_halves_the_batch(small, monkeypatch):
    def hungry(model, problem, instances, *rest, **options):
        if len(instances) > 1:
            raise torch.OutOfMemoryError
        return run_curve(model, problem, instances, *rest, **options)

    run_curve = sets.run_curve
    monkeypatch.setattr(sets, "run_curve", hungry)
    records = run_uniform([small], Options(device="cpu"), Store(), Watch())
    assert [(record.instance, record.batch) for record in records] == [(name, 1) for name in "0123"]
    monkeypatch.setattr(sets, "run_curve", lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(LehdError, match="single instance"):
        run_uniform([small], Options(device="cpu"), Store(), Watch())


def test_sets_come_in_order_of_size(tmp_path):
    for name, nodes in (("a", 9), ("b", 7)):
        np.savez(tmp_path / f"{name}.npz", coords=np.zeros((1, nodes, 2)), ref_cost=np.ones(1))
    assert [path.stem for path in find_sets(tmp_path)] == ["b", "a"]
    with pytest.raises(LehdError, match="no test sets"):
        find_sets(tmp_path / "none")


def test_the_module_runs_alone(small, tmp_path):
    command = [sys.executable, "-m", "lehd.bench.uniform", tmp_path, "--sets", "small", "--rrc", "2", "--limit", "2"]
    done = subprocess.run([*command, "--device", "cpu"], text=True, capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["method"] for line in lines] == ["greedy", "RRC 2"]
    assert lines[0].keys() == {
        "set",
        "instances",
        "weights",
        "device",
        "method",
        "cost",
        "gap",
        "standard_error",
        "seconds",
    }
    assert lines[0]["instances"] == 2


def test_a_set_without_references_is_refused(tmp_path):
    np.savez(tmp_path / "bare.npz", coords=np.zeros((1, 4, 2)))
    with pytest.raises(LehdError, match="ref_cost"):
        load_set(tmp_path / "bare.npz")
    with pytest.raises(LehdError, match="none"):
        load_set(tmp_path / "none.npz")
