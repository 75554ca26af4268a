"""The queue, the store and the desk, without workers."""

import asyncio
import json
import threading

import pytest

from lehd.errors import LehdError
from lehd.service.bodies import Order
from lehd.service.config import Config, Limits
from lehd.service.desk import ConflictError, Desk
from lehd.service.events import stream
from lehd.service.jobs import DONE, FAILED, INTERRUPTED, PAUSED, QUEUED, RUNNING, STOPPED, FairQueue, Job, TooManyError
from lehd.service.store import Store
from lehd.service.task import Options
from lehd.service.worker import Task, combine, outcome
from lehd.solver import solve
from tests.service.requests import SQUARE, demand_table, table, vroom


def job(client="a", body=SQUARE, **options) -> Job:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Order.of(content, "", Options(**options)).job(client, Config(devices=()))


@pytest.fixture
def desk(tmp_path):
    store = Store(tmp_path / "jobs.sqlite", keep=1000)
    yield Desk(store, Limits(waiting=6, waiting_per_client=4))
    store.close()


def submit(desk, *jobs):
    for each in jobs:
        desk.submit(each, b"{}\n")


def ended(job, cost=40, interrupted=False, **changes):
    """What a worker would say of the square's best tour."""
    result = solve(job.problem.instances, rrc=20, device="cpu")
    task = Task(job.id, job.problem, 1.0, None, 0)
    return outcome(task, result) | {"interrupted": interrupted} | changes


# ---- the queue


def test_clients_are_served_in_turn():
    queue = FairQueue(Limits())
    jobs = [job(client) for client in "aaaabbc"]
    for each in jobs:
        queue.add(each)
    assert [queue.position(each) for each in jobs] == [0, 3, 5, 6, 1, 4, 2]
    order = [queue.take(1)[0] for _ in jobs]
    assert [each.client for each in order] == ["a", "b", "c", "a", "b", "a", "a"]
    assert queue.take(1) == []
    assert len(queue) == 0


def test_jobs_of_equal_size_go_together():
    queue = FairQueue(Limits())
    bodies = [SQUARE, table(5), SQUARE, vroom(), SQUARE, table(5)]
    jobs = [job(client, body) for client, body in zip("aabbcc", bodies)]
    for each in jobs:
        queue.add(each)
    queue.add(slow := job("d", SQUARE, time_limit=20))
    queue.add(exact := job("d", SQUARE, iterations=5))
    assert queue.take(2) == [jobs[0], jobs[2]]
    assert queue.take(9) == [jobs[3]]
    assert queue.take(9) == [jobs[4]]
    assert queue.take(9) == [slow]
    assert queue.take(9) == [jobs[1], jobs[5]]
    assert queue.take(9) == [exact]


def test_a_full_queue_says_when_to_come_again(desk):
    submit(desk, *(job("a") for _ in range(4)))
    with pytest.raises(TooManyError, match="4 of your jobs are waiting") as error:
        submit(desk, job("a"))
    assert error.value.retry_after >= 1
    submit(desk, job("b"), job("b"))
    with pytest.raises(TooManyError, match="the queue is full"):
        submit(desk, job("c"))
    desk.take(1)
    submit(desk, job("c"))
    assert len(desk.queue) == 6


def test_matrices_in_the_queue_have_a_bound(desk, monkeypatch):
    matrix = {"vehicles": [{"id": 1, "start_index": 0, "end_index": 0}], "jobs": [{"id": 1, "location_index": 1}]}
    matrix["matrices"] = {"car": {"durations": [[0, 1], [1, 0]]}}
    weight = job(body=matrix).problem.weight
    assert weight == 2 * 4 * 8  # costs and durations
    monkeypatch.setattr("lehd.service.jobs.MOST_BYTES", 2 * weight)
    submit(desk, job("a", matrix), job("b", matrix), job("c"))
    with pytest.raises(TooManyError, match="memory"):
        submit(desk, job("d", matrix))
    desk.take(1)
    submit(desk, job("d", matrix))


