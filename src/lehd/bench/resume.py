"""How far each batch has come, in a folder beside the results: a stopped run goes on there.

So does one that is asked for more iterations or seconds later. When no more is wanted, the folder may be deleted.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import torch

from lehd.bench.curve import Point
from lehd.data.dataset import write_arrays
from lehd.types import Solution


class Progress:
    """The solutions that a run, told apart by `facts`, can go on from."""

    def __init__(self, results: Path | None, facts: tuple[object, ...]):
        self.facts = json.dumps(facts)
        name = hashlib.sha256(self.facts.encode()).hexdigest()[:16]
        self.path = None if results is None else results.with_suffix(".parts") / f"{name}.npz"

    def save(self, point: Point) -> None:
        if self.path is not None:
            arrays = {
                "facts": np.array(self.facts),
                "reached": np.array([point.iteration, point.seconds]),
                "nodes": point.solution.nodes.cpu().numpy().astype(np.int32),
                "via_depot": point.solution.via_depot.cpu().numpy(),
            }
            write_arrays(self.path, arrays)

    def load(self, device: torch.device) -> Point | None:
        """Where this very run stopped; None if it has to begin."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                if str(file["facts"]) != self.facts:
                    return None
                iteration, seconds = file["reached"].tolist()
                nodes, via_depot = file["nodes"].astype(np.int64), file["via_depot"]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None  # no loss but time: the batch begins anew
        solution = Solution(torch.from_numpy(nodes), torch.from_numpy(via_depot)).to(device)
        return Point(int(iteration), seconds, solution)
