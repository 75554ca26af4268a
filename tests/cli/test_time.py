from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import lehd.solver
from lehd import bulk
from lehd.cli import clock, search
from lehd.io.arrays import coordinate_instances
from tests.cli.command import ALONE, HARBOUR, lehd_command


def test_time_limit_counts_from_the_start_of_the_process(searching, folder, monkeypatch):
    now = SimpleNamespace(monotonic=lambda: 1000.0)
    monkeypatch.setattr(bulk, "time", now)
    lehd_command("solve", HARBOUR, "--time-limit", 10, obj=997.0)
    lehd_command("solve", folder, *ALONE, "--time-limit", 10, obj=997.0)
    first, *others = [call["time_limit"] for call in searching.calls]
    assert first == 10 - 3 - bulk.LEAVING
    assert others == [10 - bulk.LEAVING] * 3  # of many files from when their turn begins


def test_default_time_limit(searching, monkeypatch):
    for module in (bulk, search):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    lehd_command("solve", HARBOUR)
    lehd_command("solve", HARBOUR, "--rrc", 0)
    assert [call["time_limit"] for call in searching.calls] == [10 - bulk.LEAVING, None]


def test_pictures_take_part_of_the_time(searching, tmp_path, monkeypatch):
    for module in (bulk, search):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    lehd_command("solve", HARBOUR, "--time-limit", 10, "--plot", tmp_path / "h.png")
    drawing = bulk.DRAWING + 120 * bulk.DRAWING_PER_NODE
    assert searching.calls[0]["time_limit"] == pytest.approx(10 - bulk.LEAVING - drawing)


def test_pictures_of_many_routes_take_longer():
    """20 customers at a time, or each alone."""
    coords, demands = np.random.default_rng(0).random((2001, 2)), np.ones(2001)
    demands[0] = 0
    few, many = (coordinate_instances(coords, demands, capacity) for capacity in (20, 1))
    extra = bulk.seconds_of_drawing(many) - bulk.seconds_of_drawing(few)
    assert extra == pytest.approx(1900 * bulk.DRAWING_PER_ROUTE)
    assert bulk.seconds_of_drawing(coordinate_instances(coords)) < bulk.seconds_of_drawing(few)


def test_no_time_left_still_gives_a_solution(searching):
    run = lehd_command("solve", HARBOUR, "--time-limit", 1, obj=time.monotonic() - 60)
    assert run.exit_code == 0
    assert searching.calls[0]["time_limit"] == bulk.LEAST


def test_ctrl_c_keeps_the_best_and_stops(searching, folder, tmp_path):
    searching.interrupt_at = "harbour"
    run = lehd_command("solve", folder, *ALONE, "-o", tmp_path / "out")
    assert run.exit_code == 130
    assert len(searching.calls) == 2  # the third file is left alone
    assert sorted(os.listdir(tmp_path / "out")) == ["bakery.sol", "harbour.tour", "lehd-run.jsonl"]
    assert ", stopped)" in run.stdout
    assert "2 files solved" in run.stdout


def test_ctrl_c_before_there_is_a_solution(monkeypatch):
    def press(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(lehd.solver, "solve", press, raising=False)
    run = lehd_command("solve", HARBOUR)
    assert (run.exit_code, run.stdout, run.stderr) == (130, "", "lehd: stopped\n")


def test_age_of_the_process(monkeypatch):
    monkeypatch.setattr(clock, "_IMPORTED", 500.0)
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: 502.0))
    for age, start in ((2.5, 499.5), (9000.0, 500.0), (1.0, 500.0), (None, 500.0)):
        monkeypatch.setattr(clock, "_age", lambda age=age: age)
        assert clock.process_start() == start


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_age_is_that_of_the_process():
    code = (
        "import time; time.sleep(0.3); from lehd.cli import clock;"
        "began = clock.process_start(); assert 0.2 < clock._IMPORTED - began < 10"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
