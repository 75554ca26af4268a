"""The mean of several models."""

from dataclasses import replace

import pytest
import torch

from lehd.errors import LehdError
from lehd.model.average import average
from lehd.model.checkpoint import load_model, save_model
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from tests.builders import tiny_model
from tests.cli.command import lehd_command


def some(count, **changes):
    config = replace(tiny_model(PROBLEMS["TSP"]).config, **changes)
    models = []
    for seed in range(count):
        torch.manual_seed(seed)
        models.append(LEHD(config))
    return models


def test_every_weight_is_the_mean_by_shares():
    models = some(3)
    before = [{name: w.clone() for name, w in model.state_dict().items()} for model in models]
    mean = average(models, [1, 2, 5]).state_dict()
    for name, found in mean.items():
        torch.testing.assert_close(found, (before[0][name] + 2 * before[1][name] + 5 * before[2][name]) / 8)
    for model, state in zip(models, before):  # which stay as they were
        assert all(torch.equal(w, state[name]) for name, w in model.state_dict().items())
    equally = average(models[:2]).state_dict()
    torch.testing.assert_close(equally["head.weight"], (before[0]["head.weight"] + before[1]["head.weight"]) / 2)


def test_the_mean_of_a_model_with_itself_is_the_model():
    (model,) = some(1)
    for name, w in average([model] * 3, [0.2, 0.5, 0.1]).state_dict().items():
        assert torch.equal(w, model.state_dict()[name])


def test_counters_are_those_of_the_last():
    models = some(2, norm="batch")
    for number, model in enumerate(models):
        for name, buffer in model.named_buffers():
            if name.endswith("num_batches_tracked"):
                buffer.fill_(10 + number)
    counters = [w for name, w in average(models).state_dict().items() if name.endswith("num_batches_tracked")]
    assert counters
    assert all(int(counter) == 11 for counter in counters)


@pytest.mark.parametrize("shares", [[1.0], [1.0, -1.0], [float("nan"), 1.0]])
def test_shares_that_make_no_mean_are_refused(shares):
    with pytest.raises(LehdError, match="shares"):
        average(some(2), shares)


def test_models_of_other_sizes_are_refused():
    with pytest.raises(LehdError, match="other sizes"):
        average([*some(1), *some(1, decoder_layers=3)])


def test_one_command(tmp_path):
    first, second = some(2)
    save_model(first, tmp_path / "a.safetensors")
    save_model(second, tmp_path / "b.safetensors")
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    done = lehd_command("average", *files, "--shares", "3,1", "--half", "--output", tmp_path / "mean.safetensors")
    assert done.exit_code == 0, done.stderr
    found = load_model(tmp_path / "mean.safetensors")
    wanted = (0.75 * first.head.weight + 0.25 * second.head.weight).detach()
    torch.testing.assert_close(found.head.weight.detach(), wanted, rtol=1e-3, atol=1e-4)
    assert (tmp_path / "mean.safetensors").stat().st_size < 0.7 * files[0].stat().st_size
    wrong = lehd_command("average", *files, "--shares", "3,x", "--output", tmp_path / "other.safetensors")
    assert wrong.exit_code == 2
    assert "--shares 3,x" in wrong.stderr
    assert not (tmp_path / "other.safetensors").exists()
