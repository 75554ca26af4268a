import json

import numpy as np
import pytest

from tests.bench.test_library import CROSS, SQUARE
from tests.cli.command import lehd_command


@pytest.fixture
def data(tmp_path):
    """A folder as --data wants it, with a uniform set and a file of either library."""
    root = tmp_path / "data"
    for folder in ("uniform", "tsplib/tours", "cvrplib/A"):
        (root / folder).mkdir(parents=True)
    coords = np.random.default_rng(0).random((3, 100, 2))
    np.savez(root / "uniform" / "small.npz", coords=coords[:, :12], ref_cost=np.full(3, 3.0))
    np.savez(root / "uniform" / "tsp100.npz", coords=coords, ref_cost=np.full(3, 7.8))
    (root / "tsplib" / "square.tsp").write_text(SQUARE)
    (root / "tsplib" / "optima.csv").write_text("name,n,optimum,in_paper70\nsquare,4,40,1\n")
    (root / "cvrplib" / "A" / "cross.vrp").write_text(CROSS)
    header = "set,name,n_customers,best_known,paper_reference,in_paper192\n"
    (root / "cvrplib" / "best_known.csv").write_text(header + "A,cross,2,32,20,1\n")
    return root


def table_of(done):
    """Rows of the Markdown tables in an answer, by their first cell."""
    cells = (line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("|"))
    return {first.strip(): rest for first, *rest in cells}


def test_uniform_prints_the_papers_table_and_goes_on(data, tmp_path):
    words = ["bench", "uniform", "--data", data, "--device", "cpu", "--limit", 2, "--output", tmp_path / "r.jsonl"]
    done = lehd_command(*words, "--sets", "tsp100", "--rrc", "2")
    assert done.exit_code == 0, done.output
    rows = table_of(done)
    assert rows["LEHD greedy"][:2] == ["published", "0.577 (0.4m)"]
    assert rows["lehd RRC 2"][0].startswith("measured, cpu")
    assert rows["lehd RRC 2"][1].endswith(", 2)")
    assert "tsp100, RRC 2: " in done.stderr
    lines = (tmp_path / "r.jsonl").read_text()
    again = lehd_command(*words, "--sets", "tsp100", "--rrc", "2")
    assert again.stdout == done.stdout
    assert (tmp_path / "r.jsonl").read_text() == lines
    everything = table_of(lehd_command(*words, "--rrc", ""))
    assert "TSP12" in everything["method"]  # a size the paper does not have


@pytest.mark.parametrize(("library", "group", "gap"), [("tsplib", "<100", "0.0000"), ("cvrplib", "A", "25.000")])
def test_libraries_print_groups_in_both_conventions(data, tmp_path, library, group, gap):
    words = ["bench", library, "--data", data, "--device", "cpu", "--rrc", "2", "--paper"]
    done = lehd_command(*words, "--output", tmp_path / "r.jsonl", "--pictures", tmp_path / "pictures")
    assert done.exit_code == 0, done.output
    assert table_of(done)[group][:2] == ["1", gap]
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "pictures" / "gap-over-size.png").exists()


def test_peers_prints_one_row_for_each_solver(data):
    words = ["bench", "peers", "--data", data, "--device", "cpu", "--files", "square", "--seconds", "0.2"]
    done = lehd_command(*words, "--solvers", "lehd,fast-tsp,LKH")
    assert done.exit_code == 0, done.output
    rows = table_of(done)
    assert [rows[name][0] for name in ("lehd", "fast-tsp")] == ["0.2 s", "0.2 s"]
    assert rows["LKH"][0] == "no program given (--lkh PATH)"


def test_speed_and_report(tmp_path):
    path = tmp_path / "speed.jsonl"
    options = ["--nodes", "5", "--batch", "2", "--seconds", "0", "--device", "cpu", "--output", path]
    done = lehd_command("bench", "speed", "--problems", "tsp", *options)
    assert done.exit_code == 0, done.output
    assert table_of(done)["TSP"][:3] == ["5", "2", "RRC"]
    report = tmp_path / "out" / "report.md"
    assert lehd_command("bench", "report", tmp_path, "--output", report).exit_code == 0
    assert "| TSP | 5 | 2 | greedy |" in report.read_text()


