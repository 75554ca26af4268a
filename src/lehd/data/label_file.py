"""A label file whose labels can be replaced: which instances it has, where each label came from, and how to write it.

Layouts are those of lehd.data.dataset. A file may also hold instances alone: plain without `nodes`, or compact with no
more than recipe, customers and shard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lehd.data.dataset import (
    RECIPES,
    SHARD,
    Arrays,
    draw_compact,
    expand,
    from_plain,
    has_labels,
    plain_instances,
    read_arrays,
    reading,
    solved_rows,
    with_ranks,
)
from lehd.errors import LehdError
from lehd.problems import of
from lehd.types import Instances, Solution
from lehd.words import count

NO_LABEL = -1  # in place of a source


@dataclass(frozen=True)
class LabelFile:
    arrays: Arrays  # as on disk
    instances: Instances  # all of the file, also those without a label
    solution: Solution  # where there is no label, anything
    labelled: NDArray[np.bool_]  # (M,) which instances have a label
    sources: tuple[str, ...]  # who made labels of this file
    source: NDArray[np.int64]  # (M,) which of them made each; NO_LABEL where there is none

    def __len__(self) -> int:
        return len(self.instances)

    def costs(self) -> NDArray[np.float64]:
        """Of each label, (M,); infinite where there is none."""
        found: NDArray[np.float64] = of(self.instances).cost(self.instances, self.solution).double().numpy()
        return np.where(self.labelled, found, np.inf)

    def with_labels(self, solution: Solution, labelled: NDArray[np.bool_], maker: str, by: NDArray[np.bool_]) -> Arrays:
        """The arrays of this file with other labels, of which those marked in `by` (M,) were made by `maker`."""
        used = [name for number, name in enumerate(self.sources) if (self.source[~by] == number).any()]
        names = [*dict.fromkeys([*used, *([maker] if by.any() else [])])]
        renumbered = np.array([names.index(name) if name in names else 0 for name in [*self.sources, maker]])
        source = np.where(by, len(self.sources), self.source)
        source = np.where(labelled, renumbered[source], NO_LABEL)
        kept = ("recipe", "customers", "shard", "coords", "demands", "capacity")
        arrays = {name: self.arrays[name] for name in kept if name in self.arrays}
        arrays |= {"sources": np.array(names), "source": source.astype(np.int16)}
        nodes, via = solution.nodes.numpy(), solution.via_depot.numpy()
        nodes = nodes.astype(np.uint8 if nodes.max(initial=0) < 256 else np.int32)
        cvrp = self.instances.demands is not None
        if "recipe" not in arrays:
            if not labelled.all():
                missing = count(int((~labelled).sum()), "instance")
                raise LehdError(f"{missing} without a label: a file of the plain layout needs all of them")
            return arrays | {"nodes": nodes} | ({"via_depot": via} if cvrp else {})
        shape = (len(arrays["shard"]), SHARD)
        cost = np.where(labelled, of(self.instances).cost(self.instances, solution).double().numpy(), 0)
        arrays |= {"nodes": nodes.reshape(*shape, -1), "cost": cost.astype(np.float32).reshape(shape)}
        arrays |= {"solved": labelled.reshape(shape), "source": arrays["source"].reshape(shape)}
        return with_ranks(arrays | ({"via": np.packbits(via, axis=1).reshape(*shape, -1)} if cvrp else {}))


def read_label_file(path: Path) -> LabelFile:
    """Read a label file, or a file of instances, and check the labels."""
    if path.suffix == ".txt":
        from lehd.data.foreign import plain_arrays, read_foreign

        return _label_file(path, plain_arrays(read_foreign(path)))
    return _label_file(path, read_arrays(path))


def fresh_instances(recipe: str, customers: int, shards: range) -> LabelFile:
    """Instances drawn from a recipe, without labels."""
    arrays = {"recipe": np.array(recipe), "customers": np.array(customers), "shard": np.array(shards)}
    return _label_file(Path(recipe), arrays)


def names_a_file(source: str) -> bool:
    """Whether this word of a command line means a label file, there or not, rather than a recipe."""
    return source not in RECIPES and (Path(source).is_file() or source.endswith((".npz", ".txt")))


def source_name(solver: str, seconds: float = math.nan, iterations: float = 0) -> str:
    """What a file calls labels of this solver with this limit."""
    return f"{solver} {seconds:g} s" if seconds > 0 else f"{solver} {iterations:g} iterations" if iterations else solver


def _label_file(path: Path, arrays: Arrays) -> LabelFile:
    with reading(path):
        compact, solved = "recipe" in arrays, has_labels(arrays)
        instances = plain_instances(draw_compact(arrays) if compact else arrays)
        instances = replace(instances, coords=instances.coords.double())  # in single precision noise could be shorter
        problem = of(instances)
        labelled = solved_rows(arrays) if compact else np.full(len(instances), solved)
        nodes = torch.zeros(len(instances), instances.num_nodes - problem.first_node, dtype=torch.long)
        solution = Solution(nodes, torch.zeros_like(nodes, dtype=torch.bool))
        if solved:
            found = from_plain(expand(arrays) if compact else arrays)
            problem.check(found.instances, found.solution)
            solution.nodes[labelled], solution.via_depot[labelled] = found.solution.nodes, found.solution.via_depot
        sources, source = _sources(path, arrays, labelled)
    return LabelFile(arrays, instances, solution, labelled, sources, source)


def _sources(path: Path, arrays: Arrays, labelled: NDArray[np.bool_]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    if "sources" in arrays and "source" in arrays:
        names, source = tuple(map(str, arrays["sources"])), arrays["source"].reshape(-1).astype(np.int64)
        if source.shape != labelled.shape or source.max(initial=-1) >= len(names):
            raise LehdError("the array source does not fit the labels")
    elif "solver" in arrays and "recipe" in arrays:
        limits = np.stack([arrays["seconds"], arrays.get("iterations", np.zeros(len(arrays["seconds"])))], 1)
        made = [source_name(str(name), *limit) for name, limit in zip(arrays["solver"], limits, strict=True)]
        names = tuple(dict.fromkeys(made))
        source = np.repeat([names.index(name) for name in made], SHARD)
    else:
        names, source = (f"unknown ({path.name})",), np.zeros(len(labelled), np.int64)
    return names, np.where(labelled, source, NO_LABEL)
