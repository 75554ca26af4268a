"""Where the batch that is being worked on stands, in a file beside the results, so that a stopped run goes on there."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import torch

from lehd.bench.curve import SEGMENT, Point
from lehd.data.dataset import write_arrays
from lehd.types import Solution


class Progress:
    """The solutions at the end of the last segment of a run that is told apart by `facts`."""

    def __init__(self, results: Path | None, facts: tuple[object, ...]):
        self.path = None if results is None else results.with_suffix(".part.npz")
        self.facts = json.dumps(facts)

    def save(self, point: Point) -> None:
        if self.path is not None and point.iteration % SEGMENT == 0:
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

    def forget(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)