def test_train_measures_both_ways(tmp_path):
    from tests.training.circles import circle_labels

    coords, nodes = circle_labels()
    np.savez(tmp_path / "circle.npz", coords=coords, nodes=nodes)
    config = tmp_path / "toy.toml"
    config.write_text('data = ["circle.npz"]\nheld_out = 4\nsteps = 9\ntokens = 200\n[model]\ndim = 16\nheads = 2\n')
    options = ["--seconds", "0.01", "--warmup", "1", "--device", "cpu", "--output", tmp_path / "t.jsonl"]
    done = lehd_command("bench", "train", config, "--data", tmp_path, *options, "--set", "model.decoder_layers=1")
    assert done.exit_code == 0, done.output
    assert "as configured: " in done.stdout
    assert "eager layers: " in done.stdout
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [line["variant"] for line in lines] == ["as configured", "eager layers"]


def test_report_compares_two_files(data, tmp_path):
    for seed in (0, 1):
        out = tmp_path / f"{seed}.jsonl"
        words = ["--sets", "small", "--rrc", "2", "--seed", seed, "--device", "cpu", "--output", out]
        lehd_command("bench", "uniform", "--data", data, *words)
    done = lehd_command("bench", "report", tmp_path / "0.jsonl", tmp_path / "1.jsonl")
    assert done.exit_code == 0, done.output
    assert table_of(done)["small"][3] == "3"


def test_sets_are_drawn(tmp_path, monkeypatch):
    from lehd.bench.make import RECIPES, Recipe

    monkeypatch.setitem(RECIPES, "tiny", Recipe("TSP", 3, 5, 1))
    done = lehd_command("bench", "sets", tmp_path, "--names", "tiny", "--solver", "fast-tsp", "--seconds", "0.01")
    assert done.exit_code == 0, done.output
    with np.load(tmp_path / "tiny.npz") as file:
        assert file["ref_cost"].shape == (3,)
    others = ["--solver", "fast-tsp", "--seconds", "0.01", "--limit", "2"]
    np.savez(tmp_path / "round.npz", coords=np.ones((1, 5, 2)), demands=[[0, 1, 1, 1, 1]], capacity=[4])
    done = lehd_command("bench", "sets", tmp_path / "again", "--from", tmp_path, *others)
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == ["round: left out, not a problem that fast-tsp solves"]
    assert done.stdout.splitlines() == [str(tmp_path / "again" / "tiny.npz")]
    with np.load(tmp_path / "again" / "tiny.npz") as file:
        assert file["ref_cost"].shape == (2,)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["uniform", "--data", "nowhere"], "nowhere/uniform: no such folder"),
        (["uniform", "--data", "DATA", "--rrc", "many"], "--rrc many: expected numbers"),
        (["uniform", "--data", "DATA", "--rrc", "1.5"], "whole numbers"),
        (["uniform", "--data", "DATA", "--sets", "none"], "none.npz"),
        (["tsplib", "--data", "DATA", "--names", "none"], "no file none"),
        (["peers", "--data", "DATA"], "nothing to solve"),
        (["speed", "--problems", "VRP"], "expected TSP or CVRP"),
        (["report", "DATA"], "no results"),
        (["sets", "DATA", "--names", "none"], "no seed is known of none"),
    ],
)
def test_mistakes_end_in_one_line(data, words, complaint):
    done = lehd_command("bench", *(data if word == "DATA" else word for word in words))
    assert done.exit_code == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_live_table_on_a_terminal(monkeypatch):
    from rich.console import Console

    from lehd.cli.live import LiveTable
    from tests.bench.test_store import record

    table = LiveTable("gap, %", lambda each: each.set, lambda each: each.budget)
    table.console = Console(force_terminal=True, record=True, width=80)
    table.live.console = table.console
    table.interval = 0.0
    with table:
        table.measured([record("0"), record("1", cost=None, error="no luck")])
        table.working("small: 2 instances")
    shown = table.console.export_text()
    assert "10.000 % (2 in 4s, 1 failed)" in shown
    assert "small: 2 instances" in shown
