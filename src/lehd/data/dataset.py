"""Labelled instances on disk and in memory.

A label file is an npz archive in one of two layouts:

    plain    coords (M, N, 2) and nodes (M, n), the visiting order (TSP: or `tour`); CVRP also via_depot (M, n) bool,
             demands (M, N) with the depot's 0 in column 0, capacity (M,)
    compact  recipe (a name in RECIPES), customers, shard (S,), cost (S, SHARD), TSP: ranks (S, SHARD, n - 1) of
             lehd.data.ranks or nodes (S, SHARD, n), CVRP: nodes and via (S, SHARD, bits of n flags). The instances are
             drawn again from recipe and shard number, and the costs guard against a generator that draws differently.
             Where solved (S, SHARD) is False there is no label

Either may say where each label came from: sources (K,), names, and source (M,) or (S, SHARD), which of them. See
lehd.data.label_file, which also knows files without labels.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lehd.data.generate import CvrpArrays, TspArrays, uniform_cvrp, uniform_tsp, x_type_cvrp
from lehd.data.ranks import from_ranks, to_ranks
from lehd.data.shapes import shapes_tsp
from lehd.errors import LehdError, writing
from lehd.io.text import LARGEST
from lehd.model.checkpoint import write_atomically
from lehd.problems import of
from lehd.types import Instances, Solution

Arrays = dict[str, NDArray[Any]]  # those of an npz file, by name
SHARD = 100  # instances drawn from one seed
# Arrays of which a file with labels has one.
PLAIN_LABELS, COMPACT_LABELS = ("nodes", "tour"), ("nodes", "ranks")

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


def check_recipe(recipe: str, customers: int, shards: Iterable[int]) -> None:
    """Raise unless there are such instances."""
    if recipe not in RECIPES:
        raise LehdError(f"unknown recipe {recipe!r}; known: {', '.join(RECIPES)}")
    if not 3 <= customers < 65_536:
        raise LehdError(f"{customers} customers: expected 3 to 65535")
    if (first := min(shards, default=0)) < 0:
        raise LehdError(f"shard {first}: shards are counted from 0")


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
    if not has_labels(arrays):
        hint = f"lehd label {path} FOLDER --improve WEIGHTS --merge FILE"
        raise LehdError(
            f"{path}: no labels in it, neither {' nor '.join(_label_names(arrays))}; `{hint}` would make them"
        )
    with reading(path):
        labelled = from_plain(expand(arrays) if "recipe" in arrays else arrays)
        if not len(labelled):
            raise LehdError("no labels in it")
        of(labelled.instances).check(labelled.instances, labelled.solution)
    return labelled


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Says of which file the arrays are that something is wrong with."""
    try:
        yield
    except KeyError as error:
        raise LehdError(f"{path}: the array {error} is missing") from None
    except (ValueError, TypeError, IndexError, RuntimeError) as error:  # arrays of a wrong type or shape fail anywhere
        kind = type(error) if isinstance(error, LehdError) else LehdError
        raise kind(f"{path}: {error}") from None


def read_arrays(path: Path) -> Arrays:
    """Everything in an npz file."""
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("a single array, as in an .npy file")
        with archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise LehdError(f"{path}: not a readable npz file of labels ({error})") from None


def write_arrays(path: Path, arrays: Arrays) -> None:
    """A compressed npz file, written atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    with writing(path):
        write_atomically(path, buffer.getvalue())


def has_labels(arrays: Arrays) -> bool:
    return any(name in arrays for name in _label_names(arrays))


def _label_names(arrays: Arrays) -> tuple[str, ...]:
    return COMPACT_LABELS if "recipe" in arrays else PLAIN_LABELS


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
    return Labelled(plain_instances(arrays), plain_solution(arrays))


def plain_solution(arrays: Arrays) -> Solution:
    order = "nodes" if "nodes" in arrays else "tour"
    nodes = torch.as_tensor(whole_numbers(arrays[order], order))
    if "demands" not in arrays:
        return Solution(nodes, torch.zeros_like(nodes, dtype=torch.bool))
    return Solution(nodes, torch.as_tensor(_shaped(arrays, "via_depot", *nodes.shape)).bool())


def plain_instances(arrays: Arrays) -> Instances:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        coords = np.ascontiguousarray(arrays["coords"], dtype=np.float32)
    if coords.ndim != 3 or coords.shape[2] != 2:
        raise LehdError(f"the array coords has the shape {coords.shape}; expected (instances, nodes, 2)")
    if not np.isfinite(coords).all():
        raise LehdError("a coordinate is not a finite number")
    if "demands" not in arrays:
        return Instances(torch.as_tensor(coords))
    return Instances(
        coords=torch.as_tensor(coords),
        demands=torch.as_tensor(whole_numbers(_shaped(arrays, "demands", *coords.shape[:2]), "demands")),
        capacity=torch.as_tensor(whole_numbers(_shaped(arrays, "capacity", len(coords)), "capacity")),
    )


def whole_numbers(values: Any, name: str = "") -> NDArray[np.int64]:
    """Numbers of any type as int64. Fractions are refused: cut off, they would leave another problem."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iu":
        numbers = numbers.astype(np.float64)
        wrong = ~(np.abs(numbers) <= LARGEST) | (numbers != np.floor(numbers))
        if wrong.any():
            place = f" in the array {name}" if name else ""
            raise LehdError(f"{numbers[wrong][0]:g}{place}: expected a whole number")
    return numbers.astype(np.int64, order="C")


