"""CUDA graphs: work for a GPU that is recorded once and then handed over all at once.

Where work comes in many small pieces, Python takes longer to hand them to a GPU than the GPU to do them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

import torch


class Recorder:
    """Records work whose pieces always have the same shapes. Recordings share memory: none of them may hold on to what
    it allocates, but for what somebody keeps a reference to."""

    def __init__(self, device: torch.device, generator: torch.Generator | None = None):
        self.generator = generator  # draws other numbers at every replay
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """The work is not done yet: `replay()` does it. It must have been done before, so that all is in place."""
        device = self.stream.device
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)
        self.stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self.stream):
            # Half-precision copies that autocast keeps would be gone, or be somebody else's, when the work is replayed.
            torch.clear_autocast_cache()
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):  # that the recording is of no use: why is what matters
                    graph.capture_end()
                raise
            else:
                graph.capture_end()
            finally:
                torch.clear_autocast_cache()
        torch.cuda.current_stream(device).wait_stream(self.stream)
        return graph


class Pace:
    """Keeps Python from running far ahead of the GPU: clocks and time limits must not be far off."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead  # steps that may wait for the GPU
        self.events: deque[torch.cuda.Event] = deque()

    def step(self) -> None:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self.events.append(event)
        if len(self.events) > self.ahead:
            self.events.popleft().synchronize()
