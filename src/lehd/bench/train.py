"""How fast training is: tokens through the decoder per second, forward, backward and optimizer together.

    python -m lehd.bench.train configs/tsp100.toml --data FOLDER --seconds 20

A configuration's own mixture of states is gone through as in a run; beside it the same without compiled or fused
layers, by the layers' own code. Then some steps are repeated under a profiler, which says where their time goes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lehd import __version__
from lehd.bench.arithmetic import TRAINING, decision_flops
from lehd.bench.breakdown import Breakdown, break_down
from lehd.bench.machine import device_words, forget_peak, matmul_ceiling, peak_memory, synchronize
from lehd.bench.store import append_lines
from lehd.data.own_files import read_labels
from lehd.device import find_device
from lehd.errors import LehdError
from lehd.model.fused import plain_layers
from lehd.model.lehd import LEHD
from lehd.training.config import REINFORCE, TrainConfig, read_config
from lehd.training.feed import Data, Plan
from lehd.training.trainer import Trainer

CONFIGURED, EAGER = "as configured", "eager layers"
PROFILED = 20  # steps


@dataclass(frozen=True)
class Speed:
    """What one way of training achieves."""

    variant: str
    config: str
    device: str
    seconds: float
    steps: int
    tokens: int  # nodes through the decoder, starting and destination nodes included
    decisions: int
    flops: float
    ceiling: float  # FLOP/s of large matrix products
    memory: float | None  # GiB at the most; None on a CPU
    warmup: float  # seconds before: compilation and first calls
    shares: dict[str, float]  # where the time goes
    largest: tuple[tuple[str, str, float], ...]  # group, kernel, share

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def share_of_ceiling(self) -> float:
        return self.flops / self.seconds / self.ceiling

    def line(self) -> dict[str, Any]:
        rates = {
            "tokens_per_second": round(self.tokens_per_second),
            "decisions_per_second": round(self.decisions / self.seconds),
            "flops_per_second": self.flops / self.seconds,
            "share_of_ceiling": round(self.share_of_ceiling, 4),
        }
        return {"bench": "train", **asdict(self), **rates, "version": __version__}

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", {self.memory:.1f} GiB"
        lines = [
            f"{self.variant}: {self.tokens_per_second:,.0f} tokens/s, {self.steps / self.seconds:.2f} steps/s, "
            f"{self.flops / self.seconds / 1e12:.2f} TFLOP/s, "
            f"{100 * self.share_of_ceiling:.1f} % of the ceiling{memory}"
        ]
        lines += [f"  {100 * share:5.1f} %  {name}" for name, share in self.shares.items()]
        lines += [f"    {100 * share:5.1f} %  {group}: {name[:100]}" for group, name, share in self.largest]
        return "\n".join(lines)


class CountingFeed:
    """A feed that adds up the work it hands out."""

    def __init__(self, feed: Any, config: TrainConfig):
        self._feed, self._model = feed, config.model
        self.flops = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def next(self) -> Plan:
        plan: Plan = self._feed.next()
        passes = TRAINING * plan.share + (plan.share < 1)  # all decisions are looked at before some are learnt from
        self.flops += passes * decision_flops(self._model, plan.rows, plan.available, plan.nodes)
        return plan


class Measurement:
    """One trainer, timed and then looked into."""

    def __init__(self, config: TrainConfig, name: str, data: Data, device: torch.device):
        torch.manual_seed(config.seed)
        self.name, self.device = name, device
        self.trainer = Trainer(config, LEHD(config.model), data, device)
        self.feed = CountingFeed(self.trainer.feed, config)
        self.trainer.feed = self.feed

    def run(self, variant: str, seconds: float, warmup: int, ceiling: float) -> Speed:
        trainer = self.trainer
        begun = time.perf_counter()
        self._steps(warmup)
        warm = time.perf_counter() - begun
        forget_peak(self.device)
        before = (trainer.step, trainer.tokens, trainer.decisions, self.feed.flops)
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            self._steps(10 if self.device.type == "cuda" else 1)
        spent = time.perf_counter() - begun
        after = (trainer.step, trainer.tokens, trainer.decisions, self.feed.flops)
        steps, tokens, decisions, flops = (new - old for new, old in zip(after, before, strict=True))
        looked = self._look_into()
        return Speed(
            variant=variant,
            config=self.name,
            device=device_words(self.device),
            seconds=round(spent, 3),
            steps=int(steps),
            tokens=int(tokens),
            decisions=int(decisions),
            flops=flops,
            ceiling=ceiling,
            memory=peak_memory(self.device),
            warmup=round(warm, 1),
            shares={name: round(share, 4) for name, share in looked.shares().items()},
            largest=tuple((group, name, round(spent / looked.seconds, 4)) for group, name, spent in looked.largest),
        )

    def _steps(self, count: int) -> None:
        for _ in range(count):
            self.trainer.train_step()
        synchronize(self.device)

    def _look_into(self) -> Breakdown:
        """The same steps twice: once for the time they take, once under a profiler."""
        trainer = self.trainer
        states = trainer.rng.getstate(), trainer.generator.get_state()
        count = PROFILED if self.device.type == "cuda" else 2
        begun = time.perf_counter()
        self._steps(count)
        seconds = time.perf_counter() - begun
        trainer.rng.setstate(states[0])
        trainer.generator.set_state(states[1])
        return break_down(lambda: self._steps(count), seconds, self.device)


def measure(
    config: TrainConfig, name: str, folder: Path, seconds: float, warmup: int = 20, device: str | None = None
) -> Iterator[Speed]:
    """The configuration as it is, then by the layers' own code."""
    where = find_device(device)
    if config.method == REINFORCE:
        raise LehdError(f'method = "{REINFORCE}": only training on labels is measured')
    if not config.data:
        raise LehdError("no label files: name them in the configuration's `data`")
    parts = [read_labels(folder / file) for file in config.data]
    data = Data(parts, config.shares, config.held_out, where)
    ceiling = matmul_ceiling(where)
    yield Measurement(config, name, data, where).run(CONFIGURED, seconds, warmup, ceiling)
    with plain_layers():
        plain = replace(config, compile=False, graphs=False)
        yield Measurement(plain, name, data, where).run(EAGER, seconds, warmup, ceiling)


def save(speeds: Sequence[Speed], path: Path | None) -> None:
    if path is not None:
        append_lines(path, (json.dumps(speed.line()) for speed in speeds))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of training.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the label files")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each of the two ways")
    parser.add_argument("--warmup", type=int, default=20, help="steps before the clock starts")
    parser.add_argument("--device")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings that replace the file's")
    parser.add_argument("--output", type=Path, help="a .jsonl file to append to")
    options = parser.parse_args()
    try:
        config = read_config(options.config, options.set)
        name = options.config.stem
        for speed in measure(config, name, options.data, options.seconds, options.warmup, options.device):
            print(speed, flush=True)
            print(json.dumps(speed.line()), flush=True)
            save([speed], options.output)
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
