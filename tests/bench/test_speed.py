from pathlib import Path

import pytest
import torch

from lehd.bench import speed as bench
from lehd.bench.arithmetic import construction_flops, construction_tokens
from lehd.bench.machine import forget_peak, peak_memory
from lehd.bench.speed import GREEDY, RRC, measure, read_speeds, run_speed, table
from lehd.errors import LehdError
from lehd.model.checkpoint import load_model, shipped_weights


@pytest.fixture(scope="module")
def model():
    return load_model(shipped_weights("CVRP"))


def test_what_is_counted_is_what_the_model_does(model):
    found = measure(model, "CVRP", 12, 3, GREEDY, 0.0, 1e9)
    assert found.rounds == 1
    assert found.tokens == construction_tokens(3, 12)
    # The encoder sees the depot as well.
    assert found.flops == pytest.approx(construction_flops(model.config, 3, 12), rel=0.01)
    assert "score" not in vars(model)
    reconstructed = measure(model, "CVRP", 12, 3, RRC, float("inf"), 1e9)
    assert reconstructed.rounds == bench.ROUNDS_OF_RRC
    assert reconstructed.tokens < found.tokens


def test_the_nearest_in_view_are_measured_beside_all(model):
    assert bench.modes(100, 100) == [GREEDY, RRC]
    assert bench.modes(101, 100) == [GREEDY, "greedy, 100 nearest", RRC]
    all_of_them, some = (measure(model, "CVRP", 12, 3, mode, 0.0, 1e9) for mode in (GREEDY, "greedy, 4 nearest"))
    assert all_of_them.tokens == 3 * sum(left + 2 for left in range(1, 13))
    assert some.tokens == 3 * sum(min(left, 4) + 2 for left in range(1, 13))


def test_rows_are_kept_and_out_of_memory_is_one(tmp_path, monkeypatch):
    def hungry(model, problem, nodes, batch, *rest):
        if batch > 1:
            raise torch.OutOfMemoryError
        return time(model, problem, nodes, batch, *rest)

    time = bench._time
    monkeypatch.setattr(bench, "_time", hungry)
    monkeypatch.setattr(bench, "matmul_ceiling", lambda device: 1e9)
    path = tmp_path / "s.jsonl"
    speeds = run_speed(["CVRP"], [6, 5], [2, 1], "cpu", 0.0, path)
    assert [(each.nodes, each.batch, each.mode, bool(each.error)) for each in speeds] == [
        (size, batch, mode, batch == 2) for size in (5, 6) for batch in (1, 2) for mode in (GREEDY, RRC)
    ]
    monkeypatch.setattr(bench, "_time", lambda *_: pytest.fail("it is there"))
    assert run_speed(["CVRP"], [5, 6], [1, 2], "cpu", 0.0, path) == read_speeds(path) == speeds
    lines = table(speeds).splitlines()
    on = speeds[0].device
    assert f"| CVRP | 5 | 2 | greedy | out of memory | - | - | - | - | {on} |" in lines
    path.write_text("nonsense\n")
    with pytest.raises(LehdError, match="line 1"):
        read_speeds(path)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says")
def test_the_peak_of_memory_on_a_cpu_is_what_was_held_since():
    cpu = torch.device("cpu")
    forget_peak(cpu)
    before = peak_memory(cpu)
    large = torch.ones(100_000_000)  # 0.37 GiB
    assert peak_memory(cpu) > before + 0.3
    del large
    forget_peak(cpu)
    assert peak_memory(cpu) < before + 0.3
