"""The travelling salesman problem: the shortest closed tour through all nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from lehd.draws import Draws, integers
from lehd.errors import InfeasibleError
from lehd.problems.base import Problem, as_list, from_start, instance_name, slots_of_smallest, unit_box, whole_number
from lehd.problems.curve import hilbert_order
from lehd.problems.insertion import PIECE, insert_all
from lehd.problems.stretches import better_stretches
from lehd.types import Instances, PartialSolution, Rollout, Solution, State

SMALLEST_CHOICE = 4  # nodes; with fewer there is one tour, or one each way
# A view of more nodes than this can do without one in five near ones, for landmarks. FIRST puts them before all others.
# Where many nodes stand in one place they may be far too many: then there are none.
WORTH_LANDMARKS, LANDMARKS, TOO_MANY, FIRST = 100, 0.2, 0.5, 1e-6


def scattered(places: Tensor) -> Tensor:
    """Numbers in [0, 1) for places (..., 2) in the unit square, as good as random ones, and always the same."""
    turns: Tensor = 75.5 * places[..., 0] + 57.0 * places[..., 1]
    return (1e4 * turns.sin()).remainder(1)


class TSP(Problem):
    name = "TSP"
    num_features, num_resources, actions_per_node = 2, 0, 1
    whole_up_to, in_view = 1000, 126  # with both ends as many as a GPU's kernels of attention hold
    longest_in_time: ClassVar = {"cpu": 1000, "cuda": 1000}
    iteration_share = 0.2  # long parts, with few in view, mend what short ones cannot
    rough_parts = (1000, 50)
    fixed_in_suffix, first_node = 2, 0  # starting and destination node; every node is visited

    def features(self, instances: Instances, box: bool) -> Tensor:
        return (unit_box(instances.coords) if box else instances.coords).float()

    def context(self, instances: Instances, state: State) -> Tensor:
        return state.resources.float()

    def nearest(self, instances: Instances, state: State, count: int) -> Tensor:
        """Most are the nearest. In larger views some are landmarks: nodes anywhere, the same ones at every step as long
        as they are left, by which the model knows where it still has to go."""
        there, far = from_start(instances, state)
        if count > WORTH_LANDMARKS:
            left = far.shape[1] if state.left is None else state.left[:, None]
            landmark = scattered(there) * left < LANDMARKS * count
            if state.missing is not None:
                landmark &= ~state.missing
            landmark &= landmark.sum(1, keepdim=True) <= TOO_MANY * count
            far = torch.where(landmark, FIRST * far, far)
        return slots_of_smallest(far, state, count)

    def neighbourhood_box(self, coords: Tensor) -> Tensor:
        """The box of starting node and neighbours; a destination outside it is moved to its border."""
        near = torch.cat([coords[:, :1], coords[:, 2:]], 1)
        return unit_box(coords, near).clamp(0, 1)

    def initial_state(self, instances: Instances, starts: Tensor | None = None) -> State:
        """The tour starts at node `starts` (node 0 by default) and must come back to it."""
        size, nodes, device = len(instances), instances.num_nodes, instances.device
        if starts is None:
            starts = torch.zeros(size, dtype=torch.long, device=device)
        others = torch.arange(nodes - 1, device=device).expand(size, -1)
        return State(
            instance=torch.arange(size, device=device),
            start=starts,
            destination=starts,
            available=others + (others >= starts[:, None]),
            resources=torch.zeros(size, 0, device=device),
        )

    def complete(self, state: State, rollout: Rollout) -> Solution:
        nodes = torch.cat([state.start[:, None], rollout.nodes], 1)
        return Solution(nodes, torch.zeros_like(nodes, dtype=torch.bool))

    def settle(self, instances: Instances, solution: Solution) -> Solution:
        """Three nodes can be visited one way or the other."""
        other = Solution(solution.nodes.flip(1), solution.via_depot)
        return other.where(self.cost(instances, other) < self.cost(instances, solution), solution)

    def trivial(self, instances: Instances) -> bool:
        return instances.num_nodes < SMALLEST_CHOICE

    def cheap_start(self, instances: Instances, hurried: bool = False) -> Solution:
        """The order along a space-filling curve; unless hurried, its pieces are put together anew by insertion."""
        nodes = hilbert_order(unit_box(instances.coords))
        if not hurried:
            nodes = self._insert_pieces(instances, nodes)
        return Solution(nodes, torch.zeros_like(nodes, dtype=torch.bool))

    @staticmethod
    def _insert_pieces(instances: Instances, nodes: Tensor) -> Tensor:
        size, total = nodes.shape
        pieces = -(-total // PIECE)
        length = -(-total // pieces)
        padded = torch.cat([nodes, nodes[:, -1:].expand(-1, pieces * length - total)], 1).view(size * pieces, length)
        count = torch.full((size, pieces), length, device=nodes.device)
        count[:, -1] = total - (pieces - 1) * length
        instance = torch.arange(size, device=nodes.device).repeat_interleave(pieces)
        closed = torch.full_like(instance, pieces == 1, dtype=torch.bool)
        order = insert_all(instances.take(padded, instance), count.flatten(), closed)
        return padded.gather(1, order).view(size, -1)[:, :total]

    def randomise(self, instances: Instances, solution: Solution, draws: Draws) -> Solution:
        """Rotated by a random number of places and, where distances are symmetric, reversed half of the time."""
        size, length = solution.nodes.shape
        device = solution.nodes.device
        offset = integers(draws, length, (size, 1))
        step = torch.ones_like(offset)
        if instances.symmetric:
            step = 2 * integers(draws, 2, (size, 1)) - 1
        places = (offset + step * torch.arange(length, device=device)) % length
        return Solution(solution.nodes.gather(1, places), solution.via_depot)

    def onward(self, instances: Instances, solution: Solution, places: int, draws: Draws) -> Solution:
        """The entries before them come last."""
        return Solution(solution.nodes.roll(places, 1), solution.via_depot)

    def cut(self, instances: Instances, solution: Solution, length: int, count: int = 1) -> PartialSolution:
        """Starting node, length - 2 nodes to be placed, destination node."""
        size, total = solution.nodes.shape
        device, steps, rows = solution.nodes.device, length - 2, size * count
        nodes = solution.nodes[:, total - count * length :].reshape(rows, length)
        first = total + 1 + length * torch.arange(-count, 0, device=device)
        return PartialSolution(
            instances=instances.take(nodes, torch.arange(size, device=device).repeat_interleave(count)),
            nodes=nodes,
            path=torch.arange(length, device=device).expand(rows, -1),
            via_depot=torch.zeros(rows, steps, dtype=torch.bool, device=device),
            resources=torch.zeros(rows, steps, 0, device=device),
            offset=first.repeat(size),
        )

    def best_of_both(self, partial: PartialSolution, rollout: Rollout) -> Rollout:
        old, inside = partial.path, partial.instances
        new = torch.cat([old[:, :1], rollout.nodes, old[:, -1:]], 1)
        old_legs, new_legs = (self._legs(inside, path[:, :-1], path[:, 1:]) for path in (old, new))
        return replace(rollout, nodes=better_stretches(new, old_legs, new_legs, inside.symmetric)[:, 1:-1])

    def path(self, solution: Solution) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        first = solution.nodes[:, 0]
        return first, solution.nodes[:, 1:], solution.via_depot[:, 1:], first

    def solution(self, instances: Instances, sequence: Any) -> Solution:
        nodes = [whole_number(node) for node in as_list(sequence, "a tour is a list of node numbers, counted from 0")]
        self.check_visits(instances, nodes)
        order = torch.tensor([nodes], dtype=torch.long, device=instances.device)
        return Solution(order, torch.zeros_like(order, dtype=torch.bool))

    def check(self, instances: Instances, solution: Solution) -> None:
        super().check(instances, solution)
        if solution.via_depot.any():
            row = int(solution.via_depot.any(1).nonzero()[0])
            raise InfeasibleError(f"{instance_name(instances, row)}: a tour has no depot to go by")
