from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.command import ALONE, BAKERY, HARBOUR, lehd_command


def test_options_reach_the_search(searching):
    words = "solve --rrc 7 --longest 50 --parallel --nearest 40 --beam 4 --sample 5 --seed 3 --device cpu"
    words += " --weights w.safetensors --views best --turn --half --memory 1.5"
    assert lehd_command(*words.split(), HARBOUR).exit_code == 0
    (call,) = searching.calls
    call = {key: call[key] for key in call if key not in ("data", "progress")}
    assert call == {
        "time_limit": None,
        "rrc": 7,
        "longest": 50,
        "parallel": True,
        "nearest": 40,
        "beam": 4,
        "sample": 5,
        "views": "best",
        "turn": True,
        "half": True,
        "memory": 1.5,
        "start": None,
        "model": Path("w.safetensors"),
        "seed": 3,
        "device": "cpu",
    }


def test_capacity_and_vehicles_reach_the_instance(searching, tmp_path):
    (tmp_path / "a.csv").write_text("x,y,demand\n0,0,0\n1,0,2\n0,1,3\n")
    assert lehd_command("solve", tmp_path / "a.csv", "--capacity", 5, "--vehicles", 2).exit_code == 0
    data = searching.calls[0]["data"]
    assert (data.capacity.tolist(), data.vehicles.tolist()) == ([5], [2])
    assert not data.capacity.is_floating_point()


def test_one_file(searching, tmp_path):
    run = lehd_command("solve", BAKERY, "-o", tmp_path / "new" / "b.sol", "--plot", tmp_path / "b.svg")
    assert run.exit_code == 0
    assert run.stderr == ""
    assert run.stdout.startswith("bakery: cost ")
    assert "routes (0.5 s, 3 iterations)\n" in run.stdout
    assert "note: cheap" in run.stdout
    assert "Cost" in (tmp_path / "new" / "b.sol").read_text()
    assert "<svg" in (tmp_path / "b.svg").read_text()
    assert lehd_command("check", BAKERY, tmp_path / "new" / "b.sol").exit_code == 0


def test_quiet(searching, tmp_path):
    run = lehd_command("solve", HARBOUR, "--quiet", "-o", tmp_path / "h.tour")
    assert (run.exit_code, run.stdout, run.stderr) == (0, "", "")
    assert (tmp_path / "h.tour").exists()


def test_folder(searching, folder, tmp_path):
    run = lehd_command("solve", folder, *ALONE, "-o", tmp_path / "out", "--plot", tmp_path / "pictures")
    assert run.exit_code == 0
    assert [call["data"].names[0] for call in searching.calls] == ["bakery", "harbour", "points"]
    assert sorted(os.listdir(tmp_path / "out")) == ["bakery.sol", "harbour.tour", "lehd-run.jsonl", "points.tour"]
    assert sorted(os.listdir(tmp_path / "pictures")) == ["bakery.png", "harbour.png", "points.png"]
    title, headings, *rows = run.stdout.splitlines()[-5:]
    assert title.strip() == "3 files solved"
    assert headings.split() == ["name", "n", "cost", "seconds", "iterations", "notes"]
    assert rows[0].split()[:2] == ["bakery", "80"]  # customers
    assert rows[2].split() == ["points", "3", "12", "0.5", "3", "cheap"]


def test_json_lines(searching, folder):
    run = lehd_command("solve", folder, *ALONE, "--json")
    records = [json.loads(line) for line in run.stdout.splitlines()]
    assert [record["file"] for record in records] == [
        str(folder / n) for n in ("bakery.vrp", "harbour.tsp", "points.CSV")
    ]
    assert records[2]["cost"] == 12
    assert sorted(records[1]["tour"]) == list(range(120))
    assert [len(record["history"]) for record in records] == [1, 1, 1]


