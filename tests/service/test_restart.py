"""Processes that die: the service's own, and its workers'."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from tests.service.conftest import Service, wait_until
from tests.service.processes import alive, workers
from tests.service.requests import demand_table, table

OPTIONS = ("--device", "cpu", "--workers", "1", "--jobs-per-minute", "10000", "--requests-per-second", "1000")


@pytest.fixture
def own(tmp_path):
    """A service that a test may kill."""
    service = Service(tmp_path / "jobs.sqlite", *OPTIONS).start()
    yield service
    service.end(signal.SIGKILL)


def test_kill_and_start_again(own):
    short = [
        own.client.post("/jobs", content=table(12, seed), params={"iterations": 1}).json()["id"] for seed in range(5)
    ]
    own.wait_for(short[-1], "done")
    finished = {identity: own.client.get(f"/jobs/{identity}").json() for identity in short}
    limit = {"time_limit": 300, "capacity": 40}
    long = own.client.post("/jobs", content=demand_table(60), params=limit).json()["id"]
    own.client.post("/jobs", content=table(12), params={"iterations": 1})
    waiting = own.client.post("/jobs", content=table(15), params={"iterations": 1}).json()["id"]
    paused = own.client.post("/jobs", content=table(16), params={"iterations": 2}).json()["id"]
    own.client.post(f"/jobs/{paused}/pause")
    wait_until(lambda: own.client.get(f"/jobs/{long}").json()["incumbent"] is not None)
    time.sleep(0.5)  # until it is written down
    second = subprocess.run(own.command, text=True, capture_output=True, timeout=60)
    assert second.returncode == 2
    assert "another `lehd serve` uses this database" in second.stderr
    pids = workers(own.process.pid)
    assert len(pids) == 1
    own.end(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids)), seconds=20)  # nobody is left behind

    own.start()
    for identity, record in finished.items():
        assert own.client.get(f"/jobs/{identity}").json() == record
    cut = own.client.get(f"/jobs/{long}").json()
    assert cut["state"] == "interrupted"
    assert cut["incumbent"] is not None
    assert own.client.get(f"/jobs/{waiting}").json()["state"] == "interrupted"
    assert own.client.get(f"/jobs/{paused}").json()["state"] == "paused"
    for identity in (waiting, paused, long):
        assert own.client.post(f"/jobs/{identity}/resume").status_code == 200
    own.wait_for(waiting, "done")
    own.wait_for(paused, "done")
    own.wait_for(long, "running")
    stopped = own.client.delete(f"/jobs/{long}").json()
    assert stopped["incumbent"]["cost"] <= cut["incumbent"]["cost"]
    assert stopped["history"][: len(cut["history"])] == cut["history"]


def test_a_worker_that_dies_or_hangs_is_replaced(own):
    running = own.client.post("/jobs", content=table(40), params={"time_limit": 300}).json()["id"]
    wait_until(lambda: own.client.get(f"/jobs/{running}").json()["incumbent"] is not None)
    (pid,) = workers(own.process.pid)
    os.kill(pid, signal.SIGKILL)
    record = own.wait_for(running, "failed")
    assert record["error"] == "the worker process ended unexpectedly"
    assert record["incumbent"] is not None
    assert own.client.post("/solve", content=table(10), params={"iterations": 1}).status_code == 200  # by a new one

    (pid,) = workers(own.process.pid)
    stuck = own.client.post("/jobs", content=table(40), params={"time_limit": 300}).json()["id"]
    wait_until(lambda: own.client.get(f"/jobs/{stuck}").json()["incumbent"] is not None)
    os.kill(pid, signal.SIGSTOP)
    assert own.client.get("/health").status_code == 200
    assert own.client.get(f"/jobs/{stuck}").json()["state"] == "running"  # a stuck job does not block the service
    own.client.delete(f"/jobs/{stuck}")
    record = own.wait_for(stuck, "failed")
    assert "did not end in time" in record["error"]
    assert own.client.post("/solve", content=table(10), params={"iterations": 1}).status_code == 200
    assert "lehd_worker_restarts_total 2" in own.client.get("/metrics").text


def test_no_job_is_lost_with_an_idle_worker(own):
    (pid,) = workers(own.process.pid)
    os.kill(pid, signal.SIGKILL)
    assert own.client.post("/solve", content=table(10), params={"iterations": 1}).status_code == 200


def test_ending_it_gently(own):
    running = own.client.post("/jobs", content=table(40), params={"time_limit": 300}).json()["id"]
    own.wait_for(running, "running")
    process = own.process
    own.end(signal.SIGINT)
    assert process.returncode == 0
    own.start()
    assert own.client.get(f"/jobs/{running}").json()["state"] == "interrupted"
