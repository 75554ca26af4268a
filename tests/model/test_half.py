"""Half precision on a CPU by torch's products, where there is no compiled kernel, beside single precision."""

import pytest
import torch

import lehd
from lehd.decoding.construct import construct
from lehd.model import half as half_file
from lehd.model import lehd as model_file
from lehd.model import native, precision
from lehd.model.attention import AttentionLayer
from lehd.model.checkpoint import load_model, shipped_weights
from lehd.model.half import LEAST, halvable, run_half
from lehd.model.precision import HALF, half_copies, in_half, inference
from lehd.problems import of
from tests.builders import cvrp, tsp

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_kernel(monkeypatch):
    monkeypatch.setattr(native, "kernel", lambda: None)


def stack(norm="none"):
    torch.manual_seed(0)
    return [AttentionLayer(32, 4, 64, norm).eval() for _ in range(3)]


@pytest.mark.parametrize(("rows", "length"), [(1, 2), (5, 17), (32, 40), (64, 33)])
def test_half_precision_is_the_same_function_but_for_rounding(rows, length):
    layers, x = stack(), torch.randn(rows, length, 32)
    before = x.clone()
    with torch.no_grad():
        found, wanted = run_half(layers, x), x
        for layer in layers:
            wanted = layer(wanted)
    assert torch.equal(x, before)
    assert found.dtype == torch.float32
    assert 0 < float((found - wanted).norm() / wanted.norm()) < 0.01


def test_it_is_used_where_asked_for_and_nowhere_else():
    layers, x = stack(), torch.randn(LEAST // 8, 8, 32)
    with in_half(True), inference(CPU):
        assert halvable(layers, x)
        assert not halvable(layers, x[1:])
        assert not halvable(stack("batch"), x)
        with torch.enable_grad():
            assert not halvable(layers, x)
    with inference(CPU):
        assert not halvable(layers, x)
    with in_half(True), in_half(False), inference(CPU):
        assert not halvable(layers, x)


def test_where_nodes_are_missing_single_precision_does_it():
    layers, x = stack(), torch.randn(LEAST // 8, 8, 32)
    with in_half(True), inference(CPU):
        found = model_file.run(layers, x, torch.tensor(5))[:, :5]
    with inference(CPU):
        torch.testing.assert_close(found, model_file.run(layers, x[:, :5]), atol=1e-5, rtol=1e-5)


def test_few_tokens_are_as_exact_as_in_single_precision():
    """Not left to torch's own half precision, which is slower."""
    layers, x = stack(), torch.randn(2, 5, 32)
    with in_half(True), inference(CPU):
        found = model_file.run(layers, x)
    with inference(CPU):
        assert torch.equal(found, model_file.run(layers, x))


def test_numbers_of_tokens_that_a_product_sees_are_few(monkeypatch):
    """Each of them costs a preparation."""
    layers, seen = stack(), set()

    def linear(x, *rest, before=torch.nn.functional.linear):
        seen.add(len(x))
        return before(x, *rest)

    monkeypatch.setattr(half_file.functional, "linear", linear)
    with in_half(True), inference(CPU):
        for length in range(20, 120):
            model_file.run(layers, torch.zeros(40, length, 32))
    assert len(seen) <= 34


def test_copies_of_the_weights_are_made_once_and_forgotten_afterwards():
    (layer,) = stack()[:1]
    with in_half(True):
        with inference(CPU):
            (first,) = half_copies([layer])
        with inference(CPU):
            assert half_copies([layer])[0] is first
    layer.qkv.weight.data.zero_()
    with in_half(True), inference(CPU):
        assert not half_copies([layer])[0][0].any()
        assert half_copies([layer])[0][0].dtype == HALF


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_tours_in_half_precision_are_as_short(make, monkeypatch):
    """Of the shipped models, on 16 instances of 40 nodes; most are even the same."""
    monkeypatch.setattr(half_file, "LEAST", 1)
    instances = make(16, 40, seed=3)
    problem = of(instances)
    model, state = load_model(shipped_weights(problem.name)), problem.initial_state(instances)
    costs = []
    for half in (False, True):
        with in_half(half):
            rollout = construct(model, problem, instances, state)
        costs.append(problem.cost(instances, problem.complete(state, rollout)))
    assert float(costs[1].mean() / costs[0].mean()) == pytest.approx(1, abs=0.01)
    assert int((costs[0] == costs[1]).sum()) > 8


def test_a_time_limit_uses_it_where_the_processor_has_it(monkeypatch):
    used = []
    monkeypatch.setattr(half_file, "LEAST", 1)
    monkeypatch.setattr(model_file, "run_half", lambda layers, x: used.append(1) or x)
    coords = torch.rand(6, 2, generator=torch.Generator().manual_seed(0))
    for has, options, expected in [
        (True, {"time_limit": 0.5}, True),
        (False, {"time_limit": 0.5}, False),
        (True, {"rrc": 2}, False),  # the same on every processor
        (False, {"rrc": 2, "half": True}, True),
        (True, {"time_limit": 0.5, "half": False}, False),
    ]:
        used.clear()
        monkeypatch.setattr("lehd.solver.cpu_has_half", lambda has=has: has)
        lehd.solve(coords, device="cpu", **options)
        assert bool(used) == expected, (has, options)


def test_a_version_of_torch_that_does_not_tell_means_no(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    precision.cpu_has_half.cache_clear()
    assert precision.cpu_has_half() is False
    precision.cpu_has_half.cache_clear()
