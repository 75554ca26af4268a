from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import BAKERY, lehd_command


def test_info():
    run = lehd_command("info", BAKERY, "--vehicles", 10, "--json")
    assert json.loads(run.stdout) == {
        "file": str(BAKERY),
        "name": "bakery",
        "problem": "CVRP",
        "nodes": 81,
        "distances": "EUC_2D",
        "symmetric": True,
        "positions": "x, y",
        "box": [[29.0, 45.0], [915.0, 968.0]],
        "duplicates": 0,
        "customers": 80,
        "smallest_demand": 3,
        "largest_demand": 19,
        "total_demand": 859,
        "capacity": 100,
        "vehicles": 10,
        "fewest_routes": 9,
        "tightness": 0.859,
    }


def test_info_in_words(tmp_path):
    (tmp_path / "a.csv").write_text("lat,lon\n50.5,8\n50.5,8\n-1,9\n")
    run = lehd_command("info", tmp_path / "a.csv")
    facts = dict(line.split(maxsplit=1) for line in run.stdout.splitlines())
    assert facts["positions"] == "latitude, longitude"
    assert facts["box"] == "-1, 8 to 50.5, 9"
    assert facts["duplicates"] == "1"
    assert facts["symmetric"] == "yes"


def test_info_of_a_bad_file(tmp_path):
    (tmp_path / "a.tsp").write_bytes(bytes(range(256)))
    run = lehd_command("info", tmp_path / "a.tsp")
    assert run.exit_code == 2
    assert run.stderr.startswith(f"lehd: {tmp_path / 'a.tsp'}")


@pytest.fixture
def triangle(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text("x,y,demand\n0,0,0\n0,3,1\n4,0,1\n")
    (tmp_path / "one.sol").write_text("Route #1: 1 2\nCost 12\n")
    (tmp_path / "two.sol").write_text("Route #1: 1\nRoute #2: 2\nCost 14\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "exit_code", "answer"),
    [
        ("one.sol --capacity 2", 0, "feasible: cost 12, 1 route\n"),
        ("two.sol --capacity 2 --optimum 12", 0, "feasible: cost 14, 2 routes, 16.67 % above 12\n"),
        ("two.sol --capacity 2 --optimum 28", 0, "feasible: cost 14, 2 routes, 50.00 % below 28\n"),
        ("one.sol --capacity 1", 1, "carries 2, more than the capacity 1\n"),
        ("two.sol --capacity 2 --vehicles 1", 1, "two.sol: 2 routes, but at most 1 allowed\n"),
        ("none.sol --capacity 2", 2, ""),
        ("one.sol", 2, ""),  # no capacity
        ("one.sol --capacity 2 --optimum 0", 2, ""),
    ],
)
def test_check(triangle, monkeypatch, words, exit_code, answer):
    monkeypatch.chdir(triangle)
    run = lehd_command("check", "t.csv", *words.split())
    assert run.exit_code == exit_code
    assert run.stdout.endswith(answer)
    assert (run.stdout == "") == (exit_code == 2)
    assert len(run.stderr.splitlines()) == (exit_code == 2)


def test_plot(triangle):
    words = [triangle / "t.csv", triangle / "two.sol", "--capacity", 2]
    assert lehd_command("plot", *words, "-o", triangle / "new" / "t.png").exit_code == 0
    assert (triangle / "new" / "t.png").read_bytes().startswith(b"\x89PNG")
    run = lehd_command("plot", *words, "-o", triangle / "t.bmp")
    assert (run.exit_code, len(run.stderr.splitlines())) == (2, 1)
