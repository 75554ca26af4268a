"""Label files of other projects.

    Concorde text   a TSP a line: x1 y1 x2 y2 … output 1 5 … 1, nodes from 1, the way back written out or not
    LEHD text       TSP as above; CVRP: depot,x,y,customer,x1,y1,…,capacity,Q,demand,…,cost,c,node_flag,… where the
                    customers in visiting order are followed by their via-depot flags
    Kool pickles    a list of instances, and another one of their solutions

    python -m lehd.data.foreign SOURCE TARGET.npz [--solutions FILE]

writes a plain label file.
"""

from __future__ import annotations

import argparse
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from lehd.data.dataset import Arrays, Labelled, reading, whole_numbers, write_arrays
from lehd.errors import LehdError
from lehd.problems import of
from lehd.types import Instances, Solution

PARTS = ("depot", "customer", "capacity", "demand", "cost", "node_flag")
Row = tuple[list[list[float]], list[int] | None, int | None, list[int], list[bool]]  # coords, demands, Q, nodes, via


def read_foreign(path: str | Path, solutions: str | Path | None = None) -> Labelled:
    """Read and check a text file, or a pickle of instances together with one of solutions."""
    path = Path(path)
    if path.suffix == ".pkl":
        if solutions is None:
            raise LehdError(f"{path}: a pickle of instances needs one of solutions beside it")
        rows = _kool_rows(path, Path(solutions))
    else:
        try:
            with open(path, encoding="utf-8") as file:
                rows = parse_text(file, str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise LehdError(f"{path}: not a readable text file of labels ({error})") from None
    labelled = _stack(rows, path)
    with reading(path):
        of(labelled.instances).check(labelled.instances, labelled.solution)
    return labelled


def parse_text(lines: Iterable[str], name: str) -> list[Row]:
    """The instances of a text file, one a line."""
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(_cvrp_row(line) if "," in line else _tsp_row(line))
        except ValueError as error:
            raise LehdError(f"{name}, line {number}: {error}") from None
    return rows


def _tsp_row(line: str) -> Row:
    before, word, after = line.partition("output")
    if not word:
        raise ValueError("expected coordinates, the word output and a tour")
    numbers, tour = [float(value) for value in before.split()], [int(value) - 1 for value in after.split()]
    if len(numbers) % 2:
        raise ValueError(f"{len(numbers)} coordinates: expected two for each node")
    nodes = len(numbers) // 2
    if len(tour) == nodes + 1 and tour[-1] == tour[0]:
        tour.pop()
    if len(tour) != nodes:
        raise ValueError(f"a tour of {len(tour)} nodes through {nodes} positions")
    return _pairs(numbers), None, None, tour, [False] * nodes


def _cvrp_row(line: str) -> Row:
    words = [word.strip() for word in line.strip().rstrip(",").split(",")]
    missing = [part for part in PARTS if part not in words]
    if missing:
        raise ValueError(f"the part {missing[0]} is missing")
    places = [words.index(part) for part in PARTS]
    if places != sorted(places):
        raise ValueError(f"expected the parts in the order {', '.join(PARTS)}")
    part = {
        name: words[begin + 1 : end] for name, begin, end in zip(PARTS, places, [*places[1:], len(words)], strict=True)
    }
    coords = _pairs([float(value) for value in part["depot"] + part["customer"]])
    customers = len(coords) - 1
    demands = whole_numbers(part["demand"]).tolist()
    if demands and demands[0] != 0:  # the depot's is left out
        demands = [0, *demands]
    order = whole_numbers(part["node_flag"]).tolist()
    if len(demands) != customers + 1 or len(order) != 2 * customers or len(part["capacity"]) != 1:
        raise ValueError(f"{len(demands)} demands and {len(order)} entries of node_flag for {customers} customers")
    nodes, flags = order[:customers], order[customers:]
    return coords, demands, int(whole_numbers(part["capacity"][0])), nodes, [bool(flag) for flag in flags]


def _kool_rows(path: Path, solutions: Path) -> list[Row]:
    instances, found = _unpickle(path), _unpickle(solutions)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list | tuple):
        found = found[0]  # with the number of processes they were made by
    try:
        if len(instances) != len(found):
            raise LehdError(f"{solutions}: {len(found)} solutions for {len(instances)} instances")
        rows = []
        for number, (instance, solution) in enumerate(zip(instances, found, strict=True)):
            try:
                rows.append(_kool_row(instance, solution))
            except (TypeError, ValueError, IndexError, KeyError) as error:
                raise LehdError(f"{path}, instance {number}: {error}") from None
    except TypeError:
        raise LehdError(f"{path}: expected a list of instances, and of solutions in {solutions}") from None
    return rows


