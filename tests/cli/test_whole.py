"""The real search through the command line, and the process as a whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lehd.model.checkpoint import save_model
from lehd.model.lehd import LEHD, ModelConfig
from tests.cli.command import BAKERY, EXAMPLES, HARBOUR, lehd_command


@pytest.fixture
def points(tmp_path: Path) -> Path:
    rows = [f"{7 * number % 20},{11 * number * number % 23}" for number in range(20)]
    (tmp_path / "points.csv").write_text("\n".join(["x,y", *rows]))
    return tmp_path / "points.csv"


def test_same_seed_same_tour(points, tmp_path):
    words = ["solve", points, "--rrc", 5, "--seed", 1, "--device", "cpu", "--json"]
    first, second = (json.loads(lehd_command(*words, "-o", tmp_path / f"{n}.tour").stdout) for n in "ab")
    assert first["tour"] == second["tour"]
    assert (first["iterations"], first["seed"], first["interrupted"]) == (5, 1, False)
    check = lehd_command("check", points, tmp_path / "a.tour", "--optimum", first["cost"])
    assert check.stdout.startswith("feasible: cost ")
    assert ", 0.00 % above " in check.stdout


def test_start_is_improved_or_kept(points, tmp_path):
    tour = tmp_path / "a.tour"
    tour.write_text("\n".join(["TOUR_SECTION", *map(str, range(1, 21)), "-1"]))
    costs = []
    for seed in range(3):
        run = lehd_command("solve", points, "--rrc", 3, "--seed", seed, "--start", tour, "-o", tour, "--json")
        record = json.loads(run.stdout)
        costs += [record["history"][0]["cost"], record["cost"]]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0]
    assert costs[1:-1:2] == costs[2::2]  # each begins where the last one ended


def test_routes_with_weights_of_one_s_own(tmp_path):
    torch.manual_seed(0)
    tiny = ModelConfig(num_features=3, num_resources=1, actions_per_node=2, dim=16, heads=2, decoder_layers=1)
    save_model(LEHD(tiny), tmp_path / "tiny.safetensors")
    words = ["--weights", tmp_path / "tiny.safetensors", "--rrc", 2]
    run = lehd_command("solve", BAKERY, *words, "-o", tmp_path / "b.sol", "--plot", tmp_path / "b.png", "--json")
    record = json.loads(run.stdout)
    assert record["model"].startswith("tiny@")
    assert sum(record["loads"]) == 859
    assert max(record["loads"]) <= 100
    check = lehd_command("check", BAKERY, tmp_path / "b.sol")
    assert check.stdout == f"feasible: cost {record['cost']}, {len(record['routes'])} routes\n"
    run = lehd_command("solve", HARBOUR, *words)
    assert run.exit_code == 2
    assert "tiny.safetensors was not made for a TSP" in run.stderr


CTRL_C = """
import signal, sys
import lehd.solver
from lehd.cli import main

search = lehd.solver.solve

def solve(*data, progress, **options):
    def look(state):
        progress(state)
        if state.phase == "reconstruct":
            print("searching", file=sys.stderr, flush=True)
    return search(*data, progress=look, **options)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have had it ignored
lehd.solver.solve = solve
main()
"""


def test_ctrl_c_in_the_middle_of_a_search(tmp_path):
    words = ["solve", HARBOUR, "--rrc", "1000000", "-o", tmp_path, "--json"]
    command = [sys.executable, "-c", CTRL_C, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert set(stderr.splitlines()) <= {"searching"}
    (record,) = map(json.loads, stdout.splitlines())
    assert record["interrupted"] is True
    assert lehd_command("check", HARBOUR, tmp_path / "harbour.tour").stdout == f"feasible: cost {record['cost']}\n"


def test_help_and_version_need_no_torch():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from lehd.cli import app\n"
        "for words in (['--help'], ['solve', '--help'], ['check', '-h'], ['--version']):\n"
        "    assert CliRunner().invoke(app, words).exit_code == 0\n"
        "print(*sorted({'torch', 'numpy', 'matplotlib', 'lehd.solver'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "\n"


def test_no_arguments_show_the_help():
    run = lehd_command()
    assert "solve" in run.output


def test_closed_pipe_is_quiet():
    run = subprocess.run(
        f"'{sys.executable}' -m lehd.cli info '{HARBOUR}' | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_behind_standard_output():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "lehd.cli", "info", str(HARBOUR)]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr == "lehd: [Errno 28] No space left on device\n"


def test_examples_are_what_their_script_makes(tmp_path):
    (tmp_path / "make.py").write_bytes((EXAMPLES / "make.py").read_bytes())
    subprocess.run([sys.executable, tmp_path / "make.py"], check=True)
    for example in (HARBOUR, BAKERY):
        assert (tmp_path / example.name).read_bytes() == example.read_bytes()
