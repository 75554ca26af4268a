"""What a problem must say about itself, and what is the same for all of them.

A new problem is one new file with a subclass of Problem. Model, construction, RRC, training and `solve` know nothing
else about it. Two ideas carry all of them:

- A partial solution is a suffix: `randomise` rewrites a solution into an equivalent one, `cut` takes its last entries.
- A path costs the same whatever the problem: from node to node, and by way of the depot where the flag says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from lehd.draws import Draws
from lehd.errors import InfeasibleError
from lehd.types import Instances, PartialSolution, Rollout, Solution, State


def unit_box(coords: Tensor, around: Tensor | None = None) -> Tensor:
    """Positions (B, N, 2) moved and scaled, both axes alike, so that the longer side of the box of all of them, or of
    those `around`, is [0, 1]."""
    inside = coords if around is None else around
    low, high = torch.aminmax(inside, dim=1, keepdim=True)
    span = (high - low).amax(2, keepdim=True)
    return (coords - low) / (span + (span == 0))


def in_unit_box(instances: Instances) -> Instances:
    """The plane scaled to the unit square, as the model sees it; distances are measured where they were given."""
    sites = instances.coords if instances.sites is None else instances.sites
    return replace(instances, coords=unit_box(instances.coords), sites=sites)


def beyond_all(measure: Tensor, state: State) -> Tensor:
    """A measure (R, U) by which the places where no available node is come after all others."""
    return measure if state.missing is None else measure.masked_fill(state.missing, torch.inf)


def from_start(instances: Instances, state: State) -> tuple[Tensor, Tensor]:
    """Where every available node is (R, U, 2), and how far from the starting node (R, U), as the model sees it."""
    row = state.instance[:, None]
    there = instances.coords[row, state.available]
    return there, (there - instances.coords[row, state.start[:, None]]).norm(dim=2)


def slots_of_smallest(measure: Tensor, state: State, count: int) -> Tensor:
    """The slots (R, k) where a measure (R, U) is smallest, `count` or as many as there are."""
    return beyond_all(measure, state).topk(min(count, measure.shape[1]), dim=1, largest=False).indices


class Problem(ABC):
    name: str
    num_features: int
    num_resources: int  # how many of the resources the model sees
    actions_per_node: int  # 1: direct; 2: direct, or via the depot
    fixed_in_suffix: int  # entries of a partial solution that are not to be decided
    whole_up_to: int  # nodes up to which a first construction with all of them in view is worth more time
    in_view = 100  # nodes of larger ones, where the model cannot see all: as many as most instances of training have
    whole_if_fast_up_to = 1000  # the same as whole_up_to, if it takes hardly longer than with the nearest in view
    # By device: longer partial solutions gain too little for the time they take.
    longest_in_time: ClassVar[Mapping[str, int]]
    iteration_share = 0.1  # of the time left when RRC begins: what the longest iteration may take
    rough_parts: tuple[int, int] | None = None  # the longest, and nodes in view, after a start without the model
    search_cost = 0.002  # of finding those in view, for each available node, compared with a node in view
    first_node: int  # the lowest number among the nodes to visit: 1 where node 0 is a depot

    @property
    def model_sizes(self) -> dict[str, int]:
        """What the configuration of a model for this problem must say."""
        return {name: getattr(self, name) for name in ("num_features", "num_resources", "actions_per_node")}

    # ---- what the model sees

    @abstractmethod
    def features(self, instances: Instances, box: bool) -> Tensor:
        """Node features (B, N, F), float32; with `box`, positions are scaled to the instance's own bounding box."""

    @abstractmethod
    def context(self, instances: Instances, state: State) -> Tensor:
        """Resources as the model sees them (R, C), float32."""

    def nearest(self, instances: Instances, state: State, count: int) -> Tensor:
        """The slots (R, k) of the `count` available nodes, or fewer, that the model should see: those likeliest to come
        next. Places without a node come last."""
        return slots_of_smallest(from_start(instances, state)[1], state, count)

    def neighbourhood_box(self, coords: Tensor) -> Tensor:
        """Positions (R, 2 + k, 2) of starting node, destination node and neighbours, scaled for the model."""
        return unit_box(coords)

    # ---- how a solution comes about

    @abstractmethod
    def initial_state(self, instances: Instances, starts: Tensor | None = None) -> State:
        """One row per instance with everything left to visit; `starts` (B,) where the problem may begin anywhere."""

    def feasible(self, instances: Instances, state: State) -> Tensor | None:
        """Which actions (R, U, K) are allowed, at least one in every row; None where all are that lead to a node."""
        return None

    def spend(self, instances: Instances, state: State, node: Tensor, via_depot: Tensor) -> Tensor:
        """The resources after visiting `node` (R,), by the state's resources, start and instance: what is available may
        be that of afterwards already."""
        return state.resources

    def advance(self, instances: Instances, state: State, slot: Tensor, via_depot: Tensor) -> State:
        """The state after each row has visited the node in its slot (R,). The same for all problems: on a GPU a kernel
        does it."""
        node = state.available.gather(1, slot[:, None])
        # The last available node takes the place of the visited one: order does not matter to the model.
        last = state.available[:, -1:] if state.left is None else state.available.gather(1, state.left[:, None] - 1)
        available = state.available.scatter(1, slot[:, None], last)
        resources = self.spend(instances, state, node[:, 0], via_depot)
        after = replace(state, start=node[:, 0], resources=resources)
        if state.left is None:
            return replace(after, available=available[:, :-1])
        return replace(after, available=available, left=state.left - 1)

    @abstractmethod
    def complete(self, state: State, rollout: Rollout) -> Solution:
        """The whole solutions that rollouts from an initial state stand for, a row each."""

    def settle(self, instances: Instances, solution: Solution) -> Solution:
        """The best solution of an instance so small that RRC cannot change it."""
        return solution

    def trivial(self, instances: Instances) -> bool:
        """Whether there is nothing to decide."""
        return instances.num_nodes - self.first_node < 2

    @abstractmethod
    def cheap_start(self, instances: Instances, hurried: bool = False) -> Solution:
        """A feasible solution without the model, in memory linear in N: a fair one in a moment, any one if hurried."""

    # ---- partial solutions

    @abstractmethod
    def randomise(self, instances: Instances, solution: Solution, draws: Draws) -> Solution:
        """An equivalent solution of the same cost, in which other entries come last."""

    def onward(self, instances: Instances, solution: Solution, places: int, draws: Draws) -> Solution:
        """An equivalent solution to go on with when its last `places` entries have been worked on: where the problem
        knows one, others come last; elsewhere one drawn at random."""
        return self.randomise(instances, solution, draws)

    @abstractmethod
    def cut(self, instances: Instances, solution: Solution, length: int, count: int = 1) -> PartialSolution:
        """The last `length` nodes of a solution as a problem of their own, and `count` - 1 more such before them."""

    def splice(self, solution: Solution, partial: PartialSolution, rollout: Rollout, where: Tensor) -> Solution:
        """The solution with the partial solution's decisions replaced by the rollout's, in the rows (R,) `where`."""
        size, length = solution.nodes.shape
        count = len(partial.offset) // size
        places = partial.offset[:, None] + torch.arange(partial.steps, device=where.device)
        # What is not taken over goes to a column of its own, which is dropped.
        places = torch.where((where & (partial.offset >= 0))[:, None], places, length).view(size, count * partial.steps)

        def put(old: Tensor, new: Tensor) -> Tensor:
            padded = torch.cat([old, old[:, :1]], 1)
            return padded.scatter(1, places, new.reshape(places.shape))[:, :-1]

        new = partial.nodes.gather(1, rollout.nodes)
        return Solution(put(solution.nodes, new), put(solution.via_depot, rollout.via_depot))

    def best_of_both(self, partial: PartialSolution, rollout: Rollout) -> Rollout:
        """Of a partial solution and another way to decide it the best that can be put together of both; no worse than
        the other way."""
        return rollout

    def vary_start(self, instances: Instances, state: State, via_depot: Tensor, draws: Draws) -> State:
        """Another state with the same right decision, for training; `via_depot` (R,) is that decision's flag."""
        return state

    # ---- costs: smaller is better

    @abstractmethod
    def path(self, solution: Solution) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A solution as a path: starting node (B,), nodes (B, S), via-depot flags (B, S), destination node (B,)."""

    def cost(self, instances: Instances, solution: Solution) -> Tensor:
        """Cost (B,) by the instances' own rule: int64 where that gives whole numbers, else float64."""
        return self.path_cost(instances, *self.path(solution))

    def path_cost(self, instances: Instances, start: Tensor, nodes: Tensor, via: Tensor, end: Tensor) -> Tensor:
        """Cost (B, ...) from start (B, ...) through nodes (B, ..., S) to end (B, ...), which is the depot of `via`."""
        before = torch.cat([start[..., None], nodes], -1)
        after = torch.cat([nodes, end[..., None]], -1)
        legs = self._legs(instances, before, after)
        if self.actions_per_node == 2:
            depot = end[..., None].expand_as(nodes)
            detour = self._legs(instances, before[..., :-1], depot) + self._legs(instances, depot, nodes)
            legs = torch.cat([torch.where(via, detour, legs[..., :-1]), legs[..., -1:]], -1)
        return legs.sum(-1)

    @staticmethod
    def _legs(instances: Instances, before: Tensor, after: Tensor) -> Tensor:
        """Distances; some rules give a node a distance to itself, which nobody drives."""
        distance = instances.distance(before, after)
        return torch.where(before == after, torch.zeros_like(distance), distance)

    def objective(self, instances: Instances, start: Tensor, nodes: Tensor, via: Tensor, end: Tensor) -> Tensor:
        """What a search minimises: the path's cost, and whatever weighs more than cost."""
        return self.path_cost(instances, start, nodes, via, end)

    def objective_of_part(self, partial: PartialSolution, nodes: Tensor, via: Tensor) -> Tensor:
        """The same (R,) of partial solutions whose nodes are placed like that."""
        return self.objective(partial.instances, partial.path[:, 0], nodes, via, partial.path[:, -1])

    def routes_too_many(self, instances: Instances, solution: Solution) -> Tensor | None:
        """By how many routes (B,) each solution passes the fleet limit; None where there is no limit."""
        return None

    # ---- solutions from outside, and the check before they leave

    @abstractmethod
    def solution(self, instances: Instances, sequence: Any) -> Solution:
        """A checked solution of one instance from a tour or from routes: lists, arrays or tensors of whole numbers."""

    def check(self, instances: Instances, solution: Solution) -> None:
        """Raise InfeasibleError, naming instance and node, unless every node is visited exactly once."""
        shape = (len(instances), instances.num_nodes - self.first_node)
        if tuple(solution.nodes.shape) != shape or tuple(solution.via_depot.shape) != shape:
            raise InfeasibleError(
                f"a solution of shape {tuple(solution.nodes.shape)}; expected {shape}: all nodes of every instance"
            )
        expected = torch.arange(self.first_node, instances.num_nodes, device=solution.nodes.device)
        wrong = (solution.nodes.sort(1).values != expected).any(1)
        if wrong.any():
            row = int(wrong.nonzero()[0])
            self.check_visits(instances, solution.nodes[row].tolist(), row)

    def check_visits(self, instances: Instances, visited: list[int], row: int = 0) -> None:
        """Raise InfeasibleError unless these are all the nodes of an instance, each once."""
        counts = Counter(visited)
        for node in range(self.first_node, instances.num_nodes):
            if counts[node] != 1:
                times = f"is visited {counts[node]} times" if counts[node] else "is not visited"
                raise InfeasibleError(f"{instance_name(instances, row)}: node {node} {times}")
        for node in counts:
            if not self.first_node <= node < instances.num_nodes:
                raise InfeasibleError(f"{instance_name(instances, row)}: there is no node {node} to visit")


def instance_name(instances: Instances, row: int) -> str:
    return instances.names[row] if row < len(instances.names) else f"instance {row}"


def as_list(sequence: Any, expected: str) -> list[Any]:
    """A list, of lists perhaps, from what a user gives as one."""
    if hasattr(sequence, "tolist"):
        sequence = sequence.tolist()
    if not isinstance(sequence, list | tuple | range):
        raise InfeasibleError(f"{expected}; found {type(sequence).__name__}")
    nested = [list(item) if isinstance(item, tuple | range) else item for item in sequence]
    return [item.tolist() if hasattr(item, "tolist") else item for item in nested]


def whole_number(value: Any) -> int:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1 << 60:
        raise InfeasibleError(f"{value!r} is not the number of a node: expected a whole number")
    return value
