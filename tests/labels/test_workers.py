import os
import time

from lehd.labels.workers import Failure, solve_all


def work(task):
    kind, value = task
    if kind == "crash":
        os._exit(9)
    if kind == "hang":
        time.sleep(600)
    if kind == "raise":
        raise ValueError(value)
    return value * 2


def test_every_task_is_answered_whatever_becomes_of_the_others():
    kinds = {3: "crash", 4: "crash", 11: "raise", 12: "hang"}
    tasks = [(key, (kinds.get(key, "fine"), key)) for key in range(20)]
    results = dict(solve_all(tasks, work, processes=2, patience=1.5))
    assert sorted(results) == list(range(20))
    for key, result in results.items():
        assert result == 2 * key if key not in kinds else isinstance(result, Failure)
    assert results[3].reason == "the process of the solver died (code 9)"
    assert results[11].reason == "ValueError: 11"
    assert "no answer" in results[12].reason


def test_tasks_are_taken_as_they_are_needed():
    taken = []

    def tasks():
        for key in range(100):
            taken.append(key)
            yield key, ("fine", key)

    results = solve_all(tasks(), work, processes=2, patience=60)
    next(results)
    assert len(taken) <= 4
    results.close()  # ends the processes


def test_no_tasks_no_processes():
    assert list(solve_all([], work, processes=3, patience=1)) == []
