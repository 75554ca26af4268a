"""A folder of finished parts: whose they are, and all of them joined into a label file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lehd.data.dataset import read_arrays, write_arrays
from lehd.data.label_file import LabelFile
from lehd.labels.makers import Maker
from lehd.labels.parts import part_id
from lehd.problems import of
from lehd.types import Solution
from lehd.work.ledger import Folder, read_manifest

MANIFEST = "improve.json"


def open_folder(folder: Path, file: LabelFile, maker: Maker) -> Folder:
    """The folder's parts must be those of the same labels and maker."""
    digest = hashlib.sha256()
    for name, array in sorted(file.arrays.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    facts = {"labels": digest.hexdigest()[:12], **maker.facts}
    return Folder(folder, MANIFEST, facts, {} if "batch" in facts else {"batch": maker.usual_batch})


def merge_parts(folder: Path, file: LabelFile, maker: str, target: Path) -> int:
    """A label file of what there is so far; the number of its labels."""
    solution, labelled, made_here = collect(folder, file)
    write_arrays(target, file.with_labels(solution, labelled, maker, made_here))
    return int(labelled.sum())


def collect(folder: Path, file: LabelFile) -> tuple[Solution, NDArray[np.bool_], NDArray[np.bool_]]:
    """All labels so far; which instances (M,) have one; which of them (M,) were made in the folder's parts."""
    nodes, via = file.solution.nodes.clone(), file.solution.via_depot.clone()
    labelled, made_here = file.labelled.copy(), np.zeros(len(file), bool)
    batch = read_manifest(folder / MANIFEST)["batch"]
    for number in range(-(-len(file) // batch)):
        if (path := folder / f"{part_id(number)}.npz").exists():
            part, rows = read_arrays(path), slice(number * batch, (number + 1) * batch)
            labelled[rows] = np.isfinite(part["after"])  # not where a solver failed and no label was there before
            made_here[rows] = labelled[rows] & ((part["after"] < part["before"]) | ~file.labelled[rows])
            nodes[rows] = torch.as_tensor(part["nodes"].astype(np.int64))
            via[rows] = torch.as_tensor(np.unpackbits(part["via"], axis=1, count=via.shape[1]).astype(bool))
    solution = Solution(nodes, via)
    chosen = torch.as_tensor(labelled)
    of(file.instances).check(file.instances.rows(chosen), solution.rows(chosen))
    return solution, labelled, made_here
