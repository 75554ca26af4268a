"""Labelled instances on disk and in memory.

A label file is an npz archive in one of two layouts:

    plain    coords (M, N, 2) and nodes (M, n), the visiting order (TSP: or `tour`); CVRP also via_depot (M, n) bool,
             demands (M, N) with the depot's 0 in column 0, capacity (M,)
    compact  recipe (a name in RECIPES), customers, shard (S,), nodes (S, SHARD, n), cost (S, SHARD), CVRP also via
             (S, SHARD, bits of n flags): the instances are drawn again from recipe and shard number, and the costs
             guard against a generator that draws differently. Where solved (S, SHARD) is False there is no label

Either may say where each label came from: sources (K,), names, and source (M,) or (S, SHARD), which of them. See
lehd.data.label_file, which also knows files without labels.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lehd.data.generate import CvrpArrays, TspArrays, uniform_cvrp, uniform_tsp, x_type_cvrp
from lehd.data.shapes import shapes_tsp
from lehd.errors import LehdError
from lehd.model.checkpoint import write_atomically
from lehd.problems import of
from lehd.types import Instances, Solution

Arrays = dict[str, NDArray[Any]]  # those of an npz file, by name
SHARD = 100  # instances drawn from one seed

# name -> (first part of the seed, generator)
Generator = Callable[[np.random.Generator, int, int], TspArrays | CvrpArrays]
RECIPES: dict[str, tuple[int, Generator]] = {
    "x_type_cvrp": (1, x_type_cvrp),
    "varied_cvrp": (2, uniform_cvrp),
    "uniform_cvrp": (3, lambda rng, count, customers: uniform_cvrp(rng, count, customers, capacity=50)),
    "uniform_tsp": (4, lambda rng, count, nodes: TspArrays(uniform_tsp(rng, count, nodes))),
    "shapes_tsp": (5, lambda rng, count, nodes: TspArrays(shapes_tsp(rng, count, nodes))),
}


def problem_of(recipe: str) -> str:
    return "TSP" if recipe.endswith("_tsp") else "CVRP"


def draw_shard(recipe: str, customers: int, shard: int) -> TspArrays | CvrpArrays:
    """The SHARD instances of one shard: the same for ever."""
    first, generator = RECIPES[recipe]
    return generator(np.random.default_rng([first, customers, shard]), SHARD, customers)


@dataclass(frozen=True)
class Labelled:
    """Instances with a solution each."""

    instances: Instances
    solution: Solution

    def __len__(self) -> int:
        return len(self.instances)

    def rows(self, which: slice | torch.Tensor) -> Labelled:
        return Labelled(self.instances.rows(which), self.solution.rows(which))

    def to(self, device: torch.device | str) -> Labelled:
        return Labelled(self.instances.to(device), self.solution.to(device))


def load_labels(path: str | Path) -> Labelled:
    """Read and check a label file: npz, or the text of another project (lehd.data.foreign).

    Coordinates are kept in single precision: a model sees no more.
    """
    path = Path(path)
    if path.suffix == ".txt":
        from lehd.data.foreign import read_foreign  # which builds on this module

        return read_foreign(path)
    arrays = read_arrays(path)
    if "nodes" not in arrays and "tour" not in arrays:
        hint = f"lehd label {path} FOLDER --improve WEIGHTS --merge FILE"
        raise LehdError(f"{path}: no labels in it, neither nodes nor tour; `{hint}` would make them")
    try:
        labelled = from_plain(expand(path, arrays) if "recipe" in arrays else arrays)
    except KeyError as error:
        raise LehdError(f"{path}: the array {error} is missing") from None
    of(labelled.instances).check(labelled.instances, labelled.solution)
    return labelled


def read_arrays(path: Path) -> Arrays:
    """Everything in an npz file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise LehdError(f"{path}: not a readable npz file of labels ({error})") from None


def write_arrays(path: Path, arrays: Arrays) -> None:
    """A compressed npz file, written atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    try:
        write_atomically(path, buffer.getvalue())
    except OSError as error:
        raise LehdError(f"{path}: cannot write ({error.strerror or error})") from error


def concatenate(parts: Sequence[Labelled]) -> Labelled:
    """All of them in one; they must be of one size and problem."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0].instances
    if any(part.instances.coords.shape[1:] != first.coords.shape[1:] for part in parts):
        raise LehdError("label files of different sizes cannot be mixed in one data set")

    def join(name: str) -> torch.Tensor:
        return torch.cat([getattr(part.instances, name) for part in parts])

    cvrp = first.demands is not None
    return Labelled(
        Instances(
            coords=join("coords"),
            demands=join("demands") if cvrp else None,
            capacity=join("capacity") if cvrp else None,
        ),
        Solution(
            torch.cat([part.solution.nodes for part in parts]),
            torch.cat([part.solution.via_depot for part in parts]),
        ),
    )


def from_plain(arrays: Arrays) -> Labelled:
    """What the arrays of the plain layout hold."""
    nodes = torch.as_tensor(np.ascontiguousarray(arrays["nodes"] if "nodes" in arrays else arrays["tour"])).long()
    cvrp = "demands" in arrays
    via = torch.as_tensor(arrays["via_depot"]).bool() if cvrp else torch.zeros_like(nodes, dtype=torch.bool)
    return Labelled(plain_instances(arrays), Solution(nodes, via))


def plain_instances(arrays: Arrays) -> Instances:
    cvrp = "demands" in arrays
    return Instances(
        coords=torch.as_tensor(np.ascontiguousarray(arrays["coords"], dtype=np.float32)),
        demands=torch.as_tensor(arrays["demands"].astype(np.int64)) if cvrp else None,
        capacity=torch.as_tensor(arrays["capacity"].astype(np.int64)) if cvrp else None,
    )


def solved_rows(arrays: Arrays) -> NDArray[np.bool_]:
    """Which instances of a compact file have a label."""
    if "solved" in arrays:
        return arrays["solved"].reshape(-1).astype(bool)
    return np.full(len(arrays["shard"]) * SHARD, "nodes" in arrays)


def draw_compact(path: Path, arrays: Arrays) -> Arrays:
    """The instances of a compact file, drawn again: arrays of the plain layout without labels."""
    recipe, customers = str(arrays["recipe"]), int(arrays["customers"])
    if recipe not in RECIPES:
        raise LehdError(f"{path}: unknown recipe {recipe!r}; known: {', '.join(RECIPES)}")
    if len(arrays["shard"]) == 0:
        raise LehdError(f"{path}: no shard of labels in it")
    drawn = [draw_shard(recipe, customers, int(shard)) for shard in arrays["shard"]]
    return {name: np.concatenate([getattr(part, name) for part in drawn]) for name in drawn[0]._fields}


def expand(path: Path, arrays: Arrays) -> Arrays:
    """A compact file's labels in the plain layout."""
    plain = draw_compact(path, arrays)
    customers, solved = int(arrays["customers"]), solved_rows(arrays)
    plain["nodes"] = arrays["nodes"].reshape(-1, customers)
    if "demands" in plain:
        bits = arrays["via"].reshape(len(solved), -1)
        plain["via_depot"] = np.unpackbits(bits, axis=1, count=customers).astype(bool)
    plain = {name: array[solved] for name, array in plain.items()}
    labelled = from_plain(plain)
    cost = of(labelled.instances).cost(labelled.instances, labelled.solution).double().numpy()
    if not np.allclose(cost, arrays["cost"].reshape(-1)[solved], rtol=1e-4):
        recipe = str(arrays["recipe"])
        raise LehdError(f"{path}: this numpy draws other instances from {recipe} than the labels were made for")
    return plain
