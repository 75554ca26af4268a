"""Steps of training as CUDA graphs: recorded once for each shape of batch, replayed ever after."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from lehd.recording import Recorder

MOST = 2000  # graphs; further shapes run without
EAGER = 6  # pieces, two a step, before the first recording: libraries and optimizer allocate what they keep


class StepGraphs:
    """Everything that a piece of a step changes must live outside of it; what it allocates is gone after it."""

    def __init__(self, generator: torch.Generator):
        self.recorder = Recorder(generator.device, generator)
        self.graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self.seen = 0

    def run(self, shape: Hashable, work: Callable[[], None]) -> None:
        """Do a piece of work that is the same for every step of this shape."""
        graph = self.graphs.get(shape)
        if graph is None:
            self.seen += 1
            if self.seen <= EAGER or len(self.graphs) >= MOST:
                work()
                return
            graph = self.graphs[shape] = self.recorder.record(work)
        graph.replay()
