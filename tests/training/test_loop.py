import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from lehd.data.dataset import Labelled, expand, from_plain, read_arrays
from lehd.errors import LehdError
from lehd.model.checkpoint import load_model
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from lehd.training import loop
from lehd.training.loop import Data, Trainer, read_config, train
from lehd.types import Instances, Solution
from tests.training.circles import CONFIG, SMALL, circle_labels, write_circles

PER_SHARD = ("shard", "ranks", "cost", "solved", "source")  # arrays of compact files


@pytest.fixture
def data(tmp_path):
    return write_circles(tmp_path)


def test_training_learns_and_leaves_a_log_and_weights(data, tmp_path):
    train(CONFIG, tmp_path / "run", data, device="cpu")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    last = lines[-1]
    assert last["step"] == 200
    assert last["skipped"] == 0
    assert last["validation_loss"] < 0.5 * np.log(4)  # guessing among the available nodes would be about log 4
    assert last["greedy_gap"] < 25
    model = load_model(tmp_path / "run" / "weights.safetensors")
    assert model.config == SMALL


def test_the_same_seed_trains_the_same_model(data, tmp_path):
    config = replace(CONFIG, steps=5)
    first, second = (train(config, tmp_path / name, data, device="cpu") for name in "ab")
    for a, b in zip(first.parameters(), second.parameters()):
        assert torch.equal(a, b)


def test_training_goes_on_from_given_weights(data, tmp_path):
    train(CONFIG, tmp_path / "first", data, device="cpu")
    again = replace(CONFIG, steps=1, learning_rate=1e-9)
    model = train(again, tmp_path / "second", data, tmp_path / "first" / "weights.safetensors", device="cpu")
    before = load_model(tmp_path / "first" / "weights.safetensors")
    for a, b in zip(model.parameters(), before.parameters()):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_labels_too_small_to_learn_from_are_refused(tmp_path):
    write_circles(tmp_path, nodes=3)
    with pytest.raises(LehdError, match=r"circle\.npz: 3 nodes to visit; expected at least 5"):
        train(CONFIG, tmp_path / "run", tmp_path, device="cpu")


def trainer(**changes):
    coords, order = circle_labels(60)
    labelled = Labelled(Instances(torch.as_tensor(coords)), Solution(torch.as_tensor(order), torch.zeros(60, 8).bool()))
    config = replace(CONFIG, held_out=10, **changes)
    torch.manual_seed(0)
    return Trainer(config, LEHD(SMALL), Data([labelled], (), 10, torch.device("cpu")), torch.device("cpu"))


def test_a_step_that_is_not_finite_is_skipped_and_counted():
    run = trainer()
    run.train_step()
    before = [p.detach().clone() for p in run.model.parameters()]
    run.data.parts[0].instances.coords.fill_(float("nan"))
    run.train_step()
    assert run.line()["skipped"] == 1
    for now, old in zip(run.model.parameters(), before):
        assert torch.isfinite(now).all()
        assert (now - old).abs().max() < 0.1


def test_the_learning_rate_warms_up_and_falls_to_zero():
    run = trainer(steps=100, warmup=10, decay_from=0.5, learning_rate=1.0)
    rates = []
    for run.step in range(101):
        rates.append(run.learning_rate())
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[50] == 1.0
    assert rates[75] == pytest.approx(0.5)
    assert rates[100] == 0.0
    run = trainer(steps=100, warmup=1, decay_from=1.0, learning_rate=1.0)
    run.step = 99
    assert run.learning_rate() == 1.0


