"""`lehd solve` with many files: whatever becomes of workers, each file is solved and written once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import lehd.solver
from lehd.bulk import LOG, SolveFile, Source
from lehd.cli import many
from lehd.cli.many import FilesBar, choose_engine
from lehd.errors import LehdError
from lehd.work.here import Here
from lehd.work.local import Pool
from lehd.work.on_ray import Ray
from lehd.work.units import Needs
from tests.cli.command import ALONE, BAKERY, HARBOUR, lehd_command
from tests.service.processes import alive

TOGETHER = ("--processes", "2", "--device", "cpu")


def table(number: int, nodes: int = 9) -> str:
    """A TSP, or, every third, a CVRP."""
    routes = number % 3 == 2
    rows = ["x,y,demand,capacity" if routes else "x,y"]
    for node in range(nodes):
        extra = f",{min(node, 2)},7" if routes else ""
        rows.append(f"{(7 * node + 3 * number) % 20},{(11 * node * node + number) % 23}{extra}")
    return "\n".join(rows)


@pytest.fixture
def tables(tmp_path: Path):
    def make(count: int) -> Path:
        folder = tmp_path / "tables"
        folder.mkdir()
        for number in range(count):
            (folder / f"t{number:03}.csv").write_text(table(number))
        return folder

    return make


def solutions(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != LOG}


def log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def ids(folder: Path) -> list[str]:
    return [line["id"] for line in log(folder) if "id" in line]


def costs(run) -> dict[str, float]:
    return {Path(record["file"]).name: record["cost"] for record in map(json.loads, run.stdout.splitlines())}


# ---- the same on every engine


def test_processes_find_what_one_process_finds(tables, tmp_path):
    folder = tables(5)
    words = ["solve", folder, "--rrc", 3, "--seed", 5, "--json"]
    alone = lehd_command(*words, *ALONE, "-o", tmp_path / "a")
    together = lehd_command(*words, *TOGETHER, "-o", tmp_path / "b")
    assert (alone.exit_code, together.exit_code) == (0, 0)
    assert costs(together) == costs(alone)
    assert len(solutions(tmp_path / "a")) == 5
    assert solutions(tmp_path / "b") == solutions(tmp_path / "a")
    assert sorted(ids(tmp_path / "a")) == sorted(ids(tmp_path / "b"))
    for path in sorted(folder.iterdir()):
        solution = tmp_path / "b" / f"{path.stem}{'.sol' if 'demand' in path.read_text() else '.tour'}"
        assert lehd_command("check", path, solution).exit_code == 0


def test_workers_draw_and_the_driver_writes(tables, tmp_path, searching):
    run = lehd_command("solve", tables(2), *TOGETHER, "--plot", tmp_path / "pictures", "--quiet")
    assert (run.exit_code, run.output) == (0, "")
    drawn = solutions(tmp_path / "pictures")
    assert drawn.keys() == {"t000.png", "t001.png"}
    assert all(data.startswith(b"\x89PNG") for data in drawn.values())


def test_a_cluster_finds_what_one_process_finds(tables, tmp_path):
    ray = pytest.importorskip("ray")
    from tests.work.cluster import small_cluster

    folder = tables(5)
    (folder / "broken.csv").write_text("x,y\n1,one\n")
    words = ["solve", folder, "--rrc", 3, "--json"]
    with small_cluster(machines=2) as cluster:
        try:
            away = lehd_command(*words, "--cluster", cluster.address, "-o", tmp_path / "b")
        finally:
            ray.shutdown()
    alone = lehd_command(*words, *ALONE, "-o", tmp_path / "a")
    assert away.exit_code == alone.exit_code == 2
    assert "broken.csv, line 2" in away.stderr
    assert away.stderr == alone.stderr
    assert costs(away) == costs(alone)
    assert solutions(tmp_path / "b") == solutions(tmp_path / "a")


def test_weights_travel_to_workers(tmp_path, tables):
    from lehd.problems import PROBLEMS
    from tests.builders import tiny_model

    folder = tables(2)  # TSPs
    lehd.model.checkpoint.save_model(tiny_model(PROBLEMS["TSP"]), tmp_path / "tiny.safetensors")
    job = SolveFile(
        {"rrc": 1, "seed": 0, "model": tmp_path / "tiny.safetensors", "device": "cpu"}
    )  # fmt: skip
    sent = job.for_workers(None, "cpu")
    (tmp_path / "tiny.safetensors").rename(tmp_path / "gone.safetensors")
    answer = sent(Source(str(folder / "t000.csv"), (folder / "t000.csv").read_bytes()))
    assert answer.record["model"].startswith("tiny@")
    words = ["--weights", tmp_path / "gone.safetensors", "--rrc", 1, "--json"]
    run = lehd_command("solve", folder, *words, *TOGETHER)
    assert {json.loads(line)["model"] for line in run.stdout.splitlines()} == {f"gone@{answer.record['model'][5:]}"}


# ---- what goes wrong


class Troubled:
    """Stands in for the search; some files crash their worker."""

    def __init__(self, folder: Path, trouble: dict[str, int], search) -> None:
        self.folder, self.trouble, self.search = folder, trouble, search

    def __call__(self, data, **options):
        name = data.names[0]
        with (self.folder / name).open("a") as file:
            file.write("x")
        if self.attempts(name) <= self.trouble.get(name, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.search(data, **options)

    def attempts(self, name: str) -> int:
        return len((self.folder / name).read_text())


@pytest.fixture
def troubled(tmp_path, monkeypatch, searching):
    def make(**trouble: int) -> Troubled:
        (tmp_path / "attempts").mkdir()
        stand_in = Troubled(tmp_path / "attempts", trouble, searching)
        monkeypatch.setattr(lehd.solver, "solve", stand_in)
        return stand_in

    return make


def test_a_bad_file_and_a_killed_worker_only_cost_themselves(tables, tmp_path, troubled):
    folder = tables(12)
    (folder / "broken.csv").write_text("x,y\n1,one\n")
    (folder / "t013.csv").mkdir()  # not a file
    search = troubled(t003=1, t005=99)
    run = lehd_command("solve", folder, *TOGETHER, "-o", tmp_path / "out")
    assert run.exit_code == 2
    *others, last = run.stderr.splitlines()
    assert [f"{folder / 'broken.csv'}, line 2" in line for line in others] == [True]
    assert last == f"lehd: set aside after 3 attempts: {folder / 't005.csv'}: its process died (code -9)"
    assert [search.attempts(name) for name in ("t003", "t004", "t005")] == [2, 1, 3]
    assert len(solutions(tmp_path / "out")) == len(ids(tmp_path / "out")) == 11
    assert "11 files solved" in run.stdout
    troubled_once_more = lehd_command("solve", folder, *TOGETHER, "-o", tmp_path / "out", "--resume")
    assert troubled_once_more.exit_code == 2
    assert [search.attempts(name) for name in ("t003", "t004", "t005")] == [2, 1, 6]
    assert "11 files solved before" in troubled_once_more.stdout


def test_an_output_that_cannot_be_written_costs_one_file(tables, tmp_path, searching):
    folder = tables(4)
    (tmp_path / "out" / "t001.tour").mkdir(parents=True)
    run = lehd_command("solve", folder, *TOGETHER, "-o", tmp_path / "out", "--json")
    assert run.exit_code == 2
    assert "t001.tour: cannot write" in run.stderr
    assert len(costs(run)) == 4
    assert len(ids(tmp_path / "out")) == 3


# ---- stopped, and going on


def stop_after(monkeypatch, number: int) -> None:
    shown = iter(range(1, 10_000))
    original = many.show

    def show(*words) -> None:
        original(*words)
        if next(shown) == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(many, "show", show)


def test_a_run_that_was_stopped_goes_on(tables, tmp_path, troubled, monkeypatch):
    folder, out = tables(9), tmp_path / "out"
    search = troubled()
    words = ["solve", folder, *TOGETHER, "-o", out, "--rrc", 3]
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        run = lehd_command(*words)
    assert run.exit_code == 130
    assert run.stderr == "lehd: stopped; --resume goes on\n"
    first = solutions(out)
    assert len(first) == len(ids(out)) == 4
    with (out / LOG).open("a") as file:
        file.write('{"id": "half a li')  # as a power cut leaves it

    refused = lehd_command(*words)
    assert refused.exit_code == 2
    assert "4 files solved by a run that was stopped; --resume goes on" in refused.stderr
    other = lehd_command(*words, "--seed", 1, "--resume")
    assert other.exit_code == 2
    assert "holds the work of another run (seed 0, now 1)" in other.stderr

    attempts = {name: search.attempts(Path(name).stem) for name in first}
    rest = lehd_command("solve", folder, *ALONE, "-o", out, "--rrc", 3, "--resume")  # not by several processes
    assert rest.exit_code == 0
    assert "5 files solved " in rest.stdout
    assert "4 files solved before\n" in rest.stdout
    assert len(set(ids(out))) == len(ids(out)) == len(solutions(out)) == 9
    assert {name: search.attempts(Path(name).stem) for name in first} == attempts  # not solved again
    assert {name: data for name, data in solutions(out).items() if name in first} == first

    (folder / "t002.csv").write_text(table(2, nodes=10))  # another problem under the same name
    assert "1 file solved " in lehd_command(*words, "--resume").stdout
    again = lehd_command(*words)  # a finished run makes room for a new one
    assert "9 files solved " in again.stdout
    assert len(ids(out)) == 9


CTRL_C = """
import os, signal
import lehd.solver
from lehd.cli import main

