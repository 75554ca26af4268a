from __future__ import annotations

import pytest

from lehd.cli.label import Bar
from lehd.data.dataset import SHARD, load_labels
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
    ],
)
def test_mistakes_end_in_one_line(tmp_path, words, message):
    recipe, *options = words
    done = lehd_command("label", recipe, tmp_path, *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


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
    for extra, message in ((["--solver", "hgs"], "--improve uses a model"), (["--shards", 0, 1], "--shards")):
        bad = lehd_command("label", *words, *extra)
        assert bad.exit_code == 2
        assert message in bad.stderr
    lonely = lehd_command("label", "uniform_tsp", tmp_path, "--shards", 0, 1, "--batch", 5)
    assert lonely.exit_code == 2
    assert "--improve" in lonely.stderr
