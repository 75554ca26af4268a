import gzip
import json

import pytest

from lehd.bench.store import BUDGET, Record, Store, in_seconds, read_records, rrc
from lehd.bench.summary import summarise
from lehd.errors import LehdError


def record(instance="0", cost=11.0, budget="greedy", **changes):
    facts = {
        "bench": "uniform",
        "set": "small",
        "problem": "TSP",
        "nodes": 10,
        "method": "lehd",
        "seed": 0,
        "device": "cpu, 1 thread",
        "reference": 10.0,
        "seconds": 2.0,
    }
    return Record(**{**facts, "instance": instance, "cost": cost, "budget": budget, **changes})


def test_a_line_says_everything_and_comes_back(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    given = record(weights="abc", paper_cost=11.5, paper_reference=10.0)
    store.add([given])
    line = json.loads((tmp_path / "r.jsonl").read_text())
    wanted = [
        "set",
        "instance",
        "method",
        "seed",
        "weights",
        "budget",
        "cost",
        "reference",
        "gap",
        "seconds",
        "device",
        "version",
    ]
    assert line.keys() >= set(wanted)
    assert line["gap"] == pytest.approx(10)
    assert line["paper_gap"] == pytest.approx(15)
    assert read_records(tmp_path / "r.jsonl") == [given]
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress((tmp_path / "r.jsonl").read_bytes()))
    assert read_records(tmp_path / "r.jsonl.gz") == [given]


def test_what_is_there_is_not_written_again_and_what_failed_is_tried_again(tmp_path):
    path = tmp_path / "r.jsonl"
    Store(path).add([record(), record("1", cost=None, error="no luck")])
    store = Store(path)
    assert record() in store
    assert record("1") not in store
    assert record(budget=rrc(50)) not in store
    store.add([record(cost=99.0), record("1")])
    assert len(path.read_text().splitlines()) == 3
    assert [each.cost for each in Store(path).records] == [11.0, 11.0]


def test_half_a_line_is_dropped_and_a_wrong_one_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    Store(path).add([record()])
    with path.open("a") as file:
        file.write('{"bench": "uni')
    assert Store(path).records == [record()]
    path.write_text('{"bench": "uniform"}\n')
    with pytest.raises(LehdError, match="instance"):
        Store(path)
    path.write_text(record().line() + "\n[]\n")
    with pytest.raises(LehdError, match="line 2"):
        Store(path)
    with pytest.raises(LehdError, match="plain"):
        Store(tmp_path / "r.jsonl.gz")


def test_budgets_sort_by_size():
    plain, turned = [rrc(0), rrc(50), rrc(1000)], [rrc(50, turned=True), rrc(1000, turned=True)]
    near = [rrc(0, nearest=10), rrc(50, nearest=10), rrc(50, turned=True, nearest=10)]
    names = [*plain, *turned, *near, in_seconds(1), in_seconds(10)]
    assert all(BUDGET.fullmatch(name) for name in names)
    orders = [record(budget=name).order for name in names]
    assert orders == sorted(set(orders))


def test_generated_sets_take_the_ratio_of_means_and_libraries_the_mean_of_ratios():
    pair = {"small": (11.0, 10.0), "large": (200.0, 100.0)}
    uniform = [record(name, cost=cost, reference=best) for name, (cost, best) in pair.items()]
    assert summarise(uniform)[0].gap == pytest.approx(100 * (211 / 110 - 1))
    library = [record(name, cost=cost, reference=best, bench="tsplib") for name, (cost, best) in pair.items()]
    assert summarise(library)[0].gap == pytest.approx((10 + 100) / 2)
    off = 211 / 110 * 10 - 11  # so far off the mean lie both
    assert summarise(uniform)[0].standard_error == pytest.approx(100 * off / 55)
    assert summarise(uniform[:1])[0].standard_error is None
    assert summarise(library)[0].standard_error is None
    assert summarise(uniform)[0].seconds == 4
    failed = summarise([*uniform, record("2", cost=None, error="no luck")])[0]
    assert (failed.instances, failed.failed) == (2, 1)
