"""The inside of a worker, without the process around it."""

from __future__ import annotations

import multiprocessing
import threading
import time

import pytest

from lehd.problems import of
from lehd.service.bodies import Order
from lehd.service.config import Config
from lehd.service.task import Options
from lehd.service.worker import Run, Task, receive, send
from tests.service.requests import demand_table


def task(seed=0, time_limit=30.0, iterations=None, **changes) -> Task:
    order = Order.of(demand_table(20, seed).encode(), "text/csv", Options(capacity=30))
    problem = order.job("somebody", Config(devices=())).problem
    return Task(f"task {seed}", problem, time_limit, iterations, 0, **changes)


class Running:
    """A run in a thread, and what it says."""

    def __init__(self, *tasks: Task):
        self.ours, theirs = multiprocessing.Pipe()
        self.thread = threading.Thread(target=Run(theirs, list(tasks), "cpu").go)
        self.thread.start()

    def until(self, kind: str, identity: str | None = None) -> tuple:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.ours.poll(0.1):
                message = receive(self.ours)
                if message[0] == kind and identity in (None, message[1]):
                    return message
        raise AssertionError(f"no {kind}")


def check(task: Task, outcome) -> None:
    """The incumbent is feasible, costs what it says, and agrees with history and answer."""
    instances = task.problem.instances
    solution = of(instances).solution(instances, outcome["incumbent"]["routes"])
    cost = of(instances).cost(instances, solution)[0].item()
    assert outcome["incumbent"]["cost"] == pytest.approx(cost)
    assert outcome["answer"]["summary"]["cost"] == pytest.approx(cost)
    assert outcome["history"][-1]["cost"] == pytest.approx(cost)


def test_a_task_leaves_a_batch_that_goes_on():
    tasks = [task(seed, time_limit=4.0) for seed in range(3)]
    running = Running(*tasks)
    running.until("incumbent", "task 1")
    send(running.ours, "drop", "task 1")
    _, identity, left = running.until("outcome")
    assert identity == "task 1"
    assert left["interrupted"]
    check(tasks[1], left)
    others = [running.until("outcome") for _ in range(2)]
    assert {each[1] for each in others} == {"task 0", "task 2"}
    for _, identity, found in others:
        assert not found["interrupted"]
        check(tasks[int(identity[-1])], found)
    running.thread.join(10)


def test_a_dropped_task_ends_at_once():
    only = task(time_limit=60.0)
    running = Running(only)
    running.until("incumbent")
    send(running.ours, "drop", only.id)
    _, _, found = running.until("outcome")
    assert found["interrupted"]
    check(only, found)
    running.thread.join(10)


def test_a_task_goes_on_from_where_it_was():
    first = Running(before := task(iterations=2)).until("outcome")[2]
    again = task(
        iterations=3,
        start=first["incumbent"]["routes"],
        seconds=first["seconds"],
        iterations_before=2,
        history=tuple(first["history"]),
    )
    second = Running(again).until("outcome")[2]
    check(before, first)
    check(again, second)
    assert second["iterations"] == 5
    assert second["seconds"] > first["seconds"]
    assert second["history"][: len(first["history"])] == first["history"]
    assert second["incumbent"]["cost"] <= first["incumbent"]["cost"]


def test_what_cannot_be_solved_says_why():
    running = Running(task(start=[[1, 2]]))
    _, identity, message = running.until("failed")
    assert identity == "task 0"
    assert "not visited" in message
    running.thread.join(10)
