"""TSP labels from a program of the user's own: LKH or Concorde, neither of which lehd ships."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SCALE = 1_000_000  # both round distances to whole numbers
GRACE = 60.0  # seconds beyond its time after which a program is stopped


def lkh_tour(binary: Path, problem: str, seconds: float, seed: int = 1) -> list[int]:
    """One run of LKH within a time limit, on the text of a problem."""
    with _folder_of(problem) as folder:
        settings = {
            "PROBLEM_FILE": "problem.tsp",
            "OUTPUT_TOUR_FILE": "found.tour",
            "RUNS": 1,
            "SEED": seed,
            "TIME_LIMIT": seconds,
            "TRACE_LEVEL": 0,
        }
        (folder / "run.par").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        _run([str(binary), "run.par"], folder, seconds + GRACE)
        words = (folder / "found.tour").read_text().split()
        first = words.index("TOUR_SECTION") + 1
        return [int(word) - 1 for word in words[first : words.index("-1", first)]]


def concorde_tour(binary: Path, problem: str, seconds: float, seed: int = 1) -> list[int]:
    """The shortest tour; Concorde takes the time it needs, and is given up after `seconds` and a grace."""
    with _folder_of(problem) as folder:
        _run([str(binary), "-s", str(seed), "-x", "-o", "found.sol", "problem.tsp"], folder, seconds + GRACE)
        return [int(word) for word in (folder / "found.sol").read_text().split()[1:]]  # the first is their number


@contextmanager
def _folder_of(problem: str) -> Iterator[Path]:
    """A folder for one run, with the problem in it."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "problem.tsp").write_text(problem)
        yield Path(name)


def tsplib_text(coords: NDArray[np.floating], distances: NDArray[np.integer] | None = None) -> str:
    """A problem for these programs. Distances are given where they are not those between the positions."""
    lines = ["NAME : problem", "TYPE : TSP", f"DIMENSION : {len(coords)}"]
    if distances is None:
        points = coords.astype(np.float64) - coords.min(0)
        whole = np.rint(points * (SCALE / max(float(points.max()), 1e-12))).astype(int).tolist()
        lines += ["EDGE_WEIGHT_TYPE : EUC_2D", "NODE_COORD_SECTION"]
        lines += [f"{number} {x} {y}" for number, (x, y) in enumerate(whole, 1)]
    else:
        lines += ["EDGE_WEIGHT_TYPE : EXPLICIT", "EDGE_WEIGHT_FORMAT : FULL_MATRIX", "EDGE_WEIGHT_SECTION"]
        lines += [" ".join(map(str, row)) for row in distances.tolist()]
    return "\n".join([*lines, "EOF", ""])


def _run(command: Sequence[str], folder: Path, limit: float) -> None:
    done = subprocess.run(
        command, cwd=folder, timeout=limit, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-200:]
        raise RuntimeError(f"{command[0]} ended with code {done.returncode}: {said}")
