"""One look of the decoder on a CPU, by each way to compute it: the layers' own code, torch's products in half
precision, and the compiled kernel in single and in half precision.

    python -m lehd.bench.layers
    OMP_NUM_THREADS=1 python -m lehd.bench.layers --shapes 1x100 16x100 --rounds 30

Milliseconds of the fastest of many rounds, the ways by turns; `x1.9`: so many times as fast as the layers' own code.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lehd.bench.machine import device_words
from lehd.bench.text import NOTHING, markdown
from lehd.errors import LehdError
from lehd.model.attention import AttentionLayer
from lehd.model.half import run_half
from lehd.model.lehd import LEHD, ModelConfig
from lehd.model.native import kernel, run_native
from lehd.model.precision import in_half, inference

SHAPES = ("1x25", "1x100", "4x100", "16x30", "16x100", "64x50", "1x500", "8x1000")
OWN_CODE, TORCH_HALF, KERNEL, KERNEL_HALF = "layers' own code", "torch, half", "kernel", "kernel, half"
Way = Callable[[Sequence[AttentionLayer], Tensor], Tensor]


def own_code(layers: Sequence[AttentionLayer], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def ways() -> dict[str, tuple[Way, bool]]:
    """The ways that this machine has, and whether they are in half precision."""
    found: dict[str, tuple[Way, bool]] = {OWN_CODE: (own_code, False), TORCH_HALF: (run_half, True)}
    compiled = kernel()
    if compiled is not None:
        found[KERNEL] = run_native, False
        if compiled.half:
            found[KERNEL_HALF] = run_native, True
    return found


@torch.no_grad()
def measure(rows: int, nodes: int, rounds: int) -> dict[str, float]:
    """Seconds of each way for so many rows of so many nodes."""
    config, device = ModelConfig(), torch.device("cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [layer for layer in LEHD(config).decoder if isinstance(layer, AttentionLayer)]
        x = torch.randn(rows, nodes, config.dim)
    best = dict.fromkeys(ways(), float("inf"))
    for number in range(rounds + 1):
        for name, (way, half) in ways().items():
            with in_half(half), inference(device), torch.autocast("cpu", enabled=half and way is run_native):
                way(layers, x)  # packs the weights, or converts them
                begun = time.perf_counter()
                way(layers, x)
                spent = time.perf_counter() - begun
            if number:  # the first round wakes everything up
                best[name] = min(best[name], spent)
    return best


def row(shape: str, rounds: int) -> list[str]:
    try:
        rows, nodes = map(int, shape.split("x"))
        if min(rows, nodes) < 1:
            raise ValueError
    except ValueError:
        raise LehdError(f"{shape}: expected rows and nodes, such as 16x100") from None
    best = measure(rows, nodes, rounds)
    cells = [f"{1e3 * best[OWN_CODE]:.2f}"]
    for name in (TORCH_HALF, KERNEL, KERNEL_HALF):
        cells.append(f"{1e3 * best[name]:.2f} x{best[OWN_CODE] / best[name]:.1f}" if name in best else NOTHING)
    return [f"{rows} x {nodes}", *cells]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), metavar="ROWSxNODES")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args(arguments)
    try:
        rows = [row(shape, max(1, given.rounds)) for shape in given.shapes]
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    print(f"Six decoder layers, {device_words(torch.device('cpu'))}, milliseconds\n")
    print(markdown(["rows x nodes", OWN_CODE, TORCH_HALF, KERNEL, KERNEL_HALF], rows))


if __name__ == "__main__":
    main()
