"""Pictures of problems whose distances do not lie in the plane: roads, matrices of any kind, the globe.

The model knows positions only, and one map of everything shows hardly any distance as it is. But every few nodes can be
drawn well on a sheet of their own. So each partial solution gets one, in which short distances count most: those are
the ones that tours are made of.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lehd.types import Instances

LARGEST = 200  # nodes of a picture: the work grows with their cube
FAITHFUL = 0.03  # mean relative error of distances in a map that needs no further pictures
PAIRS, ALL_PAIRS = 2000, 200_000  # of nodes, of an instance and of all of them, that are compared to find out
AT_ONCE = 1_000_000  # distances of all pictures that are drawn together
ROUNDS = 20  # of moving nodes to where their distances want them
BLUR = 0.05  # relative changes of distances, another time others: a second picture of the same nodes shows them anew
# Times the way over other nodes, and times the way to the next one: what is longer than both forbids an edge, and
# shall not shrink all the rest.
DETOUR, FAR = 3.0, 10.0
NEAR = 0.02  # of the longest distance: what is nearer than this counts alike


def faithful(instances: Instances) -> bool:
    """Whether positions show the distances as they are, up to a factor for each instance."""
    if instances.matrix is None and not instances.rule.geographic:
        return True
    nodes, size = instances.num_nodes, (len(instances), min(PAIRS, ALL_PAIRS // len(instances) + 20))
    always_the_same = torch.Generator().manual_seed(0)
    a, b = (torch.randint(nodes, size, generator=always_the_same).to(instances.device) for _ in range(2))
    rows = torch.arange(len(instances), device=instances.device)[:, None]
    shown = (instances.coords[rows, a] - instances.coords[rows, b]).norm(dim=-1)
    true = instances.distance(a, b)
    ratio = (true / shown).where(shown > 1e-9 * shown.amax(1, keepdim=True), torch.nan)
    error = (ratio / ratio.nanmedian(1, keepdim=True).values - 1).abs().nanmean(1)
    error = error.nan_to_num(torch.inf)  # nothing is shown
    return not bool(((error > FAITHFUL) & (true > 0).any(1)).any())


def redrawn(instances: Instances, generator: torch.Generator) -> Instances:
    """The same instances, if they are small, with positions that show their own distances."""
    if not 3 <= instances.num_nodes <= LARGEST:
        return instances
    few = max(1, AT_ONCE // instances.num_nodes**2)
    parts = [instances.rows(slice(first, first + few)) for first in range(0, len(instances), few)]
    drawn = torch.cat([draw(_distances(part, generator)) for part in parts])
    sites = instances.coords if instances.sites is None else instances.sites  # what is measured stays
    return replace(instances, coords=drawn.to(instances.coords), sites=sites)


def draw(distances: Tensor) -> Tensor:
    """Positions (R, n, 2) for symmetric distances (R, n, n) up to 1: classical scaling, which keeps the long distances,
    then rounds in which every node moves to where the nodes near it want it."""
    squares = -0.5 * distances.square()
    centred = squares - squares.mean(1, keepdim=True) - squares.mean(2, keepdim=True) + squares.mean((1, 2), True)
    values, vectors = torch.linalg.eigh(centred.cpu())  # before torch 2.12, GPUs do them one by one and slowly
    at: Tensor = (vectors[..., -2:] * values[:, None, -2:].clamp(min=0).sqrt()).to(distances.device)
    # Who is near to everybody, such as a free end of an open path, says nothing about where to be.
    weight = (distances + NEAR).pow(-2) * (distances > 0)
    weight = weight / weight.sum(2, keepdim=True).clamp(min=1e-12)
    for _ in range(ROUNDS):
        away = at[:, :, None] - at[:, None]
        stretch = distances / away.norm(dim=-1).clamp(min=1e-6)
        at = (weight[..., None] * (at[:, None] + stretch[..., None] * away)).sum(2)
    return at


def _distances(instances: Instances, generator: torch.Generator) -> Tensor:
    """Those of all pairs, the mean of both ways, at most 1; those of a matrix a little blurred."""
    size, nodes = len(instances), instances.num_nodes
    if instances.matrix is None:
        each = torch.arange(nodes, device=instances.device)
        pairs = (each.repeat_interleave(nodes), each.repeat(nodes))
        all_pairs = instances.distance(*(ends.expand(size, -1) for ends in pairs)).view(size, nodes, nodes)
    else:
        all_pairs = instances.matrix
    distances = all_pairs.double()
    distances = (distances + distances.mT) / 2
    distances = (distances / distances.amax((1, 2), keepdim=True).clamp(min=torch.finfo(torch.double).tiny)).float()
    if instances.matrix is not None:
        noise = torch.randn(distances.shape, generator=generator, device=distances.device)
        distances = distances * torch.exp(BLUR * (noise + noise.mT) / 2**0.5)
    shortest = distances
    for via in range(nodes):
        shortest = torch.minimum(shortest, shortest[:, :, via, None] + shortest[:, None, via])
    next_one = distances.where(distances > 0, torch.inf).amin(2).nan_to_num(posinf=0.0).median(1).values
    distances = torch.minimum(distances, torch.maximum(DETOUR * shortest, FAR * next_one[:, None, None]))
    distances.diagonal(dim1=1, dim2=2).zero_()
    return distances / distances.amax((1, 2), keepdim=True).clamp(min=1e-12)
