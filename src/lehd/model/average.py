"""The mean of several models, weight by weight.

Runs that go on from the same weights end near each other, and what they have learnt by chance differs: a model between
them can be better than each. Models that were trained apart have nothing to do with each other; their mean is useless.

    python -m lehd.model.average A.safetensors B.safetensors --output mean.safetensors --half
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from lehd.errors import LehdError, writing
from lehd.model.checkpoint import fingerprint, load_model, save_model
from lehd.model.lehd import LEHD


def average(models: Sequence[LEHD], shares: Sequence[float] = ()) -> LEHD:
    """Each counts by its share, by default equally. Whole numbers, such as counters, are those of the last."""
    shares = shares or [1.0] * len(models)
    if len(shares) != len(models):
        raise LehdError(f"{len(shares)} shares for {len(models)} models: give one for each, or none")
    if not all(math.isfinite(share) for share in shares) or not sum(shares) > 0:
        raise LehdError("the shares must be numbers with a positive sum")
    if any(model.config != models[0].config for model in models):
        raise LehdError("the models have other sizes or settings, and no mean")
    states, total = [model.state_dict() for model in models], sum(shares)
    mean = copy.deepcopy(models[-1])
    with torch.no_grad():
        for name, tensor in mean.state_dict().items():
            if tensor.is_floating_point():
                parts = (state[name].double() * (share / total) for state, share in zip(states, shares, strict=True))
                tensor.copy_(torch.stack(list(parts)).sum(0))
    return mean


def average_files(paths: Sequence[Path], shares: Sequence[float], output: Path, half: bool) -> str:
    """Write the mean of weights files; what the file holds is told."""
    mean = average([load_model(path) for path in paths], shares)
    with writing(output):
        save_model(mean, output, half)
    return f"{output}: weights {fingerprint(load_model(output))}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The mean of several models, weight by weight.")
    parser.add_argument("weights", nargs="+", type=Path)
    parser.add_argument("--shares", nargs="*", type=float, default=[], help="how much each counts; equally by default")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--half", action="store_true", help="store 16-bit numbers")
    given = parser.parse_args()
    try:
        print(average_files(given.weights, given.shares, given.output, given.half))
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
