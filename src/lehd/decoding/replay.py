"""Construction on a GPU, step by step recorded.

A step looks the same whenever equally many nodes are left in equally many rows, however long the whole construction is.
So steps, once recorded, serve constructions of all lengths: a few instances, reconstructed over and over, are no longer
bound by the time that Python takes to launch each kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from typing import Protocol

import torch
from torch import Tensor

from lehd.decoding.construct import construct, sees_all, step
from lehd.decoding.select import GREEDY
from lehd.decoding.stop import OutOfTime, Stop
from lehd.decoding.view import embed
from lehd.model.lehd import LEHD
from lehd.model.precision import inference
from lehd.problems.base import Problem
from lehd.recording import Pace, Recorder
from lehd.types import Instances, Rollout, State

MOST = 6000  # recordings, each some fifty kernels
LARGE = 131_072  # nodes in all rows: a step with more keeps a GPU busy for longer than Python takes to launch it
AHEAD = 32  # steps that may wait for the GPU


class Recording(Protocol):
    def replay(self) -> None: ...


Record = Callable[[Callable[[], None]], Recording]


class Replays:
    """`construct`, greedy, for one model and problem. The second time a step comes, it is recorded.

    If instances of up to so many `nodes` are to come, equally many of them each time, there is room for them at once.
    """

    def __init__(self, model: LEHD, problem: Problem, record: Record | None = None, nodes: int = 0):
        self.model, self.problem, self.nodes = model, problem, nodes
        self.record = record or Recorder(model.head.weight.device).record
        self.desks: dict[Hashable, _Desk] = {}
        self.half_copies: dict[int, list[Tensor]] = {}

    def construct(self, instances: Instances, state: State, nearest: int | None, stop: Stop | None) -> Rollout:
        """As the function of this name."""
        rows, steps = state.available.shape
        if rows * steps > LARGE:
            return construct(self.model, self.problem, instances, state, nearest=nearest, stop=stop)
        pace = Pace(AHEAD) if stop is not None and instances.device.type == "cuda" else None
        with inference(instances.device, self.half_copies):
            embeddings = embed(self.model, self.problem, instances) if sees_all(steps, nearest) and steps else None
            desk = self._desk(instances, state, embeddings, nearest)
            desk.put(instances, state, embeddings)
            for left in range(steps, 0, -1):
                if stop is not None and stop.out_of_time():
                    raise OutOfTime
                self._take(desk, left, nearest or steps)
                if pace is not None:
                    pace.step()
        return desk.rollout(steps)

    def _desk(self, instances: Instances, state: State, embeddings: Tensor | None, nearest: int | None) -> _Desk:
        kind = (
            None if embeddings is not None else nearest,
            len(state.start),
            state.resources.shape,
            tuple((name, len(tensor), tensor.dtype) for name, tensor in _tensors(instances)),
        )
        desk = self.desks.get(kind)
        if desk is None or desk.places < instances.num_nodes:
            # Recordings of a desk that is too small are of no use any more.
            places = self.nodes or 1 << (instances.num_nodes - 1).bit_length()
            desk = self.desks[kind] = _Desk(instances, state, embeddings, max(places, instances.num_nodes))
        return desk

    def _take(self, desk: _Desk, left: int, nearest: int) -> None:
        """A step of every row, of which each has so many nodes left."""
        recording = desk.recordings.get(left)
        if recording is not None:
            recording.replay()
            return

        def work() -> None:
            desk.step(self.model, self.problem, left, nearest)

        if left not in desk.seen or sum(len(each.recordings) for each in self.desks.values()) >= MOST:
            desk.seen.add(left)
            work()
            return
        recording = desk.recordings[left] = self.record(work)
        recording.replay()


class _Desk:
    """The memory that recorded steps read and write, always the same: room for instances of up to so many nodes."""

    def __init__(self, instances: Instances, state: State, embeddings: Tensor | None, places: int):
        rows, device = len(state.start), instances.device
        self.places = places

        def room(tensor: Tensor) -> Tensor:
            """For all nodes, where a tensor has some of them in its second dimension."""
            return tensor.new_zeros(len(tensor), self.places, *tensor.shape[2:]) if tensor.ndim > 1 else tensor.clone()

        # Distances only matter afterwards: what is left is what decisions depend on.
        self.instances: Instances = replace(instances, sites=None, matrix=None).map(room)
        self.embeddings = None if embeddings is None else room(embeddings)
        self.state = replace(
            state.map(Tensor.clone), available=torch.zeros(rows, self.places, dtype=torch.long, device=device)
        )
        self.total = torch.zeros(rows, device=device)
        # What is chosen with so many nodes left stands so far from the end.
        self.nodes = torch.zeros(rows, self.places, dtype=torch.long, device=device)
        self.via_depot = torch.zeros(rows, self.places, dtype=torch.bool, device=device)
        self.seen: set[int] = set()  # numbers of nodes left
        self.recordings: dict[int, Recording] = {}

    def put(self, instances: Instances, state: State, embeddings: Tensor | None) -> None:
        """What is to be constructed."""
        for mine, given in ((self.instances, instances), (self.state, state)):
            for name, into in _tensors(mine):
                _fill(into, getattr(given, name))
        if self.embeddings is not None and embeddings is not None:
            _fill(self.embeddings, embeddings)
        self.total.zero_()

    def step(self, model: LEHD, problem: Problem, left: int, nearest: int) -> None:
        state = replace(self.state, available=self.state.available[:, :left])
        after, flag, total, _ = step(
            model, problem, self.instances, self.embeddings, state, self.total, GREEDY, nearest, views=1
        )
        self.nodes[:, -left] = after.start
        self.via_depot[:, -left] = flag
        self.total.copy_(total)
        self.state.start.copy_(after.start)
        self.state.resources.copy_(after.resources)
        self.state.available[:, : left - 1].copy_(after.available)

    def rollout(self, steps: int) -> Rollout:
        first = self.places - steps
        return Rollout(self.nodes[:, first:].clone(), self.via_depot[:, first:].clone(), self.total.clone())


def _tensors(data: Instances | State) -> list[tuple[str, Tensor]]:
    values = [(each.name, getattr(data, each.name)) for each in fields(data)]
    return [(name, value) for name, value in values if isinstance(value, Tensor)]


def _fill(into: Tensor, given: Tensor) -> None:
    if into.ndim > 1:
        into[:, : given.shape[1]].copy_(given)
    else:
        into.copy_(given)
