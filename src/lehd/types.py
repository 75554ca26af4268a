"""The data that travels through lehd, and the one legend of shapes.

    B  instances            R  decoding rows (several may share an instance)
    N  nodes, depot included     M  nodes to visit (N for TSP, N - 1 for CVRP)
    U  available nodes      S  construction steps
    F  node features        C  resources the model sees      K  actions per node      D  embedding size

Solutions of both problems are written alike: the visiting order of the M nodes, and for each of them whether it is
reached via the depot. A TSP has no depot, so its flags are all False.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lehd import distance
from lehd.distance import Rule


class _Tensors:
    """Moving a dataclass of tensors to a device, and taking some of its rows."""

    def map(self, function: Any) -> Any:
        changes = {
            f.name: function(getattr(self, f.name))
            for f in fields(self)  # type: ignore[arg-type]
            if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, **changes)  # type: ignore[type-var]

    def to(self, device: torch.device | str) -> Any:
        return self.map(lambda tensor: tensor.to(device))


@dataclass(frozen=True)
class Instances(_Tensors):
    """B problem instances of one size. With demands they are CVRPs (node 0 is the depot), without them TSPs."""

    coords: Tensor  # (B, N, 2) float64, positions in the plane: what the model sees
    rule: Rule = distance.EUCLIDEAN
    sites: Tensor | None = None  # (B, N, 2) float64, what the rule measures, where that is not coords (lat/lon)
    matrix: Tensor | None = None  # (B, N, N) int64 or float64, the distances of the EXPLICIT rule
    demands: Tensor | None = None  # (B, N) int64 or float64; the depot's is 0
    capacity: Tensor | None = None  # (B,) of the same dtype
    vehicles: Tensor | None = None  # (B,) int64, at most so many routes
    names: tuple[str, ...] = ()  # one per instance
    node_names: tuple[str, ...] = ()  # one per node, where the file names them; a single instance's only

    def __len__(self) -> int:
        return self.coords.shape[0]

    @property
    def num_nodes(self) -> int:
        return self.coords.shape[1]

    @property
    def device(self) -> torch.device:
        return self.coords.device

    @cached_property
    def symmetric(self) -> bool:
        """Whether every distance is the same both ways, so that a path may be reversed."""
        return self.matrix is None or bool((self.matrix == self.matrix.mT).all())

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Distances (B, ...) between the nodes a and b (B, ...) of each instance."""
        rows = torch.arange(len(self), device=a.device).view(-1, *(1 for _ in a.shape[1:]))
        if self.matrix is not None:
            return self.matrix[rows, a, b]
        sites = self.coords if self.sites is None else self.sites
        assert self.rule.measure is not None
        return self.rule.measure(sites[rows, a], sites[rows, b])

    def take(self, nodes: Tensor, instance: Tensor | None = None) -> Instances:
        """Instances of the given nodes (R, n) alone, in that order; row r comes from instance[r], by default from r."""
        if instance is None:
            instance = torch.arange(len(self), device=nodes.device)
        rows = instance[:, None]
        return Instances(
            coords=self.coords[rows, nodes],
            rule=self.rule,
            sites=None if self.sites is None else self.sites[rows, nodes],
            matrix=None if self.matrix is None else self.matrix[rows[..., None], nodes[:, :, None], nodes[:, None, :]],
            demands=None if self.demands is None else self.demands[rows, nodes],
            capacity=None if self.capacity is None else self.capacity[instance],
            vehicles=None if self.vehicles is None else self.vehicles[instance],
        )

    def rows(self, which: slice | Tensor) -> Instances:
        """Some of the instances; those picked by number lose their names."""
        part: Instances = self.map(lambda tensor: tensor[which])
        return replace(part, names=self.names[which] if isinstance(which, slice) else ())


@dataclass(frozen=True)
class Solution(_Tensors):
    """One solution for each of B instances."""

    nodes: Tensor  # (B, M) int64, visiting order
    via_depot: Tensor  # (B, M) bool, whether the node is reached from the depot; the first of a CVRP always is

    def rows(self, which: Tensor | slice) -> Solution:
        return Solution(self.nodes[which], self.via_depot[which])

    def where(self, mine: Tensor, other: Solution) -> Solution:
        """These solutions in the rows (B,) that `mine` marks, the other ones elsewhere."""
        mine = mine[:, None]
        nodes = torch.where(mine, self.nodes, other.nodes)
        return Solution(nodes, torch.where(mine, self.via_depot, other.via_depot))