def test_many_threads_never_overfill_the_queue(desk):
    refused = []

    def push(number):
        try:
            submit(desk, job(f"client {number % 7}"))
        except TooManyError:
            refused.append(number)

    threads = [threading.Thread(target=push, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(desk.queue) == 6
    assert len(refused) == 24
    assert desk.store.count() == {QUEUED: 6}


# ---- the desk


def test_a_job_from_queue_to_end(desk):
    submit(desk, first := job())
    assert desk.find(first.id)["position"] == 0
    assert desk.take(1) == [first]
    assert desk.find(first.id)["state"] == RUNNING
    desk.report(
        first,
        {"seconds": 0.1, "iteration": 1, "cost": 50, "tour": [0, 1, 2, 3]},
        [{"cost": 50, "seconds": 0.1, "iteration": 1}],
    )
    assert desk.find(first.id)["incumbent"]["cost"] == 50
    assert desk.find(first.id)["answer"] is None
    desk.finish(first, ended(first))
    assert desk.active == {}
    record = desk.find(first.id)  # from the store now
    assert record["state"] == DONE
    assert record["answer"]["summary"]["cost"] == pytest.approx(40)
    assert record["finished"] is not None
    assert desk.find("x" * 20) is None


def test_stopping_and_pausing_what_waits(desk):
    submit(desk, first := job(), second := job())
    desk.end(first.id, STOPPED)
    desk.end(second.id, PAUSED)
    assert desk.find(first.id)["state"] == STOPPED
    assert desk.find(second.id)["state"] == PAUSED
    assert desk.take(1, timeout=0.01) == []
    assert desk.end(first.id, STOPPED) is None


def test_a_paused_job_goes_on_from_its_best(desk):
    submit(desk, first := job(time_limit=9))
    desk.take(1)
    told = []
    first.drop = lambda: told.append(True)
    desk.end(first.id, PAUSED)
    assert told
    desk.finish(first, ended(first, interrupted=True, seconds=4.0, iterations=7))
    record = desk.find(first.id)
    assert record["state"] == PAUSED
    desk.resume(record, again := job(time_limit=9))
    assert again.id == first.id
    assert again.before == 4.0
    assert again.iterations == 7
    with pytest.raises(ConflictError, match="on its way already"):
        desk.resume(record, job(time_limit=9))
    assert desk.take(1) == [again]
    with pytest.raises(ConflictError, match="only paused and interrupted"):
        desk.resume(desk.find(first.id), job())


def test_a_job_that_ends_before_the_pause_is_done(desk):
    submit(desk, first := job())
    desk.take(1)
    desk.end(first.id, PAUSED)
    desk.finish(first, ended(first))
    assert desk.find(first.id)["state"] == DONE


def test_too_few_vehicles_fail_but_keep_the_plan(desk):
    submit(desk, first := job())
    desk.take(1)
    desk.finish(first, ended(first, error="vehicles: 3 routes, 2 vehicles"))
    record = desk.find(first.id)
    assert record["state"] == FAILED
    assert record["error"] == "vehicles: 3 routes, 2 vehicles"
    assert record["incumbent"] is not None


def test_too_few_vehicles_are_told_of_a_stopped_job_too(desk):
    submit(desk, first := job())
    desk.take(1)
    desk.end(first.id, STOPPED)
    desk.finish(first, ended(first, interrupted=True, error="vehicles: 3 routes, 2 vehicles"))
    record = desk.find(first.id)
    assert record["state"] == STOPPED
    assert record["error"] == "vehicles: 3 routes, 2 vehicles"


def test_closing_marks_what_waits(desk):
    submit(desk, first := job())
    desk.close()
    assert desk.find(first.id)["state"] == INTERRUPTED
    with pytest.raises(ConflictError, match="shutting down"):
        submit(desk, job())


# ---- the store


def test_a_crash_interrupts_what_was_on_its_way(tmp_path):
    path = tmp_path / "jobs.sqlite"
    store = Store(path, keep=10)
    records = {state: job().record(state=state) for state in (QUEUED, RUNNING, PAUSED, DONE, STOPPED, FAILED)}
    for record in records.values():
        store.add(record, b"the request")
    store._alone.close()  # as the end of the process does
    again = Store(path, keep=10)
    found = {state: again.record(record["id"])["state"] for state, record in records.items()}
    assert found == {state: state for state in records} | {QUEUED: INTERRUPTED, RUNNING: INTERRUPTED}
    assert again.interrupted == 2
    assert again.request(records[RUNNING]["id"]) == b"the request"


def test_one_service_per_database(tmp_path):
    first = Store(tmp_path / "jobs.sqlite", keep=10)
    with pytest.raises(LehdError, match="another `lehd serve` uses this database"):
        Store(tmp_path / "jobs.sqlite", keep=10)
    first.close()
    Store(tmp_path / "jobs.sqlite", keep=10).close()


def test_not_a_database(tmp_path):
    (tmp_path / "jobs.sqlite").write_text("something else entirely, and long enough to be read as a header" * 20)
    with pytest.raises(LehdError, match="cannot be used as the jobs' database"):
        Store(tmp_path / "jobs.sqlite", keep=10)


def test_old_jobs_make_room(tmp_path):
    store = Store(tmp_path / "jobs.sqlite", keep=50)
    records = [job().record(state=DONE, created=float(number)) for number in range(101)]
    running = job().record(state=RUNNING, created=-1.0)
    for record in [running, *records]:
        store.add(record, b"")
    assert store.count()[DONE] <= 51
    assert store.record(running["id"]) is not None
    assert store.record(records[-1]["id"]) is not None
    assert store.record(records[0]["id"]) is None


# ---- what workers do with jobs


def test_problems_that_are_alike_become_one_batch():
    problems = [job(body=demand_table(8, seed), capacity=20).problem.instances for seed in range(3)]
    batch = combine(problems)
    assert len(batch) == 3
    for row, each in enumerate(problems):
        assert (batch.demands[row] == each.demands[0]).all()
        assert (batch.coords[row] == each.coords[0]).all()
    results = solve(batch, rrc=0, device="cpu")
    assert all(sorted(node for route in result.routes for node in route) == list(range(1, 9)) for result in results)


def test_an_outcome_continues_the_history():
    first = job()
    result = solve(first.problem.instances, rrc=0, device="cpu")
    before = ({"seconds": 2.0, "iteration": 5, "cost": 44.0}, {"seconds": 3.0, "iteration": 6, "cost": result.cost})
    task = Task(first.id, first.problem, 1.0, None, 0, result.tour, 4.0, 10, before)
    found = outcome(task, result)
    assert found["history"] == list(before)  # the start is known already
    assert found["seconds"] >= 4.0
    assert found["iterations"] == 10
    assert found["answer"]["lehd"]["history"] == found["history"]


def test_a_stream_that_begins_after_the_end_of_its_job_says_how_it_ended(desk):
    submit(desk, short := job())
    desk.take(1)
    seen_running = desk.find(short.id)
    desk.finish(short, ended(short))  # before the stream begins

    async def last() -> str:
        return [message async for message in stream(desk, short.id, seen_running)][-1]

    kind, _, data = asyncio.run(last()).strip().split("\n")
    assert kind == "event: end"
    assert json.loads(data.removeprefix("data: "))["state"] == DONE
