import numpy as np
import pytest

from lehd.bench.uniform import load_set, measure
from lehd.errors import LehdError


def test_gaps_are_ratios_of_means_at_every_budget(tmp_path):
    coords = np.random.default_rng(0).random((4, 15, 2))
    np.savez(tmp_path / "small.npz", coords=coords, ref_cost=np.array([3.0, 4.0, 3.5, 3.5]), source="here")
    records = measure(tmp_path / "small.npz", [2, 4], None, None, "cpu")
    assert [record["method"] for record in records] == ["greedy", "RRC 2", "RRC 4"]
    for record in records:
        assert record["gap"] == pytest.approx((record["cost"] / 3.5 - 1) * 100)
    assert records[0]["cost"] >= records[1]["cost"] >= records[2]["cost"]
    assert len(load_set(tmp_path / "small.npz", limit=2)[0]) == 2
    with pytest.raises(LehdError, match="none"):
        load_set(tmp_path / "none.npz")


def test_a_set_without_references_is_refused(tmp_path):
    np.savez(tmp_path / "bare.npz", coords=np.zeros((1, 4, 2)))
    with pytest.raises(LehdError, match="ref_cost"):
        load_set(tmp_path / "bare.npz")
