"""The inside of a worker process: takes tasks from a pipe, solves them, and sends back what it finds.

Messages are pickled tuples. In: ("solve", tasks), ("drop", id). Out: ("ready",), ("progress", id, {…}),
("incumbent", id, {…}, [history points]), ("outcome", id, {…}), ("failed", id, message).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from lehd.errors import LehdError
from lehd.service.answer import answer, result_from
from lehd.service.task import Problem
from lehd.types import Incumbent, Instances, Result, Solution
from lehd.words import count

LISTENING = 0.01  # seconds between looks into the pipe
SHORTEST_PAUSE, PAUSE_PER_NODE = 0.05, 2e-5  # seconds between two incumbents sent
PROGRESS = 0.25  # seconds between two notes about the first construction
NICENESS = 5  # answering requests goes before solving


@dataclass(frozen=True)
class Task:
    """A job as a worker sees it."""

    id: str
    problem: Problem
    time_limit: float  # what is left of it
    iterations: int | None
    seed: int
    start: list[Any] | None = None  # tour or routes to go on from
    seconds: float = 0.0  # spent before
    iterations_before: int = 0
    history: tuple[dict[str, Any], ...] = ()


def main(connection: Connection, device: str, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which then ends its workers
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    torch.set_num_threads(threads)
    send(connection, "ready")
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the service is gone
        while True:
            kind, content = receive(connection)
            if kind == "solve":
                Run(connection, content, device).go()


def send(connection: Connection, *message: Any) -> None:
    connection.send_bytes(pickle.dumps(message))  # not send(), which would share tensors by way of files


def receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


class Run:
    """One search, for one task or for several that are alike."""

    def __init__(self, connection: Connection, tasks: list[Task], device: str):
        self.connection, self.tasks, self.device = connection, tasks, device
        self.dropped: set[str] = set()
        self.sent: set[str] = set()  # tasks whose outcome is out
        self.costs: list[float | None] = [None] * len(tasks)
        self.points: list[list[dict[str, Any]]] = [[] for _ in tasks]  # history not sent yet
        self.histories: list[list[dict[str, Any]]] = [list(task.history) for task in tasks]
        self.mean: float | None = None
        self.solution: Solution | None = None
        self.iteration = 0
        nodes = tasks[0].problem.instances.num_nodes * len(tasks)
        self.pause = max(SHORTEST_PAUSE, PAUSE_PER_NODE * nodes)
        self.listened = self.told = self.reported = 0.0

    def go(self) -> None:
        from lehd.solver import solve

        first = self.tasks[0]
        try:
            found = solve(
                combine([task.problem.instances for task in self.tasks]),
                time_limit=first.time_limit,
                rrc=first.iterations,
                start=first.start,
                seed=first.seed,
                device=self.device,
                progress=self.report,
                stop=self.stop,
            )
        except LehdError as error:
            self._fail(str(error))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            traceback.print_exc()
            self._fail(f"an error in lehd ({type(error).__name__}); the service's log has more")
        else:
            results: list[Result] = found if isinstance(found, list) else [found]
            for row, (task, result) in enumerate(zip(self.tasks, results, strict=True)):
                if task.id not in self.sent:
                    self._send_outcome(row, replace(result, instance=task.problem.instances))

    def _fail(self, message: str) -> None:
        for task in self.tasks:
            if task.id not in self.sent:
                send(self.connection, "failed", task.id, message)

    # ---- called by the search

    def stop(self) -> bool:
        """Whether nobody wants the search to go on."""
        now = time.perf_counter()
        if now - self.listened > LISTENING:
            self.listened = now
            while self.connection.poll():
                kind, content = receive(self.connection)
                if kind == "drop":
                    self.dropped.add(content)
        return all(task.id in self.dropped for task in self.tasks)

    def report(self, progress: Any) -> None:
        now = time.perf_counter()
        constructing = progress.phase == "construct"
        if constructing and now - self.told > PROGRESS:
            self.told = now
            for task in self.tasks:
                note = {"phase": progress.phase, "done": progress.done, "total": progress.total}
                send(self.connection, "progress", task.id, note | {"seconds": task.seconds + progress.seconds})
        if constructing or progress.solution is None:
            return  # a stopgap is nothing to go on from
        self.solution, self.iteration = progress.solution, progress.done
        if progress.cost != self.mean:
            self.mean = progress.cost
            self._note_improvements(progress)
        if now - self.reported > self.pause and any(self.points):
            self.reported = now
            for row in range(len(self.tasks)):
                self._send_incumbent(row)
        for row, task in enumerate(self.tasks):  # those that leave a batch which goes on
            if task.id in self.dropped and task.id not in self.sent and len(self.dropped) < len(self.tasks):
                self._send_outcome(row, self._so_far(row, progress.seconds))

    def _note_improvements(self, progress: Any) -> None:
        from lehd import problems

        for row, task in enumerate(self.tasks):
            mine = self._row(row)
            cost = problems.of(task.problem.instances).cost(task.problem.instances, mine)[0].item()
            if cost != self.costs[row]:
                known = self.costs[row] is None and self.histories[row] and self.histories[row][-1]["cost"] == cost
                self.costs[row] = cost
                if not known:  # the first solution of a search that goes on is in the history already
                    self.points[row].append(self._point(task, progress.seconds, progress.done, cost))

    def _point(self, task: Task, seconds: float, iteration: int, cost: float) -> dict[str, Any]:
        whole = iteration + task.iterations_before
        return {"seconds": round(seconds + task.seconds, 3), "iteration": whole, "cost": cost}

    def _row(self, row: int) -> Solution:
        assert self.solution is not None
        mine: Solution = self.solution.rows(slice(row, row + 1)).to("cpu")
        return mine

    # ---- what is sent

    def _send_incumbent(self, row: int) -> None:
        task, points = self.tasks[row], self.points[row]
        if not points or task.id in self.sent:
            return
        self.histories[row] += points
        self.points[row] = []
        visits = visits_of(result_from(task.problem, self._row(row)))
        send(self.connection, "incumbent", task.id, points[-1] | visits, points)

    def _so_far(self, row: int, seconds: float) -> Result:
        """The incumbent of a batch's task, as if the search had ended; only new tasks are batched."""
        self.histories[row] += self.points[row]
        return result_from(
            self.tasks[row].problem,
            self._row(row),
            history=tuple(Incumbent(**point) for point in self.histories[row]),
            seconds=seconds,
            iterations=self.iteration,
            seed=self.tasks[row].seed,
            interrupted=True,
        )

    def _send_outcome(self, row: int, result: Result) -> None:
        task = self.tasks[row]
        self.sent.add(task.id)
        send(self.connection, "outcome", task.id, outcome(task, result))


