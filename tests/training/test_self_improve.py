"""A model that makes its own labels: steps in order, resumable between and inside them, labels that never get worse."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from lehd.data.dataset import SHARD, load_labels
from lehd.data.label_file import read_label_file
from lehd.errors import LehdError
from lehd.labels.improve import Progress as Parts
from lehd.labels.pool import label, merge
from lehd.model.checkpoint import save_model
from lehd.problems import PROBLEMS
from lehd.training import self_improve as module
from lehd.training.config import read_table
from lehd.training.self_improve import SelfImprovement, gap_to_reference, make_self_improve, table_of
from lehd.work.local import Pool
from tests.builders import tiny_model
from tests.cli.command import lehd_command
from tests.labels.test_pool import Alone
from tests.training.test_resume import StopAt, StopError, assert_same, weights

TOML = """
rounds = 2
[reinforce]
{first}
customers = 6
instances = 12
batch = 4
epochs = 2
tokens = 300
checkpoint_every = 0.0
[label]
recipe = "{recipe}"
customers = 8
instances = 100
iterations = 2
batch = 40
[train]
steps = 6
tokens = 400
held_out = 20
checkpoint_every = 0.0
[model]
dim = 16
heads = 2
feed_forward = 32
decoder_layers = 1
"""
RECIPES = {"TSP": "uniform_tsp", "CVRP": "uniform_cvrp"}


def configured(tmp_path, problem="TSP", *changes):
    path = tmp_path / "si.toml"
    first = "" if problem == "TSP" else f'recipe = "{RECIPES[problem]}"'
    path.write_text(TOML.format(recipe=RECIPES[problem], first=first))
    return make_self_improve(read_table(path, changes), path)


def steps(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("problem", ["TSP", "CVRP"])
def test_all_steps_run_and_labels_never_get_worse(tmp_path, problem):
    label(RECIPES[problem], 8, range(1), tmp_path / "shards", Alone(), Pool(1))
    merge(tmp_path / "shards", RECIPES[problem], 8, tmp_path / "reference.npz")
    config = configured(tmp_path, problem, 'label.reference="reference.npz"')
    told = []
    run = SelfImprovement(config, tmp_path / "run", tmp_path, device="cpu", watch=StopAt(-1), tell=told.append)
    assert run.run()
    done = steps(tmp_path / "run")
    assert told == done
    assert [(line["round"], line["step_name"]) for line in done] == [
        (0, "reinforce"),
        (1, "label"),
        (1, "train"),
        (2, "label"),
        (2, "train"),
    ]
    assert all(line["seconds"] >= 0 for line in done)
    first, second = (read_label_file(tmp_path / "run" / f"round-{number}" / "labels.npz") for number in (1, 2))
    np.testing.assert_array_equal(first.instances.coords.numpy(), second.instances.coords.numpy())
    assert (second.costs() <= first.costs()).all()
    assert done[1]["cost"] == pytest.approx(first.costs().mean())
    assert done[3]["cost_before"] == pytest.approx(first.costs().mean())
    assert done[3]["cost"] <= done[1]["cost"]
    assert done[3]["gap"] == pytest.approx(
        100 * (second.costs().mean() / costs_of(tmp_path / "reference.npz") - 1), abs=1e-3
    )
    assert len(load_labels(tmp_path / "run" / "round-2" / "labels.npz")) == SHARD
    assert all("RRC 2" in name for name in second.sources)
    assert_same(weights(tmp_path / "run"), weights(tmp_path / "run" / "round-2" / "train"))
    table = table_of(done).splitlines()
    assert len(table) == 6
    assert "label gap %" in table[0]


def costs_of(path):
    return read_label_file(path).costs().mean()


def test_a_run_that_is_stopped_anywhere_ends_the_same(tmp_path):
    config = configured(tmp_path)
    SelfImprovement(config, tmp_path / "whole", device="cpu", watch=StopAt(-1)).run()

    class StopParts:
        def __init__(self, parts):
            self.parts = parts

        def __call__(self, progress):
            if progress.parts == self.parts and progress.iteration == 1:
                raise StopError

    # In the reinforcement, in the labels of both rounds, in the training of both rounds.
    stops = [
        (StopAt(3), None),
        (StopAt(-1), StopParts(1)),
        (StopAt(4), None),
        (StopAt(-1), StopParts(2)),
        (StopAt(2), None),
    ]
    for number, (watch, on_parts) in enumerate(stops):
        run = SelfImprovement(config, tmp_path / "parts", device="cpu", watch=watch, on_parts=on_parts)
        with pytest.raises(StopError):
            run.run(resume=True)
        assert len(run.done) == number
    run = SelfImprovement(config, tmp_path / "parts", device="cpu", watch=StopAt(-1))
    assert run.run(resume=True)
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    mine, theirs = (read_label_file(tmp_path / name / "round-2" / "labels.npz") for name in ("parts", "whole"))
    np.testing.assert_array_equal(mine.costs(), theirs.costs())
    more = configured(tmp_path, "TSP", "rounds=3")
    again = SelfImprovement(more, tmp_path / "parts", device="cpu", watch=StopAt(-1))
    assert again.run(resume=True)
    assert len(again.done) == 7


def test_it_starts_from_a_given_model_and_pauses(tmp_path):
    config = configured(tmp_path, "CVRP", "rounds=1", "train.steps=4")
    save_model(tiny_model(PROBLEMS["CVRP"]), tmp_path / "w.safetensors")
    words = {"init": tmp_path / "w.safetensors", "device": "cpu", "watch": StopAt(-1)}
    assert not SelfImprovement(config, tmp_path / "run", pause=0.0, **words).run()
    assert not (tmp_path / "run" / "steps.jsonl").exists()
    assert SelfImprovement(config, tmp_path / "run", **words).run(resume=True)
    assert [line["step_name"] for line in steps(tmp_path / "run")] == ["label", "train"]
    assert not (tmp_path / "run" / "reinforce").exists()


def test_a_run_goes_on_from_the_weights_it_began_with(tmp_path):
    """Whether they are named again or not; never from nothing, or from others."""
    config = configured(tmp_path, "TSP", "rounds=1", "train.steps=4")
    model = tiny_model(PROBLEMS["TSP"])
    save_model(model, tmp_path / "w.safetensors")
    with torch.no_grad():
        model.head.weight += 1
    save_model(model, tmp_path / "other.safetensors")
    words = {"device": "cpu", "watch": StopAt(-1)}
    run = {"init": tmp_path / "w.safetensors", **words}
    assert SelfImprovement(config, tmp_path / "whole", **run).run()
    assert not SelfImprovement(config, tmp_path / "run", pause=0.0, **run).run()
    with pytest.raises(LehdError, match="began with other weights"):
        SelfImprovement(config, tmp_path / "run", init=tmp_path / "other.safetensors", **words).run(resume=True)
    assert SelfImprovement(config, tmp_path / "run", **words).run(resume=True)
    assert not (tmp_path / "run" / "reinforce").exists()
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "run"))

    assert SelfImprovement(config, tmp_path / "nothing", **words).run()
    with pytest.raises(LehdError, match="began with other weights"):
        SelfImprovement(config, tmp_path / "nothing", **run).run(resume=True)


def test_what_cannot_be_written_or_labelled_is_told(tmp_path, monkeypatch):
    config = configured(tmp_path, "TSP", "rounds=1")
    save_model(tiny_model(PROBLEMS["TSP"]), tmp_path / "w.safetensors")
    words = {"init": tmp_path / "w.safetensors", "device": "cpu", "watch": StopAt(-1)}
    (tmp_path / "file").write_text("")
    with pytest.raises(LehdError, match="expected a folder"):
        SelfImprovement(config, tmp_path / "file", **words).run()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_atomically", full)
        with pytest.raises(LehdError, match=r"full: cannot write \(No space left on device\); --resume goes on"):
            SelfImprovement(config, tmp_path / "full", **words).run()
    failed = Parts(0, 3, failures=("0: out of luck",))
    monkeypatch.setattr(module, "improve", lambda *_: failed)
    with pytest.raises(LehdError, match="1 part could not be labelled; 0: out of luck"):
        SelfImprovement(config, tmp_path / "run", **words).run()


def test_labels_made_by_several_processes_are_the_same(tmp_path):
    save_model(tiny_model(PROBLEMS["TSP"]), tmp_path / "w.safetensors")
    for name, change in (("one", "rounds=1"), ("two", "label.processes=2")):
        config = configured(tmp_path, "TSP", "rounds=1", "train.steps=2", change)
        run = SelfImprovement(config, tmp_path / name, init=tmp_path / "w.safetensors", device="cpu", watch=StopAt(-1))
        assert run.run()
    one, two = (load_labels(tmp_path / name / "round-1" / "labels.npz") for name in ("one", "two"))
    assert torch.equal(one.solution.nodes, two.solution.nodes)


def test_one_command(tmp_path):
    configured(tmp_path)
    words = ["train", tmp_path / "si.toml", "--output", tmp_path / "run", "--device", "cpu", "--set", "rounds=1"]
    done = lehd_command(*words)
    assert done.exit_code == 0, done.stderr
    assert "label cost" in done.stdout
    assert "round 1, label: done in" in done.stderr
    again = lehd_command(*words)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    module = [sys.executable, "-m", "lehd.training.loop", *map(str, words[1:]), "--resume"]
    bare = subprocess.run(module, capture_output=True, text=True)
    assert bare.returncode == 0, bare.stderr
    assert "all rounds done" in bare.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("rounds=0", "rounds"),
        ("label.instances=150", "multiple of 100"),
        ('label.recipe="soup"', "soup"),
        ("label.speed=3", "speed"),
        ("label.gpus=0.5", "--processes or --cluster"),
        ("train.steps=null", "give one"),
        ("extra=1", "extra"),
        ('train.method="reinforce"', "go together"),
        ('reinforce.problem="CVRP"', "draws no CVRP"),
    ],
)
def test_bad_configurations_are_refused(tmp_path, change, message):
    with pytest.raises(LehdError, match=message):
        configured(tmp_path, "TSP", change)


def test_references_must_fit(tmp_path):
    label("uniform_tsp", 8, range(2), tmp_path, Alone(), Pool(1))
    merge(tmp_path, "uniform_tsp", 8, tmp_path / "both.npz")
    file = read_label_file(tmp_path / "both.npz")
    assert gap_to_reference(file, tmp_path / "both.npz") == 0
    label("uniform_tsp", 8, range(5, 6), tmp_path / "far", Alone(), Pool(1))
    merge(tmp_path / "far", "uniform_tsp", 8, tmp_path / "far.npz")
    with pytest.raises(LehdError, match="none of its shards"):
        gap_to_reference(file, tmp_path / "far.npz")
    label("uniform_tsp", 9, range(1), tmp_path / "nine", Alone(), Pool(1))
    merge(tmp_path / "nine", "uniform_tsp", 9, tmp_path / "nine.npz")
    with pytest.raises(LehdError, match="with 8 nodes"):
        gap_to_reference(file, tmp_path / "nine.npz")


def test_nothing_to_start_from_is_told(tmp_path, monkeypatch):
    config = configured(tmp_path)
    with pytest.raises(LehdError, match="nothing to start from"):
        SelfImprovement(replace(config, reinforce=None), tmp_path / "run").run()
    missing = configured(tmp_path, "TSP", 'label.reference="nobody.npz"')
    with pytest.raises(LehdError, match=r"nobody\.npz"):
        SelfImprovement(missing, tmp_path / "run").run()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LehdError, match="one process"):
        SelfImprovement(config, tmp_path / "run").run()


@pytest.mark.parametrize("name", ["si_tsp100", "si_cvrp100"])
def test_the_shipped_configurations_are_valid(name, request):
    path = request.config.rootpath / "configs" / f"{name}.toml"
    config = make_self_improve(read_table(path), path)
    assert config.label.customers == 100
    assert config.reinforce is not None
