"""Several trainings, one table."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lehd.errors import LehdError
from lehd.labels.pool import label, merge
from lehd.training.compare import Compare, make_comparison
from lehd.training.config import read_table
from lehd.work.local import Pool
from tests.cli.command import lehd_command
from tests.labels.test_pool import Alone
from tests.training.circles import circle_labels, write_circles
from tests.training.test_resume import StopAt, StopError

TOML = """
[common]
steps = 4
tokens = 300
checkpoint_every = 0.0
[[run]]
name = "by labels"
data = ["circle.npz"]
held_out = 20
[[run]]
name = "by itself"
method = "reinforce"
customers = 6
batch = 4
[model]
dim = 16
heads = 2
feed_forward = 32
decoder_layers = 1
[test]
sets = ["ring", "circle"]
rrc = [2]
limit = 5
reference = "ref_cost"
"""


@pytest.fixture
def place(tmp_path):
    write_circles(tmp_path, count=60)
    for name, nodes in (("ring", 7), ("circle", 9)):
        coords, order = circle_labels(8, nodes, seed=5)
        around = np.take_along_axis(coords, order[..., None], 1).astype(float)
        cost = np.linalg.norm(around - np.roll(around, 1, 1), axis=2).sum(1)
        (tmp_path / "sets").mkdir(exist_ok=True)
        np.savez(tmp_path / "sets" / f"{name}.npz", coords=coords, ref_cost=cost, lkh_cost=2 * cost)
    (tmp_path / "pair.toml").write_text(TOML)
    return tmp_path


def comparison(place, *changes, **words):
    made = make_comparison(read_table(place / "pair.toml", changes), place / "pair.toml")
    return Compare(made, place / "out", place, place / "sets", "cpu", StopAt(-1), **words)


def test_every_run_is_trained_measured_and_told_in_one_table(place):
    run = comparison(place)
    assert run.run()
    gaps = {}
    for name in ("by labels", "by itself"):
        records = [json.loads(line) for line in (place / "out" / name / "results.jsonl").read_text().splitlines()]
        assert len(records) == 2 * 2 * 5  # sets, budgets, instances
        for record in records:
            assert record["reference"] < record["cost"] * 1.0001
        ring = [each for each in records if each["set"] == "ring" and each["iterations"] == 0]
        gaps[name] = 100 * (np.mean([r["cost"] for r in ring]) / np.mean([r["reference"] for r in ring]) - 1)
    lines = run.table().splitlines()
    for line, gap in zip((lines[1], lines[3]), gaps.values()):
        assert f"{gap:.4f}" in line
    assert len(lines) == 5


def test_what_is_done_is_not_done_again(place):
    first = comparison(place)
    first.watch = StopAt(3)
    with pytest.raises(StopError):
        first.run()
    paused = comparison(place, pause=0.0)
    assert not paused.run()
    assert comparison(place).run()
    again = comparison(place)
    again.watch = StopAt(1)  # would stop any training
    assert again.run()


def test_a_finished_comparison_can_be_made_longer(place):
    assert comparison(place).run()
    longer = comparison(place, "common.steps=6")
    assert longer.run()
    facts = json.loads((place / "out" / "runs.json").read_text())
    assert [facts[name]["steps"] for name in ("by labels", "by itself")] == [6, 6]
    assert comparison(place, "common.steps=6").table() == longer.table()


def test_files_that_will_be_missing_are_told_before_anything_is_trained(place):
    for change in ('test.labels_reference="gone.npz"', 'common.data=["gone.npz"]'):
        run = comparison(place, 'test.labels="circle.npz"', change)
        run.watch = StopAt(1)
        with pytest.raises(LehdError, match=r"gone\.npz: no such label file"):
            run.run()


def test_what_cannot_be_written_or_read_is_told(place):
    (place / "out" / "runs.json").mkdir(parents=True)
    with pytest.raises(LehdError, match=r"runs\.json: not readable"):
        comparison(place).run()
    (place / "out" / "runs.json").rmdir()
    (place / "out" / "runs.json").write_text("{")
    with pytest.raises(LehdError, match=r"runs\.json: not readable"):
        comparison(place).table()
    (place / "taken").write_text("")
    with pytest.raises(LehdError, match=r"taken.*: cannot write"):
        replace(comparison(place), folder=place / "taken").run()


def test_one_process_is_enough(place, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LehdError, match="without torchrun"):
        comparison(place).run()


def test_the_reference_can_be_chosen(place):
    run = comparison(place, 'test.reference="lkh_cost"')
    plain = comparison(place, 'test.reference="ref_cost"')
    assert run._load("ring").reference == [2 * cost for cost in plain._load("ring").reference]
    with pytest.raises(LehdError, match="hgs_cost"):
        comparison(place, 'test.reference="hgs_cost"')._load("ring")


def test_the_quality_of_labels_is_told(place):
    for name, shards in (("a", range(2)), ("b", range(1, 3))):
        label("uniform_tsp", 6, shards, place / name, Alone(), Pool(1))
        merge(place / name, "uniform_tsp", 6, place / f"{name}.npz")
    run = comparison(place, 'test.labels="a.npz"', 'test.labels_reference="b.npz"')
    run.run()
    assert run.table().splitlines()[-1].startswith("labels: a.npz 0.000 % above b.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("test.sets=[]", "names no"),
        ("test.speed=1", "speed"),
        ("extra.x=1", "extra"),
        ("common.steps=null", "give one"),
        ("common=3", r"\[common\]"),
        ("test=3", r"\[test\]"),
        ("run=[3]", r"\[\[run\]\]"),
        ('run=[{"name": ""}]', "names of runs"),
    ],
)
def test_bad_configurations_are_refused(place, change, message):
    with pytest.raises(LehdError, match=message):
        comparison(place, change)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("compare_rl_tsp50", ["reinforcement", "supervised"]),
        ("compare_norm_tsp100", ["none", "batch", "instance"]),
        ("ortools_cvrp100", ["ortools"]),
    ],
)
def test_the_shipped_comparisons_are_fair(name, runs, request):
    path = request.config.rootpath / "configs" / f"{name}.toml"
    made = make_comparison(read_table(path), path)
    assert list(made.runs) == runs
    assert len({(config.seconds, config.steps) for config in made.runs.values()}) == 1  # the same budget for all
    if name == "compare_norm_tsp100":
        assert [config.model.norm for config in made.runs.values()] == runs
        assert len({replace(config, model=replace(config.model, norm="none")) for config in made.runs.values()}) == 1


def test_one_command(place):
    words = [
        place / "pair.toml",
        "--output",
        place / "out",
        "--data",
        place,
        "--sets",
        place / "sets",
        "--device",
        "cpu",
    ]
    done = lehd_command("compare", *words, "--set", "test.rrc=[]")
    assert done.exit_code == 0, done.stderr
    assert "training by itself" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("by itself")
    bad = lehd_command("compare", place / "nobody.toml", "--output", place / "out")
    assert bad.exit_code == 2
