import tracemalloc

import numpy as np
import pytest

from lehd.bench import compare as module
from lehd.bench.compare import compare, confidence_interval, table
from lehd.errors import LehdError
from tests.bench.test_store import record


def records(costs, **changes):
    return [record(str(number), cost=cost, **changes) for number, cost in enumerate(costs)]


def test_pairs_are_counted_and_averaged():
    a = records([10.0, 20.0, 40.0, 50.0])
    b = records([9.0, 22.0, 40.0, 45.0], weights="other", version="other", device="NVIDIA H200", seconds=1.0)
    (row,) = compare(a, [*b, record("4")])
    assert (row.pairs, row.wins, row.losses, row.ties) == (4, 2, 1, 1)
    assert row.mean == pytest.approx((-10 + 10 + 0 - 10) / 4)
    assert row.low <= row.mean <= row.high
    assert row.seconds == (2.0, 1.0)
    assert row.verdict == "not told apart"
    line = table([row]).splitlines()[-1]
    assert line.startswith("| small | TSP | lehd | greedy | 4 | -2.5000 |")
    (other,) = compare(b, a)
    assert (other.wins, other.losses) == (1, 2)


def test_a_clear_difference_is_told():
    a = records(np.linspace(10, 11, 50))
    (row,) = compare(a, records(np.linspace(10, 11, 50) * np.linspace(0.98, 0.99, 50)))
    assert row.verdict == "B shorter"
    assert row.high < -1


def test_the_interval_is_the_textbooks():
    values = np.random.default_rng(1).normal(3, 2, 400)
    low, high = confidence_interval(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)


def test_the_interval_needs_little_memory_and_does_not_depend_on_it(monkeypatch):
    values = np.random.default_rng(1).normal(3, 2, 1000)
    tracemalloc.start()
    found = confidence_interval(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 << 20  # all draws at once take 80 MB, and as much again for their values
    monkeypatch.setattr(module, "AT_ONCE", 33_000)
    assert confidence_interval(values) == found


def test_pairs_are_in_the_order_of_the_first_file(monkeypatch):
    seen = []
    monkeypatch.setattr(module, "confidence_interval", lambda change: seen.append(change.tolist()) or (0.0, 0.0))
    compare(records(range(10, 60)), records([10.0 + 2 * row for row in range(50)])[::-1])
    assert seen == [pytest.approx([100 * ((10 + 2 * row) / (10 + row) - 1) for row in range(50)])]


def test_of_several_seeds_the_mean_counts():
    (found,) = compare([*records([10.0]), *records([12.0], seed=1)], records([22.0], seed=5))
    assert (found.pairs, found.mean) == (1, pytest.approx(100.0))


@pytest.mark.parametrize("other", [{"weights": "other"}, {"device": "NVIDIA H200"}])
def test_what_was_measured_twice_is_refused(other):
    twice = [*records([10.0, 11.0]), *records([12.0], **other)]
    with pytest.raises(LehdError, match=r"A has small 0, lehd greedy more than once .*, cpu, 1 thread and "):
        compare(twice, records([10.0]))
    with pytest.raises(LehdError, match="B has small 0"):
        compare(records([10.0]), twice)
    assert compare(twice, [record("1", cost=11.0)])[0].pairs == 1  # this one is there once


def test_failures_are_left_out_and_strangers_refused():
    a = [*records([10.0]), record("9", cost=None, error="no luck")]
    assert compare(a, [*records([10.0]), record("9")])[0].pairs == 1
    with pytest.raises(LehdError, match="in common"):
        compare(a, records([1.0], budget="RRC 50"))
