"""Construction of several rows on a CPU, each core with rows of its own.

Rows have nothing to say to each other, so that threads which have some each keep their cores busier than threads that
share every matrix product, and wait for nobody until the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import torch

from lehd.decoding.construct import construct
from lehd.decoding.stop import Stop
from lehd.memory import Memory
from lehd.model.lehd import LEHD
from lehd.model.precision import inference
from lehd.problems.base import Problem
from lehd.types import Instances, Rollout, State

TOKENS = 256  # nodes to place in all rows together: with fewer it is over before the threads have begun


class Spread:
    """Greedy `construct` for one model and problem on so many `threads`."""

    def __init__(self, model: LEHD, problem: Problem, threads: int):
        self.model, self.problem, self.threads = model, problem, threads
        # Whoever has called is one of them.
        self.pool = ThreadPoolExecutor(max(1, threads - 1), "rows", initializer=torch.set_num_threads, initargs=(1,))

    def construct(
        self,
        instances: Instances,
        state: State,
        nearest: int | None = None,
        stop: Stop | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> Rollout:
        """As the function of this name; `on_step` hears of the first rows."""
        rows, steps = state.available.shape
        count = min(self.threads, rows)
        if count < 2 or rows * steps < TOKENS:
            return self._work(instances, state, nearest, stop, on_step)
        called_off = threading.Event()
        # A stop is asked by one thread alone: who wrote it need not have thought of several.
        others = Stop(asked=called_off.is_set) if stop is None else replace(stop, asked=called_off.is_set)

        def work(part: slice, own: Stop | None, tell: Callable[[int], None] | None) -> Rollout:
            mine = state.rows(part)
            which, number = torch.unique(mine.instance, return_inverse=True)
            return self._work(instances.rows(which), replace(mine, instance=number), nearest, own, tell)

        borders = [rows * number // count for number in range(count + 1)]
        first, *rest = (slice(*borders[number : number + 2]) for number in range(count))
        with _one_thread_each(instances.device):
            running = [self._start(work, part, others, None) for part in rest]
            try:
                done = [work(first, stop, on_step), *(each.result() for each in running)]
            finally:
                called_off.set()
                wait(running)
        return Rollout(*(torch.cat(each) for each in zip(*((r.nodes, r.via_depot, r.log_probability) for r in done))))

    def _work(
        self,
        instances: Instances,
        state: State,
        nearest: int | None,
        stop: Stop | None,
        on_step: Callable[[int], None] | None,
    ) -> Rollout:
        return construct(
            self.model, self.problem, instances, state, nearest=nearest, stop=stop, on_step=on_step, memory=Memory()
        )

    def gain(self, work: Callable[[], object], device: torch.device) -> float:
        """How many times as much of this work is done in a time by all threads as by this one, which may have help from
        as many as torch has now."""
        begun = time.perf_counter()
        work()
        alone = time.perf_counter() - begun
        with _one_thread_each(device):
            for _ in range(2):  # the first time threads begin
                begun = time.perf_counter()
                running = [self._start(work) for _ in range(self.threads - 1)]
                work()
                wait(running)
                together = time.perf_counter() - begun
        return self.threads * alone / together

    def _start(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Precision and the like are as they are here."""
        return self.pool.submit(copy_context().run, work, *arguments)

    def close(self) -> None:
        self.pool.shutdown()


@contextmanager
def _one_thread_each(device: torch.device) -> Iterator[None]:
    """Within it torch has one thread for whoever computes: libraries for matrix products count for all at once. Neither
    is the choice of kernels a thread's own: who has called makes it before the others do, and takes it back after."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with inference(device):
            yield
    finally:
        torch.set_num_threads(before)