@dataclass(frozen=True)
class State(_Tensors):
    """What R rows have left to decide. Immutable: advancing gives a new one."""

    instance: Tensor  # (R,) which instance a row works on
    start: Tensor  # (R,) the node the path has reached
    destination: Tensor  # (R,) the node it must end at
    available: Tensor  # (R, U) the nodes still to be placed, in any order
    resources: Tensor  # (R, any) what the problem keeps track of, in its own units; (R, 0) where there is nothing
    left: Tensor | None = None  # (R,) only the first so many are available, in every row the same number; None: all

    @cached_property
    def missing(self) -> Tensor | None:
        """Which places (R, U) hold no available node; None: all hold one."""
        if self.left is None:
            return None
        return torch.arange(self.available.shape[1], device=self.left.device) >= self.left[:, None]

    def rows(self, which: Tensor | slice) -> State:
        """The given rows, in the given order; a row may be taken several times."""
        state: State = self.map(lambda tensor: tensor[which])
        return state

    def repeat(self, times: int) -> State:
        """Every row `times` times, copies side by side."""
        state: State = self.map(lambda tensor: tensor.repeat_interleave(times, 0))
        return state


@dataclass(frozen=True)
class PartialSolution(_Tensors):
    """S consecutive decisions of a solution, as a small problem of its own: nodes are renumbered in label order.

    There are R of them, one or several disjoint ones of each solution, those of one solution side by side.
    """

    instances: Instances  # (R of them) only the nodes that matter
    nodes: Tensor  # (R, n) the original number of each renumbered node
    path: Tensor  # (R, S + 2) starting node, the S nodes to be placed in label order, destination node
    via_depot: Tensor  # (R, S) the label's flags
    resources: Tensor  # (R, S, any) before each decision
    offset: Tensor  # (R,) where its first decision stands in the whole solution; negative: nowhere, it does not count

    @property
    def steps(self) -> int:
        return self.via_depot.shape[1]

    def state(self, step: int = 0) -> State:
        """The state before decision `step` if all earlier ones follow the label; the label's next node is in slot 0."""
        return State(
            instance=torch.arange(len(self.path), device=self.path.device),
            start=self.path[:, step],
            destination=self.path[:, -1],
            available=self.path[:, step + 1 : -1],
            resources=self.resources[:, step],
        )


@dataclass(frozen=True)
class Rollout(_Tensors):
    """What construction chose, row by row."""

    nodes: Tensor  # (R, S)
    via_depot: Tensor  # (R, S)
    log_probability: Tensor  # (R,) of the whole row; -inf marks a row to be ignored (beam search with few candidates)

    def where(self, mine: Tensor, other: Rollout) -> Rollout:
        """These rollouts in the rows (R,) that `mine` marks, the other ones elsewhere."""
        nodes = torch.where(mine[:, None], self.nodes, other.nodes)
        via_depot = torch.where(mine[:, None], self.via_depot, other.via_depot)
        return Rollout(nodes, via_depot, torch.where(mine, self.log_probability, other.log_probability))


@dataclass(frozen=True)
class Incumbent:
    """A point of the search's history."""

    seconds: float
    iteration: int  # 0 is the first solution
    cost: float


@dataclass(frozen=True)
class Result:
    """A checked solution of one instance, and how it came about."""

    instance: Instances  # one instance (B = 1)
    solution: Solution
    cost: float | int  # by the instance's own distance rule
    history: tuple[Incumbent, ...]
    seconds: float
    iterations: int
    seed: int
    model: str  # name and hash of the weights
    interrupted: bool = False
    notes: tuple[str, ...] = field(default=())  # what the user should know, such as a fleet limit that was not met

    @property
    def name(self) -> str:
        return self.instance.names[0] if self.instance.names else "instance"

    @property
    def problem(self) -> str:
        return "TSP" if self.instance.demands is None else "CVRP"

    @property
    def tour(self) -> list[int]:
        """Nodes in visiting order, from 0. For a CVRP every route begins and ends at the depot, 0."""
        if self.instance.demands is None:
            return self.solution.nodes[0].tolist()
        return [0, *(node for route in self.routes for node in [*route, 0])]

    @property
    def routes(self) -> list[list[int]]:
        """Customers 1..n of each route, without the depot. A TSP is one route of all its nodes."""
        routes: list[list[int]] = []
        for node, via in zip(self.solution.nodes[0].tolist(), self.solution.via_depot[0].tolist(), strict=True):
            if via or not routes:
                routes.append([])
            routes[-1].append(node)
        return routes

    @property
    def loads(self) -> list[float]:
        """The demand each route serves; empty for a TSP."""
        if self.instance.demands is None:
            return []
        demands = self.instance.demands[0].tolist()
        return [sum(demands[node] for node in route) for route in self.routes]

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the solution and the cost over time; write it where `path` (PNG, SVG or PDF) is given."""
        from lehd.plot import plot_result

        return plot_result(self, path)

    def write(self, path: str | Path) -> None:
        """Write the solution; the ending decides the format: .tour, .sol, .json or .geojson."""
        from lehd.io.write import write_result

        write_result(self, path)
