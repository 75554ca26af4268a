from __future__ import annotations

import pytest
import torch

from lehd.cli.label import Bar
from lehd.data.dataset import SHARD, load_labels
from lehd.data.label_file import read_label_file
from lehd.labels.pool import Progress
from lehd.model.checkpoint import save_model
from lehd.problems import PROBLEMS
from tests.builders import tiny_model, tsp
from tests.cli.command import lehd_command
from tests.labels.test_improve import plain


def test_labels_from_the_command_line(tmp_path):
    pytest.importorskip("fast_tsp")
    words = ["uniform_tsp", tmp_path, "--customers", "8", "--seconds", "0.002"]
    done = lehd_command("label", *words, "--shards", 0, 2, "--merge", tmp_path / "all.npz")
    assert done.exit_code == 0
    assert done.stdout == f"{2 * SHARD} labels in {tmp_path / 'all.npz'}\n"
    assert "2/2 shards" in done.stderr
    assert f"joining the labels into {tmp_path / 'all.npz'}" in done.stderr  # which may take long
    assert len(load_labels(tmp_path / "all.npz")) == 2 * SHARD
    again = lehd_command("label", *words, "--shards", 0, 2)
    assert again.exit_code == 0
    assert again.stderr == ""  # nothing was left to do


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["soup", "--shards", 0, 1], "soup"),
        (["uniform_tsp"], "nothing to do"),
        (["uniform_tsp", "--shards", 0, 1, "--solver", "hgs"], "hgs makes no TSP labels"),
        (["uniform_tsp", "--shards", 0, 1, "--solver", "lkh"], "--binary"),
        (["uniform_tsp", "--shards", 0, 1, "--customers", 1], "1 customers"),
        (["uniform_tsp", "--merge", "all.npz"], "no shard"),
        (["uniform_tsp", "--shards", 0, 1, "--iterations", 5], "--iterations N is for hgs"),
        (["uniform_cvrp", "--shards", 0, 1, "--iterations", 5, "--seconds", 1], "in place of --seconds"),
        (["uniform_tsp", "--shards", 0, 1, "--cluster", "127.0.0.1:1"], "no Ray cluster answers"),
        (["uniform_tsp", "--shards", 0, 1, "--cluster", "auto", "--processes", 2], "--processes is for this machine"),
        (["uniform_tsp", "--shards", 0, 1, "--gpus", 1], "--improve"),
        (["uniform_tsp", "--shards", 0, 1, "--seed", 1], "--improve"),
        (["uniform_tsp", "--shards", -1, 0], "shard -1"),
    ],
)
def test_mistakes_end_in_one_line(tmp_path, words, message):
    recipe, *options = words
    done = lehd_command("label", recipe, tmp_path, *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_labels_that_count_iterations_are_the_same_again_and_say_so(tmp_path):
    pytest.importorskip("hygese")
    for name in ("a", "b"):
        words = ["uniform_cvrp", tmp_path / name, "--customers", 7, "--shards", 0, 1, "--iterations", 9]
        done = lehd_command("label", *words, "--merge", tmp_path / f"{name}.npz")
        assert done.exit_code == 0, done.stderr
    first, second = (load_labels(tmp_path / f"{name}.npz") for name in "ab")
    assert torch.equal(first.solution.nodes, second.solution.nodes)
    assert read_label_file(tmp_path / "a.npz").sources == ("hgs 9 iterations",)
    other = lehd_command("label", *words[:-1], 10)
    assert other.exit_code == 2
    assert "iterations 9, now 10" in other.stderr


def test_bar_counts_instances():
    bar = Bar()
    bar.bars.disable = False  # as on a terminal
    bar(Progress(shards=1, total_shards=4, instances=150, failed=2, seconds=3.0, failures=("why",)))
    (task,) = bar.bars.tasks
    assert (task.completed, task.total) == (150, 4 * SHARD)
    assert task.fields["state"] == "1/4 shards, 50.0 instances/s, 2 without a label"


def test_a_model_improves_labels_from_the_command_line(tmp_path):
    label_file = plain(tmp_path, tsp, count=12)
    weights = tmp_path / "w.safetensors"
    save_model(tiny_model(PROBLEMS["TSP"]), weights)
    words = [label_file, tmp_path / "parts", "--improve", weights, "--iterations", 2, "--merge", tmp_path / "new.npz"]
    done = lehd_command("label", *words, "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    assert "1/1 parts" in done.stderr
    assert "mean cost" in done.stderr
    assert done.stdout == f"12 labels in {tmp_path / 'new.npz'}\n"
    twice = [*words[:1], tmp_path / "again", *words[2:-1], tmp_path / "again.npz", "--batch", 12]
    again = lehd_command("label", *twice, "--processes", 2)
    assert again.exit_code == 0, again.stderr
    assert torch.equal(load_labels(tmp_path / "again.npz").solution.nodes, load_labels(words[-1]).solution.nodes)
    for extra, message in (
        (["--solver", "hgs"], "are for solvers"),
        (["--shards", 0, 1], "--shards"),
        (["--gpus", 0.5], "--gpus goes with"),
        (["--processes", 2, "--device", "cpu"], "--device is for work in one process"),
    ):
        bad = lehd_command("label", *words, *extra)
        assert bad.exit_code == 2
        assert message in bad.stderr
    below = lehd_command("label", "uniform_tsp", tmp_path / "below", "--shards", -1, 0, *words[2:-2])
    assert below.exit_code == 2
    assert "shard -1" in below.stderr
    lonely = lehd_command("label", "uniform_tsp", tmp_path, "--shards", 0, 1, "--batch", 5)
    assert lonely.exit_code == 2
    assert "--improve" in lonely.stderr


def test_a_solver_improves_labels_from_the_command_line(tmp_path):
    pytest.importorskip("fast_tsp")
    label_file = plain(tmp_path, tsp, count=12)
    words = [label_file, tmp_path / "parts", "--seconds", 0.002, "--processes", 1, "--merge", tmp_path / "new.npz"]
    done = lehd_command("label", *words, "--solver", "fast-tsp", "--batch", 5)
    assert done.exit_code == 0, done.stderr
    assert "3/3 parts" in done.stderr
    assert done.stdout == f"12 labels in {tmp_path / 'new.npz'}\n"
    old, new = read_label_file(label_file), read_label_file(tmp_path / "new.npz")
    assert (new.costs() <= old.costs()).all()
    assert new.costs().mean() < 0.9 * old.costs().mean()
    assert "fast-tsp 0.002 s" in new.sources
    again = lehd_command("label", *words)  # the problem's usual solver, and the folder knows its parts
    assert again.exit_code == 0, again.stderr
    assert "3/3 parts" in again.stderr


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--shards", 0, 1], "--shards are those of a recipe"),
        (["--parallel"], "are for models"),
        (["--device", "cpu"], "are for models"),
        (["--gpus", 1], "are for models"),
        (["--seed", 1], "are for models"),
        (["--solver", "hgs"], "hgs makes no TSP labels"),
        (["--solver", "soup"], "no label solver 'soup'"),
        (["--solver", "lkh"], "--binary"),
        (["--solver", "ortools", "--iterations", 5], "--iterations N is for hgs"),
        (["--seconds", 0], "expected a positive number"),
        (["--cluster", "auto", "--processes", 2], "--processes is for this machine"),
    ],
)
def test_mistakes_with_a_file_and_a_solver_end_in_one_line(tmp_path, extra, message):
    done = lehd_command("label", plain(tmp_path, tsp, count=2), tmp_path / "parts", *extra)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "parts").exists()


def test_a_file_that_is_not_there_is_no_recipe(tmp_path):
    done = lehd_command("label", tmp_path / "old.npz", tmp_path / "parts", "--solver", "fast-tsp")
    assert done.exit_code == 2
    assert "old.npz: no such label file" in done.stderr


def test_a_program_that_never_works_is_an_error(tmp_path):
    program = tmp_path / "LKH"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o700)
    words = [plain(tmp_path, tsp, count=2), tmp_path / "parts", "--merge", tmp_path / "new.npz"]
    done = lehd_command("label", *words, "--solver", "lkh", "--binary", program)
    assert done.exit_code == 2
    assert "ended with code 7" in done.stderr
    assert not (tmp_path / "new.npz").exists()
