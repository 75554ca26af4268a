"""The paper's uniform test sets: greedy construction and plain RRC, gap and time at several points of one run.

    python -m lehd.bench.uniform FOLDER --sets tsp100_s2023 cvrp200 --rrc 50 100 --limit 128

A set is FOLDER/NAME.npz with coords, for CVRP demands and capacity, and reference costs. The gap is the ratio of mean
costs, in per cent; costs are unrounded Euclidean.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import torch

from lehd import problems
from lehd.decoding.construct import construct
from lehd.decoding.rrc import random_reconstruct
from lehd.decoding.stop import max_iterations
from lehd.errors import LehdError
from lehd.io.arrays import coordinate_instances
from lehd.model.checkpoint import fingerprint, load_model, shipped_weights
from lehd.types import Instances, Solution

REFERENCES = ("opt_cost", "lkh_cost", "ref_cost")  # the first that a set has


def load_set(path: Path, limit: int | None = None) -> tuple[Instances, np.ndarray]:
    """The instances of a test set and the costs its gaps are measured against."""
    try:
        with np.load(path) as file:
            arrays = {name: file[name][:limit] for name in file.files if file[name].ndim}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise LehdError(f"{path}: {error}") from None
    references = [arrays[name] for name in REFERENCES if name in arrays]
    if "coords" not in arrays or not references:
        raise LehdError(f"{path}: expected the arrays coords and one of {', '.join(REFERENCES)}")
    instances = coordinate_instances(arrays["coords"], arrays.get("demands"), arrays.get("capacity"))
    return instances, references[0]


def measure(
    path: Path, budgets: list[int], weights: Path | None, limit: int | None, device: str
) -> list[dict[str, object]]:
    """One record for greedy and for each number of RRC iterations."""
    instances, reference = load_set(path, limit)
    problem = problems.of(instances)
    model = load_model(weights or shipped_weights(problem.name), device)
    instances = instances.to(device)
    common = {
        "set": path.stem,
        "instances": len(instances),
        "weights": fingerprint(model),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
    }
    records: list[dict[str, object]] = []
    begun = time.perf_counter()

    def note(iteration: int, solution: Solution) -> None:
        if iteration and iteration not in budgets:
            return
        cost = problem.cost(instances, solution).double().cpu().numpy()
        problem.check(instances, solution)
        gap = (cost.mean() / reference.mean() - 1) * 100
        method = f"RRC {iteration}" if iteration else "greedy"
        seconds = round(time.perf_counter() - begun, 2)
        records.append({**common, "method": method, "cost": float(cost.mean()), "gap": float(gap), "seconds": seconds})
        print(json.dumps(records[-1]), flush=True)

    state = problem.initial_state(instances)
    solution = problem.complete(state, construct(model, problem, instances, state))
    note(0, solution)
    if budgets:
        random_reconstruct(
            model, problem, instances, solution, max_iterations(max(budgets)), random.Random(0), on_iteration=note
        )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure gaps on uniform test sets.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--rrc", nargs="*", type=int, default=[], help="iterations at which to report")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--limit", type=int, help="only the first so many instances")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    try:
        for name in options.sets:
            measure(options.folder / f"{name}.npz", options.rrc, options.weights, options.limit, options.device)
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
