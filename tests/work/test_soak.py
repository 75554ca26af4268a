"""Two thousand units of labels on a cluster that loses a machine and its driver: every result once, and the same.

pytest -m soak -s tests/work/test_soak.py
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from lehd.data.dataset import SHARD, load_labels
from lehd.labels.pool import UNIT_SECONDS, label, merge
from lehd.labels.solvers import make_solver
from lehd.work.local import Pool
from tests.work.cluster import small_cluster
from tests.work.test_on_ray import assert_same_files

pytestmark = pytest.mark.soak
UNITS, CUSTOMERS, ITERATIONS = 2000, 20, 100


def test_labels_survive_the_loss_of_a_machine_and_of_the_driver(tmp_path):
    pytest.importorskip("ray")
    pytest.importorskip("hygese")
    solver = make_solver("CVRP", "hgs", iterations=ITERATIONS)
    in_a_shard = -(-SHARD // round(UNIT_SECONDS / solver.seconds))
    shards = UNITS // in_a_shard
    with small_cluster(machines=3) as cluster:
        words = [sys.executable, "-m", "lehd.labels.pool", "uniform_cvrp", tmp_path / "ray", "--customers", CUSTOMERS]
        words += ["--shards", 0, shards, "--iterations", ITERATIONS, "--cluster", cluster.address]
        words = list(map(str, words))
        begun = time.perf_counter()
        driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        lost = next(iter(cluster.worker_nodes))
        for line in driver.stdout:
            finished = int(line.split("/")[0])
            if finished == shards // 3:
                cluster.remove_node(lost, allow_graceful=False)
                print(f"machine killed after {finished} of {shards} shards")
            if finished == 2 * shards // 3:
                driver.kill()  # -9
                print(f"driver killed after {finished} shards")
                break
        driver.communicate()
        before = {path.name: path.read_bytes() for path in (tmp_path / "ray").glob("*.npz")}
        assert 2 * shards // 3 <= len(before) < shards
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        assert f"{shards - len(before)}/{shards - len(before)} shards" in done.stdout
        print(f"{shards * in_a_shard} units on Ray: {time.perf_counter() - begun:.0f} s, started twice")
    assert all((tmp_path / "ray" / name).read_bytes() == data for name, data in before.items())
    begun = time.perf_counter()
    label("uniform_cvrp", CUSTOMERS, range(shards), tmp_path / "pool", solver, Pool(2))
    print(f"on two processes of this machine: {time.perf_counter() - begun:.0f} s")
    assert_same_files(tmp_path / "ray", tmp_path / "pool", "*.npz", shards)
    assert merge(tmp_path / "ray", "uniform_cvrp", CUSTOMERS, tmp_path / "ray.npz") == shards * SHARD
    labelled = load_labels(tmp_path / "ray.npz")  # checks every solution
    assert len(np.unique(labelled.instances.coords.numpy().reshape(len(labelled), -1), axis=0)) == shards * SHARD