def test_one_input_into_a_folder(searching, tmp_path):
    (tmp_path / "there").mkdir()
    assert lehd_command("solve", HARBOUR, "-o", tmp_path / "there").exit_code == 0
    assert lehd_command("solve", HARBOUR, "-o", f"{tmp_path}/new/").exit_code == 0
    assert (tmp_path / "there" / "harbour.tour").read_text() == (tmp_path / "new" / "harbour.tour").read_text()


def test_start(searching, tmp_path):
    lehd_command("solve", HARBOUR, "-o", tmp_path / "first.json")
    assert lehd_command("solve", HARBOUR, "--start", tmp_path / "first.json").exit_code == 0
    first = json.loads((tmp_path / "first.json").read_text())["tour"]
    assert searching.calls[1]["start"].nodes[0].tolist() == first


# ---- solve: what goes wrong


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["missing.tsp"], "lehd: missing.tsp: cannot be read"),
        ([HARBOUR, "--time-limit", "0"], "--time-limit"),
        ([HARBOUR, "--time-limit", "nan"], "--time-limit"),
        ([HARBOUR, "--device", "abacus"], "lehd: there is no device 'abacus'"),
        ([HARBOUR, "-o", "out.sol"], "vehicle routes"),
        ([HARBOUR, "-o", "out.xyz"], "unknown ending '.xyz'"),
        ([HARBOUR, "-o", ""], "--output: expected a file or a folder"),
        ([HARBOUR, "--plot", "out.bmp"], "expected one of .png, .svg, .pdf"),
        ([HARBOUR, "-o", "file/out.tour"], "file/out.tour: cannot write"),
        ([HARBOUR, "--plot", "file/out.png"], "file/out.png: cannot write"),
        ([HARBOUR, BAKERY, "-o", "out.json"], "several inputs need a folder"),
        ([HARBOUR, BAKERY, "--start", "a.tour"], "--start: expected a single file"),
        ([HARBOUR, HARBOUR, "-o", "out"], "would be written to the same file"),
        ([HARBOUR, "--start", "short.tour"], "short.tour: node 2 is not visited"),
        ([HARBOUR, "--vehicles", "3"], "a TSP takes neither"),
        (["empty"], "no file to solve in this folder"),
        ([HARBOUR, "--processes", "2"], "expected several files to solve"),
        ([HARBOUR, "--resume"], "expected several files to solve"),
        ([HARBOUR, BAKERY, "--resume"], "--resume: expected --output"),
        ([HARBOUR, BAKERY, "-o", "out", "--weights", "w.safetensors"], "w.safetensors: cannot be read"),
        ([HARBOUR, BAKERY, "-o", "file/out"], "cannot write"),
        ([HARBOUR, BAKERY, "--cluster", "nowhere"], "cluster 'nowhere': expected local, auto or an address"),
        ([HARBOUR, BAKERY, "--cluster", "auto", "--processes", "2"], "--processes is for this machine"),
        ([HARBOUR, BAKERY, "--device", "cpu", "--gpus", "1"], "--gpus alone says where"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(searching, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "short.tour").write_text("TOUR_SECTION\n1\n-1\n")
    run = lehd_command("solve", *words)
    assert run.exit_code == 2
    assert run.stdout == ""
    assert complaint in run.stderr
    assert len(run.stderr.splitlines()) == 1
    if "abacus" not in words:
        assert searching.calls == []  # found out before any time was spent


def test_a_bad_file_among_many(searching, folder, tmp_path):
    (folder / "broken.tsp").write_text("NAME : broken\nTYPE : TSP\nDIMENSION : 3\n")
    run = lehd_command("solve", folder, *ALONE, "-o", tmp_path / "out")
    assert run.exit_code == 2
    assert str(folder / "broken.tsp") in run.stderr
    assert "3 files solved" in run.stdout
    assert len(os.listdir(tmp_path / "out")) == 3 + 1  # and a log


def test_result_is_shown_even_if_it_cannot_be_kept(searching, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    run = lehd_command("solve", HARBOUR, "-o", tmp_path / "h.tour")
    assert run.exit_code == 2
    assert "harbour: cost" in run.stdout
    assert "No space left" in run.stderr
