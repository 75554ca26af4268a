"""What holds on every engine."""

from __future__ import annotations

import numpy as np
import pytest

from lehd.errors import LehdError
from lehd.work.here import Here
from lehd.work.ledger import Folder
from lehd.work.local import Pool
from lehd.work.run import ATTEMPTS, run_units
from lehd.work.units import Failure, Unit
from tests.work.jobs import Troubled, draw, numbered, read_for_ten


@pytest.fixture(params=["here", "pool"])
def engine(request):
    return Here() if request.param == "here" else Pool(2)


@pytest.fixture(params=["pool"])
def elsewhere(request):
    """Engines whose workers are other processes."""
    return Pool(2)


def test_every_unit_is_answered_whatever_becomes_of_the_others(elsewhere, tmp_path):
    trouble = {3: "crash", 4: "crash-once", 11: "raise", 12: "hang"}
    job = Troubled(trouble, tmp_path)
    found = list(run_units(numbered(20), job, elsewhere, patience=1.5))
    results = {unit.content: result for unit, result in found}
    assert sorted(unit.content for unit, _ in found) == list(range(20))
    for number in range(20):
        bad = trouble.get(number) not in (None, "crash-once")
        assert isinstance(results[number], Failure) if bad else results[number] == 2 * number
        assert job.attempts(number) == (ATTEMPTS if bad else 2 if number == 4 else 1)
    assert "died" in results[3].reason
    assert results[11].reason == "ValueError: 11"
    assert "no answer" in results[12].reason


def test_a_missing_package_ends_the_run_and_is_no_units_fault(elsewhere):
    with pytest.raises(LehdError, match=r"lacks a package.*no_such_package"):
        list(run_units(numbered(9), Troubled({2: "import"}), elsewhere))


def test_a_failure_is_final_where_once_is_enough(elsewhere, tmp_path):
    job = Troubled({1: "raise"}, tmp_path)
    results = {unit.content: result for unit, result in run_units(numbered(3), job, elsewhere, attempts=1)}
    assert results[1] == Failure("ValueError: 1")
    assert job.attempts(1) == 1


def test_a_batch_that_fails_is_split_and_only_the_poison_lost(elsewhere, tmp_path):
    batches = [Unit(f"batch-{first}", list(range(first, first + 4))) for first in range(0, 12, 4)]
    alone = Troubled({6: "crash"}, tmp_path)

    def split(unit):
        if len(unit.content) == 1:
            return []
        return [Unit(f"{unit.id}/{number}", [number]) for number in unit.content]

    found = list(run_units(batches, Each(alone), elsewhere, split=split))
    solved = [number for _, result in found if not isinstance(result, Failure) for number in result]
    assert sorted(solved) == [2 * number for number in range(12) if number != 6]
    assert [unit.id for unit, result in found if isinstance(result, Failure)] == ["batch-4/6"]
    assert alone.attempts(6) == ATTEMPTS  # once in its batch, twice alone


class Each:
    def __init__(self, job):
        self.job = job

    def __call__(self, contents):
        return [self.job(content) for content in contents]


def test_units_are_read_as_they_are_needed(engine):
    assert read_for_ten(engine) <= 10 + 4


def test_nothing_to_do_starts_nothing():
    class Unwilling:
        def start(self, *_):
            pytest.fail("no worker is needed")

    assert list(run_units([], draw, Unwilling())) == []


def test_a_run_goes_on_with_what_its_folder_does_not_have(engine, tmp_path):
    facts = {"seed": 1}
    first = run_units(numbered(9), draw, engine, ledger=Folder(tmp_path, "facts.json", facts))
    done = [next(first)[0].id for _ in range(4)]
    first.close()
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*.npz")}
    assert {f"{id}.npz" for id in done} == set(kept)
    ledger = Folder(tmp_path, "facts.json", facts)
    rest = [unit.id for unit, _ in run_units(numbered(9), draw, engine, ledger=ledger)]
    assert sorted(done + rest) == [unit.id for unit in numbered(9)]
    assert list(run_units(numbered(9), draw, engine, ledger=ledger)) == []
    for unit in numbered(9):
        np.testing.assert_array_equal(ledger.read(unit.id)["drawn"], draw(unit.content)["drawn"])
    assert all((tmp_path / name).read_bytes() == data for name, data in kept.items())


def test_a_unit_that_was_set_aside_is_tried_again_by_the_next_run(tmp_path):
    ledger = Folder(tmp_path, "facts.json", {})
    failed = dict(run_units([Unit("a", "no seed")], draw, Pool(1), ledger=ledger))
    assert [type(result) for result in failed.values()] == [Failure]
    assert "a" not in ledger
    assert len(list(run_units([Unit("a", 1)], draw, Pool(1), ledger=ledger))) == 1
    assert "a" in ledger


def test_a_folder_of_another_run_is_refused(tmp_path):
    Folder(tmp_path, "facts.json", {"seed": 1}, {"batch": 7})
    assert Folder(tmp_path, "facts.json", {"seed": 1}, {"batch": 9}).facts["batch"] == 7
    with pytest.raises(LehdError, match=r"another run.*seed 1, now 2"):
        Folder(tmp_path, "facts.json", {"seed": 2})
    (tmp_path / "facts.json").write_text("{")
    with pytest.raises(LehdError, match="cannot be read"):
        Folder(tmp_path, "facts.json", {"seed": 1})


def test_here_an_error_is_an_error():
    with pytest.raises(ValueError, match="2"):
        list(run_units(numbered(4), Troubled({2: "raise"}), Here()))
