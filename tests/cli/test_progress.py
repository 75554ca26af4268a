from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lehd.cli.progress import Bar, state_words


def progress(**changes: Any) -> Any:
    values = {"phase": "reconstruct", "done": 12, "total": None, "cost": 5235, "gain": 0.0566, "seconds": 3.21}
    return SimpleNamespace(solution=None, **{**values, **changes})


def test_progress_in_words():
    assert state_words(progress()) == "cost 5235, 5.66 % gained, iteration 12, 3.2 s"
    assert state_words(progress(phase="construct", cost=None, gain=None)) == "3.2 s"


def test_bar_follows_time_or_steps():
    bar = Bar("a [b].tsp", limit=10.0, quiet=False)
    bar.bars.disable = False  # as on a terminal
    (task,) = bar.bars.tasks
    bar(progress())
    assert (task.completed, task.total) == (3.21, 10.0)
    bar(progress(done=99, total=100))  # too soon to look again
    assert task.completed == 3.21
    bar.next_look = 0.0
    bar(progress(done=99, total=100))
    assert (task.completed, task.total, task.description) == (99, 100, "improving")