search = lehd.solver.solve

def solve(data, **options):
    os.write(2, b"searching\\n")  # at once: several processes do so
    return search(data, **options)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have had it ignored
lehd.solver.solve = solve
main()
"""


def test_ctrl_c_keeps_the_best_of_every_search(tmp_path):
    out = tmp_path / "out"
    third = tmp_path / "third.csv"
    third.write_text(table(0))
    words = ["solve", HARBOUR, BAKERY, third, "--rrc", "1000000", *TOGETHER, "-o", out, "--json"]
    command = [sys.executable, "-c", CTRL_C, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        begun = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert begun == ["searching\n"] * 2
    assert process.returncode == 130
    assert stderr == "lehd: stopped; --resume goes on\n"
    records = [json.loads(line) for line in stdout.splitlines()]
    assert {record["name"] for record in records} == {"harbour", "bakery"}  # the third is not begun
    assert all(record["interrupted"] for record in records)
    assert lehd_command("check", HARBOUR, out / "harbour.tour").exit_code == 0
    assert lehd_command("check", BAKERY, out / "bakery.sol").exit_code == 0
    assert ids(out) == []  # they are searched again


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_killed_command_leaves_no_worker_behind_and_goes_on(tables, tmp_path):
    folder, out = tables(6), tmp_path / "out"
    (folder / "a.tsp").write_bytes(HARBOUR.read_bytes())
    longer = "options | {'rrc': 10**6 if data.names[0] == 'harbour' else 1}"
    endless = CTRL_C.replace("search(data, **options)", f"search(data, **{longer})")
    words = ["solve", folder, "--rrc", "1", *TOGETHER, "-o", out, "--json"]
    command = [sys.executable, "-c", endless, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for _ in range(6):  # beside the one that does not end
            process.stdout.readline()
        workers = children(process.pid)
        assert len(workers) >= 2
        process.kill()
    deadline = time.monotonic() + 60
    while any(map(alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(ids(out)) == 6
    rest = lehd_command(*words, "--resume")
    assert (rest.exit_code, list(costs(rest))) == (0, ["a.tsp"])
    assert len(set(ids(out))) == len(ids(out)) == 7


def children(parent: int) -> list[int]:
    found = (Path("/proc") / str(parent) / "task" / str(parent) / "children").read_text()
    return [int(pid) for pid in found.split()]


# ---- many of them


def test_files_are_read_no_faster_than_they_are_solved(tables, tmp_path, searching, monkeypatch):
    folder = tables(200)
    ahead, read, shown, looks = [], [], [], []

    def reading(path: str, data: bytes) -> Source:
        read.append(path)
        ahead.append(len(read) - len(shown))
        return Source(path, data)

    monkeypatch.setattr(many, "Source", reading)
    monkeypatch.setattr(many, "show", lambda record, *_: shown.append(record["file"]))
    monkeypatch.setattr(FilesBar, "look", lambda bar, *counts: looks.append(counts))
    run = lehd_command("solve", folder, *TOGETHER, "-o", tmp_path / "out")
    assert run.exit_code == 0
    assert max(ahead) <= 2 + 2
    assert looks == sorted(looks)
    assert looks[-1][0] >= 200 - 2  # the bar follows
    assert sorted(shown) == read == sorted(map(str, folder.iterdir()))
    assert run.stdout == "200 files solved\n"  # no table so long
    assert len(set(ids(tmp_path / "out"))) == 200
    assert log(tmp_path / "out")[-1] == {"finished": 200}


def test_time_limits_are_each_file_s_own(tables, tmp_path):
    folder = tables(4)
    run = lehd_command("solve", folder, *TOGETHER, "--time-limit", 0.6, "--json", "-o", tmp_path / "out")
    records = [json.loads(line) for line in run.stdout.splitlines()]
    assert sorted(record["name"] for record in records) == ["t000", "t001", "t002", "t003"]
    assert sorted(ids(tmp_path / "out")) == sorted(
        Source(str(path), path.read_bytes()).unit().id for path in folder.iterdir()
    )
    for path in folder.iterdir():
        (solution,) = (tmp_path / "out").glob(f"{path.stem}.*")
        assert lehd_command("check", path, solution).exit_code == 0


def test_where_files_are_solved(monkeypatch):
    monkeypatch.setattr(many, "usable_cores", lambda: 8)
    cpu = {"device": "cpu", "cluster": "local", "processes": None, "gpus": 0.0}
    assert choose_engine(100, **cpu) == (Pool(8), Needs(cores=1))
    assert choose_engine(3, **cpu) == (Pool(3), Needs(cores=1))
    assert isinstance(choose_engine(1, **cpu)[0], Here)
    assert isinstance(choose_engine(9, **cpu | {"processes": 1})[0], Here)
    assert choose_engine(9, **cpu | {"processes": 3}) == (Pool(3), Needs(cores=2))
    assert choose_engine(9, **cpu | {"processes": 20}) == (Pool(20), Needs(cores=1))
    away = cpu | {"device": None, "cluster": "10.0.0.1:6379"}
    assert choose_engine(9, **away) == (Ray("10.0.0.1:6379"), Needs())
    assert choose_engine(9, **away | {"gpus": 0.5}) == (Ray("10.0.0.1:6379"), Needs(gpus=0.5))
    with pytest.raises(LehdError, match="--gpus alone"):
        choose_engine(9, **away | {"device": "cuda"})

    class Gpu:
        type = "cuda"

    monkeypatch.setattr(many, "find_device", lambda name: Gpu)
    assert isinstance(choose_engine(9, **cpu | {"device": None})[0], Here)
    assert choose_engine(9, **cpu | {"device": None, "gpus": 0.25}) == (Pool(None), Needs(gpus=0.25))
    with pytest.raises(LehdError, match="--gpus says how much"):
        choose_engine(9, **cpu | {"device": None, "processes": 2})


def test_bar_counts_files():
    bar = FilesBar(10, quiet=False)
    bar.bars.disable = False  # as on a terminal
    (task,) = bar.bars.tasks
    bar.begun -= 4
    bar.look(solved=2, before=3, failed=1)
    assert (task.completed, task.total) == (6, 10)
    assert task.fields["state"] == "0.5 files/s, 1 failed"


def test_a_worker_that_hangs_is_given_up():
    job = SolveFile({}, time_limit=10.0)
    assert 20 < job.patience < 200
    assert replace(job, time_limit=None).patience == float("inf")


def test_a_run_is_the_same_wherever_it_is_computed():
    facts = [
        SolveFile({"rrc": rrc, "model": None, "device": device, "memory": memory}, capacity=5).facts()
        for rrc, device, memory in ((3, "cpu", None), (3, None, 2.0), (4, None, None))
    ]
    assert facts[0] == facts[1] != facts[2]
