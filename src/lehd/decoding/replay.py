"""Construction on a GPU, recorded for shapes that come again: reconstructing partial solutions of the same lengths over
and over, a single instance is then no longer bound by the time that Python takes to launch each step."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from lehd.decoding.construct import construct
from lehd.decoding.stop import OutOfTime, Stop
from lehd.model.lehd import LEHD
from lehd.problems.base import Problem
from lehd.recording import Recorder
from lehd.types import Instances, Rollout, State

LONGEST = 256  # steps of a recording: longer constructions seldom come again, and take long to record
MOST_STEPS = 10_000  # of all recordings, each some fifty kernels


class Recording(Protocol):
    def replay(self) -> None: ...


class Replays:
    """`construct`, greedy, for one model and problem. The second time a shape comes, it is recorded."""

    def __init__(self, model: LEHD, problem: Problem, record: Callable[[Callable[[], None]], Recording] | None = None):
        self.model, self.problem = model, problem
        self.record = record or Recorder(model.head.weight.device).record
        self.seen: set[Hashable] = set()
        self.recorded: dict[Hashable, _Recorded] = {}
        self.steps = 0  # of all recordings

    def construct(self, instances: Instances, state: State, nearest: int | None, stop: Stop | None) -> Rollout:
        """As the function of this name."""
        run = partial(construct, self.model, self.problem, nearest=nearest)
        shape = (nearest, instances.rule, _shapes(instances), _shapes(state))
        recorded = self.recorded.get(shape)
        if recorded is None:
            steps = state.available.shape[1]
            if shape not in self.seen or steps > LONGEST or self.steps + steps > MOST_STEPS:
                self.seen.add(shape)
                return run(instances, state, stop=stop)
            self.steps += steps
            if stop is not None and stop.out_of_time():
                raise OutOfTime
            recorded = self.recorded[shape] = _Recorded(run, instances, state, self.record)
        return recorded.replay(instances, state)


class _Recorded:
    def __init__(
        self,
        run: Callable[[Instances, State], Rollout],
        instances: Instances,
        state: State,
        record: Callable[[Callable[[], None]], Recording],
    ):
        # A recording always reads and writes the same memory: what is to be constructed is copied there.
        self.instances: Instances = instances.map(Tensor.clone)
        self.state: State = state.map(Tensor.clone)
        self.rollout: Rollout | None = None

        def work() -> None:
            self.rollout = run(self.instances, self.state)

        self.recording = record(work)

    def replay(self, instances: Instances, state: State) -> Rollout:
        for into, given in ((self.instances, instances), (self.state, state)):
            for name, tensor in _tensors(given):
                getattr(into, name).copy_(tensor)
        self.recording.replay()
        assert self.rollout is not None
        rollout: Rollout = self.rollout.map(Tensor.clone)
        return rollout


def _tensors(data: Any) -> list[tuple[str, Tensor]]:
    values = [(each.name, getattr(data, each.name)) for each in fields(data)]
    return [(name, value) for name, value in values if isinstance(value, Tensor)]


def _shapes(data: Any) -> Hashable:
    return tuple((name, tensor.shape, tensor.dtype) for name, tensor in _tensors(data))
