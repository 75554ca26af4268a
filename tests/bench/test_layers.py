"""The table of ways to compute the decoder's layers on a CPU."""

import pytest
import torch

from lehd.bench import layers
from lehd.model import native


def test_every_way_computes_the_same_in_its_precision(monkeypatch):
    found = {}

    def watch(name):
        way = getattr(layers, name)

        def watched(stack, x):
            y = way(stack, x)
            found.setdefault((name, torch.is_autocast_enabled("cpu")), y)
            return y

        monkeypatch.setattr(layers, name, watched)

    for name in ("own_code", "run_half", "run_native"):
        watch(name)
    best = layers.measure(3, 40, rounds=1)
    assert all(0 < seconds < 60 for seconds in best.values())
    exact = found["own_code", False]
    for (name, half), y in found.items():
        error = float((y - exact).norm() / exact.norm())
        assert error < 1e-4 or ((half or name == "run_half") and error < 0.01), (name, half, error)
    assert len(found) == len(best)


def test_the_table_has_what_this_machine_has(monkeypatch, capsys):
    monkeypatch.setattr(layers, "measure", lambda rows, nodes, rounds: {layers.OWN_CODE: 0.004, layers.KERNEL: 0.001})
    layers.main(["--shapes", "2x30"])
    assert "| 2 x 30 | 4.00 | - | 1.00 x4.0 | - |" in capsys.readouterr().out
    monkeypatch.setattr(layers, "kernel", lambda: None)
    assert list(layers.ways()) == [layers.OWN_CODE, layers.TORCH_HALF]
    if native.kernel() is not None:
        monkeypatch.undo()
        assert layers.KERNEL in layers.ways()


@pytest.mark.parametrize("shape", ["30", "2xa", "0x3", "1x2x3"])
def test_shapes_are_rows_and_nodes(shape):
    with pytest.raises(SystemExit, match="16x100"):
        layers.main(["--shapes", shape])
