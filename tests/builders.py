"""Random instances, solutions and tiny models for property tests."""

from __future__ import annotations

import torch

from lehd.model.lehd import LEHD, ModelConfig
from lehd.problems import of
from lehd.problems.base import Problem
from lehd.types import Instances, Solution


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tsp(batch: int = 3, nodes: int = 12, seed: int = 0, **fields) -> Instances:
    return Instances(torch.rand(batch, nodes, 2, dtype=torch.float64, generator=generator(seed)), **fields)


def cvrp(batch: int = 3, customers: int = 12, seed: int = 0, capacity: int = 20, **fields) -> Instances:
    draw = generator(seed)
    demands = torch.randint(0, 10, (batch, customers + 1), generator=draw)
    demands[:, 0] = 0
    coords = torch.rand(batch, customers + 1, 2, dtype=torch.float64, generator=draw)
    return Instances(coords, demands=demands, capacity=torch.full((batch,), capacity), **fields)


def random_solution(instances: Instances, seed: int = 0) -> Solution:
    """Feasible, and otherwise arbitrary: nodes in random order, vehicles also return early."""
    draw = generator(seed)
    problem = of(instances)
    size, count = len(instances), instances.num_nodes - problem.first_node
    nodes = torch.rand(size, count, generator=draw).argsort(1) + problem.first_node
    via = torch.zeros(size, count, dtype=torch.bool)
    if instances.demands is not None:
        early = torch.rand(size, count, generator=draw) < 0.15
        for row in range(size):
            left = 0
            for place, node in enumerate(nodes[row].tolist()):
                demand = int(instances.demands[row, node])
                via[row, place] = place == 0 or demand > left or bool(early[row, place])
                left = (int(instances.capacity[row]) if via[row, place] else left) - demand
    return Solution(nodes, via)


def tiny_model(problem: Problem, seed: int = 0, **config) -> LEHD:
    torch.manual_seed(seed)
    sizes = {"dim": 16, "heads": 2, "feed_forward": 32, "decoder_layers": 2} | config
    return LEHD(
        ModelConfig(
            num_features=problem.num_features,
            num_resources=problem.num_resources,
            actions_per_node=problem.actions_per_node,
            **sizes,
        )
    ).eval()
