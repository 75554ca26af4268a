import numpy as np
import pytest

from lehd.data.dataset import SHARD, draw_shard, load_labels
from lehd.labels.pool import label_shard, merge
from lehd.problems import of

pytest.importorskip("hygese")


def test_labels_are_feasible_good_and_merge_into_one_file(tmp_path):
    for shard in (0, 1):
        label_shard("varied_cvrp", 8, shard, 0.003, tmp_path)
    assert merge(tmp_path, "varied_cvrp", 8, tmp_path / "all.npz") == 2 * SHARD
    labelled = load_labels(tmp_path / "all.npz")  # checks feasibility and costs
    assert len(labelled) == 2 * SHARD
    np.testing.assert_array_equal(labelled.instances.coords[SHARD:].numpy(), draw_shard("varied_cvrp", 8, 1).coords)
    instances = labelled.instances
    sweep = of(instances).cost(instances, of(instances).cheap_start(instances))
    assert (of(instances).cost(instances, labelled.solution) <= sweep + 1e-4).all()
