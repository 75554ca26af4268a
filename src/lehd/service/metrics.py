"""Numbers for Prometheus, in its text format. Label values come from fixed sets, never from requests."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping

from lehd import __version__
from lehd.service.desk import Desk
from lehd.service.guard import Guard
from lehd.service.jobs import RUNNING, STATES
from lehd.service.workers import Workers

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def metrics_text(desk: Desk, workers: Workers, guard: Guard, streams: int, begun: float) -> str:
    running = sum(job.state == RUNNING for job in list(desk.active.values()))
    answers: dict[str, float] = {}
    for (method, route, status), number in list(guard.answers.items()):
        known = method if method in METHODS else "other"
        label = f'method="{known}",route="{route}",status="{status}"'
        answers[label] = answers.get(label, 0) + number
    restarts = sum(max(0, worker.restarts) for worker in workers.all)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parts = [
        _metric("info", "gauge", "The version.", {f'version="{__version__}"': 1}),
        _metric("uptime_seconds", "gauge", "Since the start.", {"": round(time.monotonic() - begun, 1)}),
        _metric("queue_waiting", "gauge", "Jobs in the queue.", {"": len(desk.queue)}),
        _metric("jobs_running", "gauge", "Jobs being solved.", {"": running}),
        _metric(
            "jobs_ended_total",
            "counter",
            "Jobs that reached a state, since the start.",
            {f'state="{state}"': desk.ended[state] for state in STATES if state not in ("queued", "running")},
        ),
        _metric("search_seconds_total", "counter", "Time spent searching.", {"": round(desk.searched, 3)}),
        _metric("workers_ready", "gauge", "Worker processes that are up.", {"": workers.ready()}),
        _metric("worker_restarts_total", "counter", "Worker processes replaced.", {"": restarts}),
        _metric("streams_open", "gauge", "Event streams and waiting answers.", {"": streams}),
        _metric("http_requests_total", "counter", "Requests answered.", answers),
        _metric("peak_memory_bytes", "gauge", "The service process at its largest.", {"": memory}),
    ]
    return "".join(parts)


def _metric(name: str, kind: str, words: str, values: Mapping[str, float]) -> str:
    lines = [f"# HELP lehd_{name} {words}", f"# TYPE lehd_{name} {kind}"]
    lines += [f"lehd_{name}{{{label}}} {value}" if label else f"lehd_{name} {value}" for label, value in values.items()]
    return "\n".join(lines) + "\n"
