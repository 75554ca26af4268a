"""Construction on a GPU, step by step recorded.

Python takes longer to launch the kernels of a step than a GPU to run them, unless there are very many rows. A recorded
step is launched all at once. How many nodes are left is a number in the GPU's memory, which the step itself counts
down; so one recording, with room for somewhat more nodes than are left, serves many steps in a row, of constructions of
all lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from typing import Protocol

import torch
from torch import Tensor

from lehd.decoding.construct import construct, embed_in_time, pace_of, step
from lehd.decoding.select import GREEDY
from lehd.decoding.stop import Stop, check_time
from lehd.decoding.view import Seen, see
from lehd.memory import Memory, give_back, out_of_memory
from lehd.model import fused
from lehd.model.lehd import LEHD
from lehd.model.precision import Copies, inference
from lehd.problems.base import Problem
from lehd.recording import Recorder
from lehd.types import Instances, Rollout, State

MOST = 6000  # recordings, each dozens of kernels
LARGE = 131_072  # nodes in view of all rows: a step with more takes a GPU longer than it takes Python to launch it
AHEAD = 32  # steps that may wait for the GPU

# A recording has room for a multiple of so many nodes in every row. The coarser, the fewer recordings; but spare room
# is computed like the rest. Few rows have coarse room, where that takes no longer than launching; many rows fine room.
COARSE, FINE = 64, 8
SPARE = 4096  # nodes in all rows together: so much room to spare a GPU hardly notices
SHORT = 32  # nodes in a row: kernels take as long for fewer
DESK = 1024  # recordings for a view of the nearest, about: in it room to spare costs next to nothing
ACTIONS = 1024  # that a program of the kernel which decides looks at at a time


class Recording(Protocol):
    def replay(self) -> None: ...


Record = Callable[[Callable[[], object]], Recording]


def may_record(model: LEHD, memory: Memory | None) -> bool:
    """Recordings keep memory of their own, and have room for nodes that are not there: some models would count them."""
    limited = memory is not None and memory.limit is not None
    return not limited and model.config.norm != "instance"


class Replays:
    """`construct`, greedy, for one model and problem. The second time a step comes, it is recorded.

    If instances of up to so many `nodes` are to come, equally many of them each time, there is room for them at once.
    What has to be done within a limit of `memory` is not recorded.
    """

    def __init__(
        self,
        model: LEHD,
        problem: Problem,
        record: Record | None = None,
        nodes: int = 0,
        memory: Memory | None = None,
    ):
        self.model, self.problem, self.nodes, self.memory = model, problem, nodes, memory or Memory()
        self.may_record = may_record(model, self.memory)
        self.record = record or Recorder(model.head.weight.device).record
        self.desks: dict[Hashable, _Desk] = {}
        self.copies: Copies = {}

    def construct(
        self,
        instances: Instances,
        state: State,
        nearest: int | None = None,
        stop: Stop | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> Rollout:
        """As the function of this name. The GPU may be some steps behind those that `on_step` hears of."""
        rows, steps = state.available.shape
        if self._recordable(rows, steps if nearest is None else min(steps, nearest)):
            try:
                return self._construct(instances, state, nearest, stop, on_step)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
            self.desks.clear()  # and all that recordings hold
            give_back()
        return construct(self.model, self.problem, instances, state, GREEDY, nearest, stop, on_step, memory=self.memory)

    def _construct(
        self,
        instances: Instances,
        state: State,
        nearest: int | None,
        stop: Stop | None,
        on_step: Callable[[int], None] | None,
    ) -> Rollout:
        steps = state.available.shape[1]
        pace = pace_of(stop, instances.device, AHEAD)
        with inference(instances.device, self.copies):
            embeddings = embed_in_time(self.model, self.problem, instances, steps, nearest, stop)
            desk = self._desk(instances, state, embeddings, nearest)
            desk.put(instances, state, embeddings)
            for left in range(steps, 0, -1):
                check_time(stop)
                self._take(desk, desk.room(left), nearest or steps)
                if pace is not None:
                    pace.step()
                if on_step is not None:
                    on_step(steps - left + 1)
        return desk.rollout(steps)

    def _recordable(self, rows: int, view: int) -> bool:
        return rows * view <= LARGE and self.may_record

    def _desk(self, instances: Instances, state: State, embeddings: Tensor | None, nearest: int | None) -> _Desk:
        kind = (
            None if embeddings is not None else nearest,
            len(state.start),
            state.resources.shape,
            tuple((name, len(tensor), tensor.dtype) for name, tensor in tensors_of(seen_of(instances))),
        )
        desk = self.desks.get(kind)
        if desk is None or desk.places < instances.num_nodes:
            # Recordings of a desk that is too small are of no use any more.
            places = self.nodes or 1 << (instances.num_nodes - 1).bit_length()
            desk = self.desks[kind] = _Desk(instances, state, embeddings, max(places, instances.num_nodes))
        return desk

    def _take(self, desk: _Desk, room: int, nearest: int) -> None:
        """A step of every row, of which each has at most so many nodes left."""
        recording = desk.recordings.get(room)
        if recording is not None:
            recording.replay()
            return

        def work() -> None:
            desk.step(self.model, self.problem, room, nearest)

        if room not in desk.seen or sum(len(each.recordings) for each in self.desks.values()) >= MOST:
            desk.seen.add(room)
            work()
            return
        recording = desk.recordings[room] = self.record(work)
        recording.replay()


class _Desk:
    """The memory that recorded steps read and write, always the same: room for instances of up to so many nodes."""

    def __init__(self, instances: Instances, state: State, embeddings: Tensor | None, places: int):
        rows, device = len(state.start), instances.device
        self.places = places
        self.grain = _grain(rows, places, whole=embeddings is not None)

        def empty(tensor: Tensor) -> Tensor:
            """For all nodes, where a tensor has some of them in its second dimension."""
            return tensor.new_zeros(len(tensor), self.places, *tensor.shape[2:]) if tensor.ndim > 1 else tensor.clone()

        self.instances: Instances = seen_of(instances).map(empty)
        self.embeddings = None if embeddings is None else empty(embeddings)
        self.state = replace(
            state.map(Tensor.clone),
            available=torch.zeros(rows, self.places, dtype=torch.long, device=device),
            left=torch.zeros(rows, dtype=torch.long, device=device),
        )
        self.total = torch.zeros(rows, device=device)
        # What is chosen with so many nodes left stands so far from the end.
        self.nodes = torch.zeros(rows, self.places, dtype=torch.long, device=device)
        self.via_depot = torch.zeros(rows, self.places, dtype=torch.bool, device=device)
        self.seen: set[int] = set()  # rooms of steps that have been taken
        self.recordings: dict[int, Recording] = {}  # by their rooms

    def room(self, left: int) -> int:
        """For how many nodes a step has room that is taken with so many left."""
        seen = left + 2  # starting and destination node: kernels work on blocks of all of them
        grain = self.grain if seen > self.grain else min(self.grain, SHORT)
        return min(-(-seen // grain) * grain - 2, self.places)

    def put(self, instances: Instances, state: State, embeddings: Tensor | None) -> None:
        """What is to be constructed."""
        fill_all(self.instances, instances)
        fill_all(self.state, replace(state, left=torch.full_like(state.start, state.available.shape[1])))
        if self.embeddings is not None and embeddings is not None:
            _fill(self.embeddings, embeddings)
        self.total.zero_()

    def step(self, model: LEHD, problem: Problem, room: int, nearest: int) -> None:
        state = replace(self.state, available=self.state.available[:, :room])
        assert state.left is not None
        seen = see(model, problem, self.instances, self.embeddings, state, nearest)
        if fused.kernels_run(seen.logits):
            node, flag = self._decide(seen)
            self.state.resources.copy_(problem.spend(self.instances, state, node, flag))
            self.state.start.copy_(node)
            return
        after, flag, total, _ = step(problem, self.instances, state, seen, self.total, GREEDY)
        place = (self.places - state.left)[:, None]
        self.nodes.scatter_(1, place, after.start[:, None])
        self.via_depot.scatter_(1, place, flag[:, None])
        self.total.copy_(total)
        fill_all(self.state, after)

    def _decide(self, seen: Seen) -> tuple[Tensor, Tensor]:
        """The step by one kernel, all but the new start and what it spends. Returns the chosen nodes and flags (R,)."""
        from lehd.model.step_kernels import decide

        state, logits = self.state, seen.logits
        rows, view, kinds = logits.shape
        assert logits.stride()[1:] == (kinds, 1)
        allowed = logits if seen.allowed is None else seen.allowed.contiguous()
        slots = state.available if seen.slots is None else seen.slots.contiguous()
        node, flag = torch.empty_like(state.start), torch.empty(rows, dtype=torch.bool, device=logits.device)
        decide[(rows,)](
            logits, allowed, slots, state.left, state.available, self.total, self.nodes, self.via_depot, node, flag,
            logits.stride(0), view, self.places,
            KINDS=kinds, MASK=seen.allowed is not None, SOME=seen.slots is not None, BLOCK=ACTIONS, num_warps=4,
        )  # fmt: skip
        return node, flag

    def rollout(self, steps: int) -> Rollout:
        first = self.places - steps
        return Rollout(self.nodes[:, first:].clone(), self.via_depot[:, first:].clone(), self.total.clone())


def _grain(rows: int, places: int, whole: bool) -> int:
    """Of how many nodes the room of recordings is a multiple, with all nodes in view or with the nearest."""
    grain = min(COARSE, max(FINE, SPARE // rows // FINE * FINE))
    return grain if whole else max(grain, -(-places // DESK // FINE) * FINE)


def seen_of(instances: Instances) -> Instances:
    """What decisions depend on. Distances only matter afterwards."""
    return replace(instances, sites=None, matrix=None)


def tensors_of(data: Instances | State) -> list[tuple[str, Tensor]]:
    values = [(each.name, getattr(data, each.name)) for each in fields(data)]
    return [(name, value) for name, value in values if isinstance(value, Tensor)]


def fill_all(mine: Instances | State, given: Instances | State) -> None:
    """Put what is given in the place of what was there before, as far as it goes."""
    for name, into in tensors_of(mine):
        _fill(into, getattr(given, name))


def _fill(into: Tensor, given: Tensor) -> None:
    if into.ndim > 1:
        into[:, : given.shape[1]].copy_(given)
    else:
        into.copy_(given)