def _shaped(arrays: Arrays, name: str, *shape: int) -> NDArray[Any]:
    """The array of that name, which must have this shape."""
    array = arrays[name]
    if array.shape != shape:
        raise LehdError(f"the array {name} has the shape {array.shape}; expected {shape}")
    return array


def solved_rows(arrays: Arrays) -> NDArray[np.bool_]:
    """Which instances of a compact file have a label."""
    shards = len(arrays["shard"])
    if "solved" in arrays:
        return _shaped(arrays, "solved", shards, SHARD).reshape(-1).astype(bool)
    return np.full(shards * SHARD, has_labels(arrays))


def draw_compact(arrays: Arrays) -> Arrays:
    """The instances of a compact file, drawn again: arrays of the plain layout without labels."""
    recipe, customers = str(arrays["recipe"]), int(arrays["customers"])
    shards = whole_numbers(arrays["shard"], "shard")
    if shards.ndim != 1 or len(shards) == 0:
        raise LehdError(f"the array shard has the shape {shards.shape}; expected a row of numbers")
    check_recipe(recipe, customers, shards)
    drawn = [draw_shard(recipe, customers, int(shard)) for shard in shards]
    return {name: np.concatenate([getattr(part, name) for part in drawn]) for name in drawn[0]._fields}


def with_ranks(arrays: Arrays) -> Arrays:
    """A compact file as it is written: if it is of TSPs, with ranks in place of nodes, a fifth of the space."""
    if "via" in arrays:
        return arrays
    coords = draw_compact(arrays)["coords"]
    shape, solved = (len(arrays["shard"]), SHARD), solved_rows(arrays)
    tours = _shaped(arrays, "nodes", *shape, coords.shape[1]).reshape(len(solved), -1)[solved]
    if (np.sort(tours, 1) != np.arange(coords.shape[1])).any():
        raise LehdError("a label that visits a node twice, or one that there is not")
    found = to_ranks(coords[solved], tours)
    ranks = np.zeros((len(solved), coords.shape[1] - 1), found.dtype)  # and so they stay where there is no tour
    ranks[solved] = found
    others = {name: array for name, array in arrays.items() if name != "nodes"}
    return others | {"ranks": ranks.reshape(*shape, -1)}


def expand(arrays: Arrays) -> Arrays:
    """A compact file's labels in the plain layout."""
    plain = draw_compact(arrays)
    customers, solved = int(arrays["customers"]), solved_rows(arrays)
    shape = (len(arrays["shard"]), SHARD)
    if "ranks" in arrays:
        ranks = _shaped(arrays, "ranks", *shape, customers - 1).reshape(len(solved), -1)
        plain["nodes"] = from_ranks(plain["coords"], whole_numbers(ranks, "ranks"))
    else:
        plain["nodes"] = _shaped(arrays, "nodes", *shape, customers).reshape(-1, customers)
    if "demands" in plain:
        bits = _shaped(arrays, "via", *shape, -(-customers // 8)).reshape(len(solved), -1)
        plain["via_depot"] = np.unpackbits(bits, axis=1, count=customers).astype(bool)
    plain = {name: array[solved] for name, array in plain.items()}
    labelled = from_plain(plain)
    cost = of(labelled.instances).cost(labelled.instances, labelled.solution).double().numpy()
    wrong = ~np.isclose(cost, _shaped(arrays, "cost", *shape).reshape(-1)[solved], rtol=1e-4)
    if wrong.any():
        message = f"{wrong.sum()} of {len(wrong)} labels have other costs than when they were made"
        raise LehdError(f"{message}: this numpy draws other instances from {arrays['recipe']}")
    return plain
