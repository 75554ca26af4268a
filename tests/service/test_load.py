"""A thousand jobs from fifty clients at once; a small version of it runs with the other tests."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.service.conftest import Service
from tests.service.load import load
from tests.service.processes import memory_mb, workers


def check(found, jobs):
    assert found["answered"] == jobs
    assert found["wrong"] == []
    assert found["server_errors"] == 0


def test_a_few_clients(service):
    check(asyncio.run(load(service.url, 24, 8)), 24)


@pytest.mark.soak
def test_a_thousand_jobs_from_fifty_clients(tmp_path):
    """With the limits as they are by default."""
    service = Service(tmp_path / "jobs.sqlite", "--device", "cpu", "--workers", "2").start()
    try:
        memory = []
        for _ in range(2):  # the second time shows whether memory grows
            found = asyncio.run(load(service.url, 1000, 50))
            processes = [service.process.pid, *workers(service.process.pid)]
            memory.append([round(memory_mb(pid)) for pid in processes])
            print(json.dumps(found), "memory in MB (service, workers):", memory[-1], flush=True)
            check(found, 1000)
    finally:
        service.end()
    assert memory[-1][0] < memory[0][0] + 60  # megabytes; a thousand leaked jobs would be far more
