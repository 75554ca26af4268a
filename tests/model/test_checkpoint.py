import json

import pytest
import torch
from safetensors.torch import save_file

from lehd.errors import LehdError
from lehd.model.checkpoint import fingerprint, load_model, save_model, shipped_weights
from lehd.problems import PROBLEMS
from tests.builders import tiny_model


def test_a_saved_model_comes_back(tmp_path):
    model = tiny_model(PROBLEMS["CVRP"], norm="batch")
    save_model(model, tmp_path / "deep" / "m.safetensors")
    again = load_model(tmp_path / "deep" / "m.safetensors")
    assert again.config == model.config
    assert fingerprint(again) == fingerprint(model)
    assert not again.training


def test_half_precision_is_half_the_size_and_loads_as_single(tmp_path):
    model = tiny_model(PROBLEMS["TSP"], dim=64)
    save_model(model, tmp_path / "full.safetensors")
    save_model(model, tmp_path / "half.safetensors", half=True, notes={"trained": "never"})
    assert (tmp_path / "half.safetensors").stat().st_size < 0.6 * (tmp_path / "full.safetensors").stat().st_size
    half = load_model(tmp_path / "half.safetensors")
    assert all(p.dtype == torch.float32 for p in half.parameters())
    for a, b in zip(half.parameters(), model.parameters()):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("problem", ["TSP", "CVRP"])
def test_shipped_weights_fit_their_problem(problem):
    model = load_model(shipped_weights(problem))
    assert model.config.num_features == PROBLEMS[problem].num_features
    assert model.config.actions_per_node == PROBLEMS[problem].actions_per_node
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_bad_weight_files_are_refused(tmp_path):
    file = tmp_path / "w.safetensors"
    with pytest.raises(LehdError, match="no such"):
        load_model(file)
    file.write_bytes(b"not weights at all")
    with pytest.raises(LehdError, match="safetensors"):
        load_model(file)
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(LehdError, match="configuration"):
        load_model(file)
    save_file({"a": torch.zeros(1)}, file, {"config": "[1]"})
    with pytest.raises(LehdError, match="configuration"):
        load_model(file)
    broken = tiny_model(PROBLEMS["TSP"])
    with torch.no_grad():
        broken.head.bias.fill_(float("inf"))
    save_model(broken, file)
    with pytest.raises(LehdError, match="not finite"):
        load_model(file)
    save_file({"a": torch.zeros(1)}, file, {"config": json.dumps({"dim": 16, "heads": 2})})
    with pytest.raises(LehdError, match="do not fit"):
        load_model(file)
    save_file({"a": torch.zeros(1)}, file, {"config": json.dumps({"dim": 16, "heads": 2, "depth": 3})})
    with pytest.raises(LehdError, match="depth"):
        load_model(file)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    model = tiny_model(PROBLEMS["TSP"])
    save_model(model, tmp_path / "m.safetensors")
    before = (tmp_path / "m.safetensors").read_bytes()
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        save_model(tiny_model(PROBLEMS["TSP"], seed=1), tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]
