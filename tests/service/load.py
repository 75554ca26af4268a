"""Many clients at once against a running service: python -m tests.service.load URL [jobs] [clients]

Every client has an address of its own on the loopback (127.0.0.2, 127.0.0.3 …), so that the service can tell them
apart. Every answer is checked against its problem. A refusal with Retry-After is tried again.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from lehd.io import read_text
from lehd.problems import of
from tests.service.requests import demand_table, table


@dataclass
class Tally:
    """What became of all jobs."""

    done: int = 0
    wrong: list[str] = field(default_factory=list)
    late: list[float] = field(default_factory=list)  # seconds of search beyond the limit
    statuses: Counter[int] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)  # from the accepted request to the answer
    clients: dict[int, float] = field(default_factory=dict)  # when each client had its last answer


def problem(number: int) -> tuple[str, dict[str, float | int | str]]:
    """A small tour or a small CVRP, by turns; some by iterations, most by time."""
    text = table(20 + number % 30, number) if number % 2 else demand_table(15 + number % 20, number)
    options: dict[str, float | int | str] = {"name": f"load-{number}.csv", "seed": number}
    options |= {"iterations": 1} if number % 5 == 0 else {"time_limit": 0.25}
    return text, options if number % 2 else {**options, "capacity": 40}


async def patiently(tally: Tally, send, *given, **options) -> httpx.Response:
    while True:
        response = await send(*given, **options)
        tally.statuses[response.status_code] += 1
        assert response.status_code < 500, response.text
        if response.status_code != 429:
            return response
        await asyncio.sleep(float(response.headers["retry-after"]))


async def one_job(client: httpx.AsyncClient, number: int, tally: Tally) -> None:
    text, options = problem(number)
    began: float | None
    if number % 3 == 0:  # wait for the answer
        response = await patiently(tally, client.post, "/solve", content=text, params=options)
        answer, began = response.json(), None  # how long it waited for a place in the queue is not known here
    else:
        response = await patiently(tally, client.post, "/jobs", content=text, params=options)
        identity = response.json()["id"]
        began = time.monotonic()
        if number % 3 == 1:  # listen
            async with client.stream("GET", f"/jobs/{identity}/events") as events:
                async for line in events.aiter_lines():
                    if line.startswith("event: end"):
                        break
        record = (await patiently(tally, client.get, f"/jobs/{identity}")).json()
        while record["state"] in ("queued", "running"):  # ask again and again
            await asyncio.sleep(0.5)
            record = (await patiently(tally, client.get, f"/jobs/{identity}")).json()
        if record["state"] != "done":
            tally.wrong.append(f"{number}: {record['state']} {record['error']}")
            return
        answer = record["answer"]
    if began is not None:
        tally.waits.append(time.monotonic() - began)
    check(number, text, options, answer, tally)
    tally.done += 1


def check(number, text, options, answer, tally: Tally) -> None:
    instance = read_text(text, str(options["name"]), options.get("capacity"))
    said = answer["lehd"]
    try:
        solution = of(instance).solution(instance, said.get("tour") or said["routes"])
        cost = of(instance).cost(instance, solution)[0].item()
        assert abs(cost - answer["summary"]["cost"]) <= 1e-9 * cost, f"cost {answer['summary']['cost']}, not {cost}"
        assert said["name"] == f"load-{number}", f"the answer of {said['name']}"
        assert said["seed"] == number
    except (AssertionError, KeyError, ValueError) as error:
        tally.wrong.append(f"{number}: {error}")
    if "time_limit" in options:
        tally.late.append(said["seconds"] - float(options["time_limit"]))


async def one_client(url: str, which: int, numbers: list[int], tally: Tally) -> None:
    transport = httpx.AsyncHTTPTransport(local_address=f"127.0.0.{2 + which}")
    async with httpx.AsyncClient(base_url=url, transport=transport, timeout=600, trust_env=False) as client:
        await asyncio.gather(*(one_job(client, number, tally) for number in numbers))
    tally.clients[which] = time.monotonic()


def feel_the_pulse(url: str, ending: Any, found: Any) -> None:
    """How long a short request takes meanwhile, from a process of its own."""
    times = []
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        while not ending.wait(0.25):
            began = time.monotonic()
            client.get("/health")
            times.append(time.monotonic() - began)
    found.put(times)


def quantile(values: list[float], share: float) -> float:
    return values[int(share * (len(values) - 1))] if values else 0.0


async def load(url: str, jobs: int, clients: int) -> dict[str, object]:
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    ending, found = context.Event(), context.Queue()
    context.Process(target=feel_the_pulse, args=(url, ending, found), daemon=True).start()
    began = time.monotonic()
    await asyncio.gather(
        *(one_client(url, which, list(range(which, jobs, clients)), tally) for which in range(clients))
    )
    seconds = time.monotonic() - began
    ending.set()
    waits, health = sorted(tally.waits), sorted(await asyncio.to_thread(found.get))
    ends = sorted(at - began for at in tally.clients.values())
    return {
        "jobs": jobs,
        "clients": clients,
        "answered": tally.done,
        "wrong": tally.wrong,
        "seconds": round(seconds, 1),
        "jobs_per_second": round(jobs / seconds, 2),
        "refused_and_tried_again": tally.statuses[429],
        "server_errors": sum(count for status, count in tally.statuses.items() if status >= 500),
        "beyond_limit_median": round(quantile(sorted(tally.late), 0.5), 3),
        "beyond_limit_most": round(max(tally.late, default=0), 3),
        "wait_median": round(quantile(waits, 0.5), 2),
        "wait_longest": round(waits[-1], 2),
        "first_client_ready": round(ends[0], 1),
        "last_client_ready": round(ends[-1], 1),
        "health_median_ms": round(1000 * quantile(health, 0.5), 1),
        "health_p99_ms": round(1000 * quantile(health, 0.99), 1),
    }


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[2:]] or [1000, 50]
    print(json.dumps(asyncio.run(load(sys.argv[1], *numbers)), indent=1))