def _kool_row(instance: Any, solution: Any) -> Row:
    """TSP: positions. CVRP: depot, positions, demands, capacity. A solution is a tour, or (cost, tour, seconds)."""
    if solution is None:
        raise ValueError("it has no solution")
    tour = solution[1] if isinstance(solution, tuple) else solution
    sequence = whole_numbers(np.asarray(tour).reshape(-1)).tolist()
    if not (isinstance(instance, tuple) and len(instance) == 4):
        coords = _pairs(np.asarray(instance, dtype=np.float64).reshape(-1).tolist())
        return coords, None, None, sequence, [False] * len(sequence)
    depot, customers, demands, capacity = (np.asarray(part, dtype=np.float64).reshape(-1).tolist() for part in instance)
    # Node 0 between two customers is the depot.
    pairs = [(node, before == 0) for before, node in zip([0, *sequence], sequence, strict=False) if node != 0]
    nodes, via = [node for node, _ in pairs], [flag for _, flag in pairs]
    quantities = whole_numbers([capacity[0], 0, *demands]).tolist()
    return _pairs(depot + customers), quantities[1:], quantities[0], nodes, via


class _Unpickler(pickle.Unpickler):
    """Knows what plain data need and nothing else: a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        key = (module.replace("numpy.core", "numpy._core"), name)
        if key in _KNOWN:
            return _KNOWN[key]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which data do not need")

    def persistent_load(self, key: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to data outside the file")


def _encode(text: str, encoding: str) -> bytes:
    """How old pickles write bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"bytes in {encoding}")
    return text.encode("latin1")


def _numpy_functions() -> dict[tuple[str, str], Callable[..., Any]]:
    """Those which numpy itself names in the pickle of an array or a number."""
    array, number = np.zeros(1), np.float64(1)
    rebuild, scalar = array.__reduce__()[0], number.__reduce__()[0]
    contiguous: Any = array.__reduce_ex__(5)[0]
    return {
        ("numpy._core.multiarray", "_reconstruct"): rebuild,
        ("numpy._core.multiarray", "scalar"): scalar,
        ("numpy._core.numeric", "_frombuffer"): contiguous,
    }


_KNOWN: dict[tuple[str, str], Any] = {
    **_numpy_functions(),
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


def _unpickle(path: Path) -> Any:
    try:
        return _Unpickler(io.BytesIO(path.read_bytes())).load()
    except OSError as error:
        raise LehdError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:  # a damaged pickle raises anything
        raise LehdError(f"{path}: not a pickle of plain data ({error})") from None


def _pairs(numbers: Sequence[float]) -> list[list[float]]:
    if len(numbers) % 2 or not numbers:
        raise ValueError(f"{len(numbers)} coordinates: expected two for each node")
    if not np.isfinite(numbers).all():
        raise ValueError("a coordinate is not a finite number")
    return [[x, y] for x, y in zip(numbers[::2], numbers[1::2], strict=True)]


def _stack(rows: list[Row], path: Path) -> Labelled:
    if not rows:
        raise LehdError(f"{path}: no labels in it")
    coords, demands, capacity, nodes, via = zip(*rows, strict=True)
    cvrp = demands[0] is not None
    for number, row in enumerate(rows):
        if len(row[0]) != len(coords[0]) or (row[1] is not None) != cvrp or len(row[3]) != len(nodes[0]):
            raise LehdError(f"{path}, instance {number}: of another size or problem than the first")
    return Labelled(
        Instances(
            coords=torch.tensor(coords, dtype=torch.float32),
            demands=torch.tensor(demands) if cvrp else None,
            capacity=torch.tensor(capacity) if cvrp else None,
        ),
        Solution(torch.tensor(nodes), torch.tensor(via)),
    )


def write_plain(labelled: Labelled, path: Path) -> None:
    """A plain label file."""
    write_arrays(path, plain_arrays(labelled))


def plain_arrays(labelled: Labelled) -> Arrays:
    """Labels in the plain layout."""
    instances, solution = labelled.instances, labelled.solution
    small = np.uint8 if instances.num_nodes <= 256 else np.int32
    arrays = {"coords": instances.coords.numpy(), "nodes": solution.nodes.numpy().astype(small)}
    if instances.demands is not None and instances.capacity is not None:
        arrays |= {"demands": instances.demands.numpy(), "capacity": instances.capacity.numpy()}
        arrays["via_depot"] = solution.via_depot.numpy()
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description="Turn a label file of another project into one of lehd's.")
    parser.add_argument("source", type=Path, help=".txt or .pkl")
    parser.add_argument("target", type=Path, help=".npz")
    parser.add_argument("--solutions", type=Path, help="the solutions of a .pkl of instances")
    options = parser.parse_args()
    try:
        labelled = read_foreign(options.source, options.solutions)
        write_plain(labelled, options.target)
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    print(f"{len(labelled)} labels in {options.target}")


if __name__ == "__main__":
    main()
