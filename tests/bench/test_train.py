from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lehd.bench.arithmetic import construction_flops, construction_tokens, decision_flops, layer_flops
from lehd.bench.breakdown import group_of, put_together
from lehd.bench.train import CONFIGURED, EAGER, CountingFeed, measure
from lehd.errors import LehdError
from lehd.model.lehd import ModelConfig
from lehd.training.config import TrainConfig
from lehd.training.feed import Plan
from tests.training.circles import circle_labels


def test_arithmetic_of_a_layer_by_hand():
    config = ModelConfig(dim=2, heads=1, feed_forward=3, decoder_layers=2)
    # 5 nodes: 4 · 2² + 2 · 2 · 3 weights each, and 2 products of length 2 with each of 5 nodes; 2 operations for each
    assert layer_flops(config, 1, 5) == 5 * 2 * (28 + 2 * 2 * 5)
    assert decision_flops(config, 7, 3, 4) == 2 * layer_flops(config, 7, 5) + layer_flops(config, 7, 4)
    steps = sum(decision_flops(config, 1, left) for left in (3, 2, 1))
    assert construction_flops(config, 1, 3) == steps + layer_flops(config, 1, 3)
    assert construction_tokens(2, 3) == 2 * (3 + 2 + 1 + 3 * 2)


@pytest.mark.parametrize(("share", "passes"), [(1.0, 3), (0.25, 1.75)])
def test_decisions_that_are_only_looked_at_cost_one_pass(share, passes):
    """Forward and backward is three; with a share below 1 all are looked at first."""
    config = TrainConfig(steps=1, model=ModelConfig(dim=2, heads=1, feed_forward=3, decoder_layers=2))
    plan = Plan(7, 4, 3, draw=lambda rows: None, share=share)
    feed = CountingFeed(SimpleNamespace(next=lambda: plan), config)
    assert feed.next() is plan
    assert feed.flops == passes * decision_flops(config.model, 7, 3, 4)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "attention"),
        ("void pytorch_flash::flash_fwd_kernel<...>", "attention"),
        ("attention_backward", "attention"),
        ("after_attention_backward", "matmul"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "matmul"),
        ("sm90_xmma_gemm_bf16f32_bf16f32_f32_tn_n", "matmul"),
        ("aten::mm", "matmul"),
        ("aten::addmm", "matmul"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<... FusedAdamMathFunctor<...>>",
            "optimizer",
        ),
        ("Memcpy DtoD (Device -> Device)", "moving data"),
        ("void at::native::index_elementwise_kernel<128, 4, ...>", "moving data"),
        ("triton_poi_fused_relu_threshold_backward_0", "elementwise"),
        ("aten::comments", "elementwise"),
    ],
)
def test_kernels_fall_into_groups(name, group):
    assert group_of(name) == group


def test_what_is_left_of_the_time_is_the_hosts():
    parts = put_together({"aten::mm": 2.0, "aten::bmm": 1.0, "aten::relu": 1.0}, seconds=5.0, most=1)
    assert parts.shares() == {
        "optimizer": 0,
        "attention": 0,
        "matmul": 0.6,
        "moving data": 0,
        "elementwise": 0.2,
        "host gaps": 0.2,
    }
    assert parts.largest == (("matmul", "aten::mm", 2.0),)
    assert put_together({"aten::mm": 2.0}, seconds=1.0, most=1).shares()["matmul"] == 1.0


def test_both_ways_go_through_the_same_steps(tmp_path):
    coords, tours = circle_labels()
    np.savez(tmp_path / "circles.npz", coords=coords, nodes=tours)
    model = ModelConfig(dim=16, heads=2, feed_forward=16, decoder_layers=2)
    config = TrainConfig(data=("circles.npz",), held_out=4, steps=10, tokens=256, model=model)
    speeds = list(measure(config, "toy", tmp_path, 0.05, warmup=2, device="cpu"))
    assert [speed.variant for speed in speeds] == [CONFIGURED, EAGER]
    for speed in speeds:
        assert speed.steps > 0
        assert speed.tokens <= speed.steps * 256 * 1.5
        assert speed.flops > 6 * speed.tokens * 2 * (4 * 16**2 + 2 * 16 * 16)  # two layers, three times each
        assert sum(speed.shares.values()) == pytest.approx(1, abs=0.01)
        assert speed.line()["tokens_per_second"] == round(speed.tokens / speed.seconds)
    with pytest.raises(LehdError, match="label files"):
        next(measure(TrainConfig(steps=1), "none", tmp_path, 1.0))
    with pytest.raises(LehdError, match="reinforce"):
        next(measure(replace(config, method="reinforce"), "toy", tmp_path, 1.0, device="cpu"))