def outcome(task: Task, result: Result) -> dict[str, Any]:
    """All there is to say about the end of a search, together with what went before it. A plan with more routes than
    there are vehicles is no answer, but an error."""
    points = result.history
    if task.history and points:
        points = tuple(point for point in points if point.cost != task.history[-1]["cost"] or point.iteration > 0)
    history = [
        *(Incumbent(**point) for point in task.history),
        *(
            Incumbent(round(point.seconds + task.seconds, 3), point.iteration + task.iterations_before, point.cost)
            for point in points
        ),
    ]
    whole = replace(
        result,
        history=tuple(history),
        seconds=result.seconds + task.seconds,
        iterations=result.iterations + task.iterations_before,
    )
    fleet = task.problem.instances.vehicles
    error = None
    if fleet is not None and len(result.routes) > int(fleet[0]):
        needed, there = count(len(result.routes), "route"), count(int(fleet[0]), "vehicle")
        error = f"vehicles: the best plan found needs {needed}, but there are only {there}"
    reply = answer(task.problem, whole)
    return {
        "answer": reply if error is None else None,
        "history": reply["lehd"]["history"],
        "seconds": round(whole.seconds, 3),
        "iterations": whole.iterations,
        "incumbent": reply["lehd"]["history"][-1] | visits_of(whole),
        "interrupted": whole.interrupted,
        "error": error,
    }


def visits_of(result: Result) -> dict[str, Any]:
    return {"tour": result.tour} if result.problem == "TSP" else {"routes": result.routes}


def combine(instances: list[Instances]) -> Instances:
    """One batch of instances that are alike, of one job each."""
    first = instances[0]
    if len(instances) == 1:
        return first

    def together(name: str) -> Any:
        parts = [getattr(each, name) for each in instances]
        return None if parts[0] is None else torch.cat(parts)

    tensors = {name: together(name) for name in ("coords", "sites", "demands", "capacity", "vehicles")}
    return Instances(rule=first.rule, names=tuple(each.names[0] for each in instances), **tensors)
