"""A Ray cluster of three small machines, simulated on this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from lehd.bench.elsewhere import Elsewhere
from lehd.bench.sets import Options
from lehd.bench.store import Store
from lehd.bench.uniform import run_uniform
from lehd.bench.watch import Watch
from lehd.data.dataset import SHARD
from lehd.data.label_file import fresh_instances
from lehd.errors import LehdError
from lehd.labels.improve import improve
from lehd.labels.makers import by_model
from lehd.labels.parts import Settings
from lehd.labels.pool import label
from lehd.labels.solvers import make_solver
from lehd.problems import PROBLEMS
from lehd.work.local import Pool
from lehd.work.on_ray import WAITING, Ray, connect
from lehd.work.run import ATTEMPTS, run_units
from lehd.work.units import Failure, Needs, Unit
from tests.builders import tiny_model
from tests.work.cluster import MEMORY, small_cluster
from tests.work.jobs import Troubled, machine_of, numbered, read_for_ten, slow, where

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    with small_cluster(machines=3) as started:
        yield started
        ray.shutdown()


@pytest.fixture
def engine(cluster):
    return Ray(cluster.address)


def test_every_unit_is_answered_whatever_becomes_of_the_others(engine, tmp_path):
    trouble = {3: "crash", 4: "crash-once", 11: "raise"}
    job = Troubled(trouble, tmp_path)
    found = list(run_units(numbered(20), job, engine))
    assert sorted(unit.content for unit, _ in found) == list(range(20))
    results = {unit.content: result for unit, result in found}
    for number in range(20):
        bad = trouble.get(number) in ("crash", "raise")
        assert isinstance(results[number], Failure) if bad else results[number] == 2 * number
        assert job.attempts(number) == (ATTEMPTS if bad else 2 if number == 4 else 1)
    assert results[3].reason == "its process died"
    assert results[11].reason == "ValueError: 11"


def test_a_unit_that_hangs_is_ended(engine, tmp_path):
    job = Troubled({1: "hang"}, tmp_path)
    results = {unit.content: result for unit, result in run_units(numbered(3), job, engine, patience=1.0, attempts=1)}
    assert (results[0], results[2]) == (0, 4)
    assert "after 1 s" in results[1].reason


def test_units_are_read_as_they_are_needed(engine):
    assert read_for_ten(engine) <= 10 + 2 * WAITING * 3  # what was done since the last look, and what is given now


def test_all_machines_work_and_each_has_its_share_of_cores(engine):
    processes = set()
    running = run_units(numbered(2000), slow, engine)
    while len(processes) < 3:  # or the units come to an end
        process, threads, _ = next(running)[1]
        processes.add(process)
        assert threads == "1"
    running.close()
    with pytest.raises(LehdError, match="2 cores and 1 GPUs"):
        engine.start(where, Needs(cores=2, gpus=1))


def test_machines_may_join_and_be_lost(cluster, engine):
    read, results = [], Counter()
    node, last = None, 2000  # until the new machine has worked; it is killed then, in the middle of its units

    def units():
        while len(read) < last:
            read.append(len(read))
            yield Unit(f"unit-{read[-1]}", read[-1])

    for unit, machine in run_units(units(), machine_of, engine):
        assert not isinstance(machine, Failure), machine
        results[unit.content] += 1
        if node is None:
            node = cluster.add_node(num_cpus=2, object_store_memory=MEMORY)
        elif machine == node.node_id and last == 2000:
            cluster.remove_node(node, allow_graceful=False)
            last = len(read) + 40
    assert last < 2000
    assert results == Counter(read)


def test_labels_with_an_iteration_limit_are_those_of_the_local_pool(engine, tmp_path):
    pytest.importorskip("hygese")
    solver = make_solver("CVRP", "hgs", iterations=20)
    for name, each in (("ray", engine), ("pool", Pool(2))):
        progress = label("uniform_cvrp", 10, range(2), tmp_path / name, solver, each)
        assert (progress.shards, progress.instances, progress.failed) == (2, 2 * SHARD, 0)
    assert_same_files(tmp_path / "ray", tmp_path / "pool", "*.npz", 2)


def test_parts_by_a_model_are_those_of_this_process(engine, tmp_path):
    file, model = fresh_instances("uniform_cvrp", 9, range(1)), tiny_model(PROBLEMS["CVRP"])
    for name, each in (("ray", engine), ("pool", Pool(2)), ("here", None)):
        maker = by_model(file, model, torch.device("cpu"), Settings(3, batch=30, seed=5))
        progress = improve(maker, file, tmp_path / name, engine=each)
        assert progress.complete
    for name in ("ray", "pool"):
        assert_same_files(tmp_path / name, tmp_path / "here", "part-*.npz", 4)


def test_benches_find_what_one_process_finds(engine, tmp_path):
    np.savez(tmp_path / "small.npz", coords=np.random.default_rng(0).random((4, 15, 2)), ref_cost=np.ones(4))
    options = Options((2,), batch=2, device="cpu")
    found = [
        run_uniform([tmp_path / "small.npz"], options, Store(), Watch()),
        Elsewhere(options, Store(), Watch(), engine, Needs()).uniform([tmp_path / "small.npz"]),
    ]
    here, there = ({(each.instance, each.budget): each.cost for each in records} for records in found)
    assert len(there) == 8
    assert there == pytest.approx(here, rel=1e-6)  # their last digits may depend on the number of threads


def assert_same_files(first, second, pattern, count):
    assert len(list(first.glob(pattern))) == len(list(second.glob(pattern))) == count
    for path in first.glob(pattern):
        with np.load(path) as mine, np.load(second / path.name) as other:
            assert mine.files == other.files
            for name in set(mine.files) - {"seconds"}:  # that parts took
                np.testing.assert_array_equal(mine[name], other[name])


def test_a_driver_that_was_killed_is_started_again(cluster, tmp_path):
    pytest.importorskip("hygese")
    words = [sys.executable, "-m", "lehd.labels.pool", "uniform_cvrp", tmp_path / "ray", "--customers", "8"]
    words += ["--shards", "0", "6", "--iterations", "20", "--cluster", cluster.address]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("1/6 shards")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "ray").glob("*.npz")}
    assert 1 <= len(before) < 6
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{6 - len(before)}/{6 - len(before)} shards" in done.stdout
    for name, written in before.items():
        assert (tmp_path / "ray" / name).stat().st_mtime_ns == written  # not made again
    label("uniform_cvrp", 8, range(6), tmp_path / "pool", make_solver("CVRP", "hgs", iterations=20), Pool(2))
    assert_same_files(tmp_path / "ray", tmp_path / "pool", "*.npz", 6)


def test_clusters_that_are_not_there_are_told(monkeypatch):
    ray.shutdown()
    for address, message in (("127.0.0.1:1", "no Ray cluster answers"), ("soup", "expected local")):
        with pytest.raises(LehdError, match=message):
            connect(address)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LehdError, match=r"lehd\[ray\]"):
        connect("auto")


def test_nothing_is_sent_to_rays_makers():
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
