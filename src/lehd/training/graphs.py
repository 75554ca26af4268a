"""Steps of training as CUDA graphs: recorded once for each shape of batch, replayed ever after.

A step is some hundred small pieces of work, and Python takes longer to hand them to a GPU than the GPU to do them. A
graph hands over all of them at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

import torch

MOST = 2000  # graphs; further shapes run without
EAGER = 3  # steps before the first recording, in which libraries and optimizer allocate what they keep
AHEAD = 4  # steps that may wait for the GPU: clocks and time limits must not be far off


class StepGraphs:
    """Everything a step changes must live outside of it; what it allocates is gone after it."""

    def __init__(self, generator: torch.Generator):
        self.generator = generator
        self.graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.seen = 0

    def run(self, shape: Hashable, work: Callable[[], None]) -> None:
        """Do the work of a step of this shape."""
        graph = self.graphs.get(shape)
        if graph is None:
            self.seen += 1
            if self.seen <= EAGER or len(self.graphs) >= MOST:
                work()
                return
            graph = self.graphs[shape] = self._record(work)
        graph.replay()

    def _record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        return graph


class Pace:
    """Keeps Python from running far ahead of the GPU."""

    def __init__(self) -> None:
        self.events: deque[torch.cuda.Event] = deque()

    def step(self) -> None:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self.events.append(event)
        if len(self.events) > AHEAD:
            self.events.popleft().synchronize()
