"""Supervised training: batches of decisions, AdamW, a schedule by steps or by wall-clock time, a log and weights.

    python -m lehd.training.loop configs/cvrp100.toml --output runs/cvrp --data FOLDER

runs on a bare GPU machine: it needs torch, numpy and safetensors alone.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from lehd.data.dataset import Labelled, concatenate, load_labels
from lehd.decoding.construct import construct
from lehd.errors import LehdError
from lehd.model.checkpoint import load_model, save_model
from lehd.model.lehd import LEHD, ModelConfig
from lehd.model.precision import arithmetic
from lehd.problems import PROBLEMS
from lehd.problems.base import Problem
from lehd.training.partial import Batch, sample_batch
from lehd.training.supervised import cross_entropy


@dataclass(frozen=True)
class TrainConfig:
    problem: str = "TSP"
    data: tuple[str, ...] = ()  # label files of one size
    shares: tuple[float, ...] = ()  # how often each file is drawn from; by size if empty
    held_out: int = 512  # the first labels of every file, never trained on
    steps: int | None = None  # the end, by optimizer steps …
    seconds: float | None = None  # … or by wall-clock time
    tokens: int = 131_072  # through the decoder, per step
    learning_rate: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    warmup: int = 1000  # steps
    decay_from: float = 0.3  # share of the run after which the learning rate falls linearly, to zero at the end
    clip: float = 1.0  # of the gradient's norm
    seed: int = 0
    compile: bool = True  # on a GPU
    log_every: float = 20.0  # seconds between lines in the log; weights are saved as often as validation runs
    validate_every: float = 120.0
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        if self.problem not in PROBLEMS:
            raise LehdError(f"problem = {self.problem!r}: expected one of {', '.join(PROBLEMS)}")
        if (self.steps is None) == (self.seconds is None):
            raise LehdError("a training run ends after `steps` or after `seconds`: give one of them")
        if (self.steps if self.steps is not None else self.seconds or 0) <= 0:
            raise LehdError("`steps` or `seconds` must be positive")
        if self.shares and len(self.shares) != len(self.data):
            raise LehdError("give one of `shares` for every file of `data`, or none")


def read_config(path: str | Path) -> TrainConfig:
    """A TrainConfig from a TOML file; what the file does not mention keeps its default."""
    try:
        table = tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LehdError(f"{path}: {error}") from None
    unknown = table.keys() - {each.name for each in fields(TrainConfig)}
    if unknown:
        raise LehdError(f"{path}: unknown setting {', '.join(sorted(unknown))}")
    problem = PROBLEMS.get(table.get("problem", "TSP"))
    sizes = table.pop("model", {})
    if problem is not None:
        sizes = {name: getattr(problem, name) for name in ("num_features", "num_resources", "actions_per_node")} | sizes
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    try:
        return TrainConfig(**values, model=ModelConfig(**sizes))
    except TypeError as error:
        raise LehdError(f"{path}: {error}") from None


class Data:
    """Label files on the device, apart from those held out for validation."""

    def __init__(self, parts: list[Labelled], shares: tuple[float, ...], held_out: int, device: torch.device):
        if any(len(part) <= held_out for part in parts):
            raise LehdError(f"every label file needs more than the {held_out} labels that are held out")
        self.validation = concatenate([part.rows(slice(held_out)) for part in parts]).to(device)
        self.parts = [part.rows(slice(held_out, None)).to(device) for part in parts]
        self.shares = shares or tuple(float(len(part)) for part in self.parts)

    def pick(self, rng: random.Random) -> Labelled:
        return rng.choices(self.parts, self.shares)[0]


class Trainer:
    def __init__(self, config: TrainConfig, model: LEHD, data: Data, device: torch.device):
        self.config, self.data, self.device = config, data, device
        self.problem: Problem = PROBLEMS[config.problem]
        self.model = model.to(device).train()
        if config.compile and device.type == "cuda":
            torch._dynamo.config.recompile_limit = 64  # training and validation, encoder and decoder
            for layer in [model.encoder, *model.decoder]:
                layer.compile(dynamic=True)
        self.rng = random.Random(config.seed)
        self.generator = torch.Generator(device).manual_seed(config.seed)
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=torch.tensor(0.0, device=device),
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.step = 0
        self.begun = time.perf_counter()
        self.decisions = self.tokens = 0
        self.sums = torch.zeros(4, device=device)  # loss, right choices, decisions, skipped steps since the last line

    @property
    def progress(self) -> float:
        """How much of the run is over."""
        if self.config.steps is not None:
            return self.step / self.config.steps
        assert self.config.seconds is not None
        return (time.perf_counter() - self.begun) / self.config.seconds

    def learning_rate(self) -> float:
        warm = min(1.0, (self.step + 1) / max(1, self.config.warmup))
        left = max(0.0, 1 - self.progress)
        decay = 1 - self.config.decay_from
        cool = 1.0 if left >= decay else left / decay
        return self.config.learning_rate * min(warm, cool)

    def sample(self, labelled: Labelled, tokens: int, rng: random.Random, generator: torch.Generator) -> Batch:
        return sample_batch(self.problem, labelled, tokens, self.config.model.decoder_layers, rng, generator)

    def train_step(self) -> None:
        batch = self.sample(self.data.pick(self.rng), self.config.tokens, self.rng, self.generator)
        with arithmetic(self.device):
            loss, right = cross_entropy(self.model, self.problem, batch)
        mean = loss.mean()
        mean.backward()  # type: ignore[no-untyped-call]
        finite = self._clip()
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self.learning_rate())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        count = len(batch.action)
        with torch.no_grad():
            part = torch.stack([loss.sum(), right.sum(), torch.full_like(mean, count)])
            self.sums[:3] += torch.where(finite, part, torch.zeros_like(part))
            self.sums[3] += ~finite
        self.step += 1
        self.decisions += count
        self.tokens += count * (batch.state.available.shape[1] + 2)

    def _clip(self) -> Tensor:
        """Clip gradients, or drop them if any is not finite; whether all were. Nothing here waits for the GPU."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        finite = torch.isfinite(norm)
        scale = torch.where(finite, (self.config.clip / (norm + 1e-6)).clamp(max=1.0), 0.0)
        for gradient in gradients:
            gradient.copy_(torch.where(finite, gradient * scale, 0.0))
        return finite

    def validate(self, decisions: int = 65_536) -> dict[str, float]:
        """Loss and accuracy on the same held-out decisions every time, and greedy construction beside the labels."""
        rng, generator = random.Random(1), torch.Generator(self.device).manual_seed(1)
        self.model.eval()
        loss = right = count = 0.0
        with torch.no_grad(), arithmetic(self.device):
            while count < decisions:
                batch = self.sample(self.data.validation, 65_536, rng, generator)
                losses, hits = cross_entropy(self.model, self.problem, batch)
                loss, right, count = loss + float(losses.sum()), right + float(hits.sum()), count + len(losses)
        gap = self.greedy_gap(self.data.validation.rows(slice(None, None, max(1, len(self.data.validation) // 512))))
        self.model.train()
        return {"validation_loss": loss / count, "validation_accuracy": right / count, "greedy_gap": gap}

    def greedy_gap(self, labelled: Labelled) -> float:
        """How much longer greedy solutions are than the labels: the mean ratio, in per cent."""
        instances = labelled.instances
        state = self.problem.initial_state(instances)
        solution = self.problem.complete(state, construct(self.model, self.problem, instances, state))
        cost, label = (self.problem.cost(instances, each).double() for each in (solution, labelled.solution))
        return float((cost / label).mean() - 1) * 100

    def line(self) -> dict[str, float]:
        """What happened since the last line."""
        loss, right, count, skipped = self.sums.tolist()
        self.sums.zero_()
        seconds = time.perf_counter() - self.begun
        return {
            "step": self.step,
            "seconds": round(seconds, 1),
            "loss": loss / max(1.0, count),
            "accuracy": right / max(1.0, count),
            "learning_rate": self.learning_rate(),
            "skipped": skipped,
            "decisions": self.decisions,
            "tokens_per_second": self.tokens / seconds,
        }

    def run(self, folder: Path) -> LEHD:
        """Train to the end; `folder` gets log.jsonl and weights.safetensors."""
        folder.mkdir(parents=True, exist_ok=True)
        logged = validated = self.begun = time.perf_counter()
        with open(folder / "log.jsonl", "a") as log:
            while self.progress < 1:
                self.train_step()
                now = time.perf_counter()
                if now - logged >= self.config.log_every:
                    logged = now
                    write(log, self.line())
                if now - validated >= self.config.validate_every and self.progress < 1:
                    write(log, {"step": self.step, **self.validate()})
                    save_model(self.model, folder / "weights.safetensors")
                    validated = time.perf_counter()
            write(log, {**self.line(), **self.validate()})
        save_model(self.model, folder / "weights.safetensors")
        return self.model.eval()


def write(log: IO[str], record: dict[str, Any]) -> None:
    line = json.dumps(record)
    print(line, flush=True)
    log.write(line + "\n")
    log.flush()


def train(
    config: TrainConfig, folder: Path, data: Path = Path(), init: Path | None = None, device: str | None = None
) -> LEHD:
    """Run a configuration; its label files are looked up in the folder `data`."""
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.manual_seed(config.seed)
    model = LEHD(config.model) if init is None else load_model(init)
    parts = [load_labels(data / name) for name in config.data]
    if not parts:
        raise LehdError("no label files: name them in the configuration's `data`")
    return Trainer(config, model, Data(parts, config.shares, config.held_out, where), where).run(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a model on labelled instances.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="folder for log and weights")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the label files")
    parser.add_argument("--init", type=Path, help="weights to start from")
    parser.add_argument("--device")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings that replace the file's")
    options = parser.parse_args()
    config = read_config(options.config)
    changes = dict(item.split("=", 1) for item in options.set)
    config = replace(config, **{name: json.loads(value) for name, value in changes.items()})
    print(json.dumps(asdict(config)))
    train(config, options.output, options.data, options.init, options.device)


if __name__ == "__main__":
    main()