def test_held_out_labels_are_not_trained_on():
    coords, order = circle_labels(60)
    labelled = Labelled(Instances(torch.as_tensor(coords)), Solution(torch.as_tensor(order), torch.zeros(60, 8).bool()))
    data = Data([labelled], (), 10, torch.device("cpu"))
    (validation,) = data.validation
    assert torch.equal(validation.instances.coords, labelled.instances.coords[:10])
    assert torch.equal(data.parts[0].instances.coords, labelled.instances.coords[10:])
    with pytest.raises(LehdError, match="held out"):
        Data([labelled], (), 60, torch.device("cpu"))
    data = Data([labelled, labelled.rows(slice(20))], (), (30, 5), torch.device("cpu"))  # a number for each file
    assert [len(part) for part in data.parts] == [30, 15]
    assert sum(map(len, data.validation)) == 35
    with pytest.raises(LehdError, match="label file 2 of 2 has 20 labels"):
        Data([labelled, labelled.rows(slice(20))], (), (5, 20), torch.device("cpu"))
    own = Data([labelled], (), (3, 4), torch.device("cpu"), own=True)
    assert sum(map(len, own.validation)) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 1\nsecnds = 2", "secnds"),
        ("data = []", "give one"),
        ("steps = 1\nseconds = 2.0", "give one"),
        ("steps = 0", "positive"),
        ('steps = 1\nproblem = "VRPTW"', "VRPTW"),
        ("steps = ", "x.toml"),
        ("steps = 1\n[model]\ndepth = 3", "depth"),
        ('steps = 1\ndata = ["a"]\nshares = [0.5, 0.5]', "shares"),
        ('steps = 1\ndata = ["a"]\nshares = [0]', "shares"),
        ('steps = 1\ndata = ["a", "b"]\nshares = [2, -1]', "shares"),
        ('steps = 1\ndata = ["a", "b"]\nshares = [1, nan]', "shares"),
        ('steps = 1\ndata = ["a", "b"]\nheld_out = [2]', "held_out"),
        ('steps = 1\ndata = ["a", "b"]\nheld_out = [2, 0]', "held_out"),
        ('steps = 1\ndata = ["a", "b"]\nheld_out = [2, 0.5]', "held_out"),
        ('steps = 1\ndata = ["a", "b"]\nheld_out = [2, true]', "held_out"),
        ("steps = 1\nheld_out = []", "held_out"),
        ("steps = 1\nview_share = []", "view_share"),
        ("steps = 1\nbetas = [1, 2]", "betas"),
        ("steps = 1\nweight_decay = -1", "weight_decay"),
        ("steps = 1\nweight_decay = nan", "weight_decay"),
        ("steps = 1\nlearning_rate = -1e-4", "learning_rate"),
        ("steps = 1\nlearning_rate = nan", "learning_rate"),
        ("steps = 1\nclip = -1", "clip"),
        ("steps = 1\nseed = -1", "seed"),
        ('steps = 1\nmethod = "reinforce"\nseed = -1', "seed"),
        ("seconds = nan", "positive"),
    ],
)
def test_bad_configurations_are_refused(tmp_path, text, message):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(LehdError, match=message):
        read_config(path)


@pytest.mark.parametrize("name", ["tsp100", "cvrp100"])
def test_the_shipped_configurations_are_valid(name, request):
    config = read_config(request.config.rootpath / "configs" / f"{name}.toml")
    problem = PROBLEMS[config.problem]
    assert config.model.num_features == problem.num_features
    assert config.model.num_resources == problem.num_resources
    assert config.model.actions_per_node == problem.actions_per_node


def test_large_label_files_are_announced(tmp_path, monkeypatch):
    (write_circles(tmp_path) / "circle.npz").rename(tmp_path / "round.npz")
    write_circles(tmp_path)
    config = replace(CONFIG, data=("round.npz", "circle.npz"), steps=1)
    for limit, expected in ((10**9, []), (0, ["reading round.npz", "reading circle.npz", "all are read"])):
        seen = []
        monkeypatch.setattr(loop, "LARGE_FILE", limit)
        train(config, tmp_path / f"run-{limit}", tmp_path, device="cpu", on_label=seen.append)
        assert [made.last for made in seen] == expected
        assert [(made.done, made.total) for made in seen] == [(done, 2) for done in range(len(expected))]


@pytest.mark.parametrize("name", ["tsp100", "tsp100-paper"])
def test_the_repository_has_the_labels_of_its_tsp_configurations(request, name):
    """Of each file the first shard: instances drawn again from their seeds, and feasible tours of the stored costs."""
    root = request.config.rootpath
    for file in read_config(root / "configs" / f"{name}.toml").data:
        arrays = read_arrays(root / "labels" / file)
        first = {key: array[:1] if key in PER_SHARD else array for key, array in arrays.items()}
        labelled = from_plain(expand(first))
        PROBLEMS["TSP"].check(labelled.instances, labelled.solution)
        assert len(labelled) == 100
