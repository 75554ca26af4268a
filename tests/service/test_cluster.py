"""A service whose workers are on a Ray cluster, simulated on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import ClassVar

import pytest

from lehd.errors import LehdError
from lehd.service import places
from tests.cli.command import lehd_command
from tests.service.conftest import Service, wait_until
from tests.service.processes import alive
from tests.service.requests import table

ray = pytest.importorskip("ray")
from tests.work.cluster import small_cluster  # noqa: E402 - needs Ray


@pytest.fixture(scope="module")
def cluster():
    with small_cluster(machines=2) as started:
        yield started


@pytest.fixture(scope="module")
def away(cluster, tmp_path_factory):
    """A service with a worker on each of two machines."""
    database = tmp_path_factory.mktemp("away") / "jobs.sqlite"
    service = Service(database, "--cluster", cluster.address, "--jobs-per-minute", "1000").start()
    wait_until(lambda: service.client.get("/health").json()["workers"] == 2)
    yield service
    service.end(signal.SIGKILL)


def remote_workers() -> dict[int, int]:
    """Processes of Ray that are workers of a service, with their parents: the machines they are on."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().startswith(b"ray::lehd_worker"):
                    found[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    return found


def begin(service: Service) -> str:
    """A long search that has found something."""
    identity = service.client.post("/jobs", content=table(30), params={"time_limit": 300}).json()["id"]
    wait_until(lambda: service.client.get(f"/jobs/{identity}").json()["incumbent"] is not None)
    return identity


def test_a_job_is_solved_as_on_this_machine(away, service):
    asked = {"content": table(15), "params": {"iterations": 3, "seed": 2}}
    remote, local = (each.client.post("/solve", **asked).json() for each in (away, service))
    assert remote["lehd"]["tour"] == local["lehd"]["tour"]
    assert remote["summary"]["cost"] == local["summary"]["cost"]


def test_events_stream_and_a_job_can_be_stopped(away):
    identity = away.client.post("/jobs", content=table(40), params={"time_limit": 300}).json()["id"]
    with away.client.stream("GET", f"/jobs/{identity}/events") as stream:
        seen = next(line for line in stream.iter_lines() if line.startswith("data: {") and '"tour": [' in line)
    incumbent = json.loads(seen.removeprefix("data: "))
    assert sorted(incumbent["tour"]) == list(range(40))
    assert state_of(away, identity) == "running"
    stopped = away.client.delete(f"/jobs/{identity}").json()
    assert stopped["state"] == "stopped"
    assert stopped["answer"]["summary"]["cost"] <= incumbent["cost"]


def test_lost_workers_and_machines_are_replaced(away, cluster):
    before = remote_workers()
    assert len(before) == 2
    first = [begin(away), begin(away)]
    os.kill(next(iter(before)), signal.SIGKILL)
    wait_until(lambda: sorted(state_of(away, each) for each in first) == ["failed", "running"])
    failed, going_on = sorted(first, key=lambda each: state_of(away, each))
    record = away.client.get(f"/jobs/{failed}").json()
    assert record["error"] == "the worker process ended unexpectedly"
    assert record["incumbent"] is not None

    second = [going_on, begin(away)]  # by a new worker
    (machine,) = (node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    cluster.remove_node(machine, allow_graceful=False)
    wait_until(lambda: sorted(state_of(away, each) for each in second) == ["failed", "running"])
    assert away.client.get("/health").json()["workers"] == 1


def state_of(service: Service, identity: str) -> str:
    return service.client.get(f"/jobs/{identity}").json()["state"]


def test_nobody_is_left_behind(away):
    left = remote_workers()
    assert left
    away.end(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, left)), seconds=30)


def test_strangers_at_the_door_are_sent_away():
    """Who connects without the password does not become a worker, nor does he keep the worker out."""

    class Task:
        @staticmethod
        def remote(service, password, device, threads):
            return service, password

    class NoRay:
        @staticmethod
        def remote(**options):
            return lambda work: Task

        @staticmethod
        def wait(tasks, timeout):
            return [], tasks

    line = places.Remote(NoRay, "127.0.0.1", "cpu", 1)
    (host, port), password = line.task
    with socket.create_connection((host, port)) as stranger:
        stranger.sendall(b"x" * len(password))
        assert not line.poll(1.0)
        assert line.connection is None
        assert stranger.recv(1) == b""  # hung up
    with socket.create_connection((host, port)) as guest:
        guest.sendall(password)
        assert not line.poll(1.0)
        assert line.connection is not None
        places.send(theirs := places._connection(guest), "ready")
        assert line.poll(5.0)
        assert line.receive() == ("ready",)
        theirs.close()
    assert line.poll(5.0)
    with pytest.raises(EOFError):
        line.receive()
    line.close()


def test_how_many_workers():
    class NoRay:
        there: ClassVar = {"CPU": 16.0, "GPU": 2.0}

        def cluster_resources(self):
            return self.there

    place = object.__new__(places.OnRay)
    place.ray = NoRay()
    assert place.workers(None, None) == ("cuda", 2)
    assert place.workers("cpu", None) == ("cpu", 16)
    assert place.workers("cuda", 5) == ("cuda", 5)  # for machines that are yet to come
    with pytest.raises(LehdError, match="expected cpu or cuda"):
        place.workers("cuda:1", None)
    place.ray.there = {"CPU": 4.0}
    assert place.workers(None, None) == ("cpu", 4)
    with pytest.raises(LehdError, match="has a GPU"):
        place.workers("cuda", None)


def test_clusters_that_will_not_do_are_told():
    with pytest.raises(LehdError, match="run it on a machine of the cluster"):
        places.OnRay("ray://10.0.0.1:10001")
    result = lehd_command("serve", "--cluster", "nowhere")
    assert result.exit_code == 2
    assert "cluster 'nowhere': expected local, auto or an address" in result.output
