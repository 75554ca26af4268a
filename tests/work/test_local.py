"""The processes of this machine."""

from __future__ import annotations

import os

import pytest

from lehd.errors import LehdError
from lehd.work.local import Pool, share_of_gpus
from lehd.work.run import run_units
from lehd.work.units import Needs, Unit
from tests.work.jobs import Troubled, where


def test_processes_are_kept_for_further_units_and_ended_with_the_crew():
    with Pool(2).start(where) as crew:
        seen = set()
        for number in range(6):
            crew.give(Unit(str(number), number))
            ((_, (process, *_)),) = _wait(crew)
            seen.add(process)
        assert len(seen) == 1  # one was enough
        assert os.getpid() not in seen
        crew.give(Unit("a", 1))
        crew.give(Unit("b", 1))
        assert not crew.room()
    for process in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def _wait(crew):
    while not (done := crew.take()):
        pass
    return done


def test_workers_have_the_cores_they_were_promised():
    ((_, (_, threads, _)),) = run_units([Unit("a", 1)], where, Pool(1), needs=Needs(cores=1))
    assert threads == "1"


def test_units_share_gpus_in_turn(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert [share_of_gpus(place, 0.5) for place in range(4)] == ["4", "7", "4", "7"]
    assert [share_of_gpus(place, 2) for place in range(1)] == ["4,7"]
    units = [Unit(str(number), number) for number in range(12)]
    needs = Needs(gpus=0.5)
    seen = {(process, gpu) for _, (process, _, gpu) in run_units(units, where, Pool(), needs=needs)}
    assert {gpu for _, gpu in seen} <= {"4", "7"}
    assert len(seen) <= 4
    assert len(seen) == len({process for process, _ in seen})  # a process keeps its GPU
    with pytest.raises(LehdError, match="room for 4"):
        Pool(5).start(where, needs)
    with pytest.raises(LehdError, match="this machine has 2"):
        Pool().start(where, Needs(gpus=3))


def test_a_lost_process_gives_its_gpu_back(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    units = [Unit(str(number), number) for number in range(3)]
    job = Troubled({1: "crash-once"}, tmp_path)
    results = {unit.content: result for unit, result in run_units(units, job, Pool(), needs=Needs(gpus=1))}
    assert results == {0: 0, 1: 2, 2: 4}
