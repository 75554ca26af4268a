"""One training run: steps of the optimizer, its schedule, its log, its weights and its checkpoints."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Hashable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from lehd.errors import LehdError, writing
from lehd.model.checkpoint import save_model
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS
from lehd.problems.base import Problem
from lehd.recording import Pace
from lehd.training.checkpoint import (
    Checkpoint,
    has_checkpoint,
    optimizer_tensors,
    restore_optimizers,
    save_checkpoint,
)
from lehd.training.config import ADAMW, REINFORCE, TrainConfig
from lehd.training.feed import Data, Feed, Plan, make_feed
from lehd.training.graphs import StepGraphs
from lehd.training.log import Log
from lehd.training.optimizer import make_optimizers
from lehd.training.processes import Processes
from lehd.training.reinforce import Reinforce
from lehd.training.supervised import learn
from lehd.training.validation import greedy_cost, greedy_gap, measure

WEIGHTS, AVERAGE = "weights.safetensors", "average.safetensors"
DECISIONS = {"cpu": 8192, "cuda": 65_536}  # that a validation looks at
CONSTRUCTIONS = {"cpu": 256, "cuda": 4096}  # the same without labels
CHANGE = "change of the weights"  # a recording, beside those of the shapes of batches
AHEAD = 4  # steps that may wait for the GPU
COUNTERS = ("step", "seconds", "decisions", "tokens")


class Watch(Protocol):
    """What a run tells while it goes on."""

    def stepped(self, trainer: Trainer) -> None:
        """After every step."""

    def logged(self, record: dict[str, Any]) -> None:
        """With every line of the log."""


class PrintLines:
    """Prints the lines of the log."""

    def stepped(self, trainer: Trainer) -> None:
        pass

    def logged(self, record: dict[str, Any]) -> None:
        print(json.dumps(record), flush=True)


class Trainer:
    def __init__(
        self,
        config: TrainConfig,
        model: LEHD,
        data: Data | None,
        device: torch.device,
        processes: Processes | None = None,
    ):
        self.config, self.data, self.device = config, data, device
        self.processes = processes or Processes()
        self.problem: Problem = PROBLEMS[config.problem]
        self.model = model.to(device).train()
        self.average = copy.deepcopy(model).eval().requires_grad_(False) if config.average else None
        if config.compile and device.type == "cuda":
            torch._dynamo.config.recompile_limit = 64  # training and validation, encoder and decoder
            for layer in [model.encoder, *model.decoder]:
                layer.compile(dynamic=True)
        self.rng = random.Random(config.seed)
        self.generator = torch.Generator(device).manual_seed(config.seed)
        self.feed = self._make_feed()
        self.optimizers = make_optimizers(model, config, device)
        # The gradients of all parameters in a row: one exchange between processes, one norm, one place for recordings.
        self.gradient = torch.zeros(sum(p.numel() for p in model.parameters()), device=device)
        parts = self.gradient.split_with_sizes([p.numel() for p in model.parameters()])
        self.gradients = [part.view_as(p) for part, p in zip(parts, model.parameters(), strict=True)]
        on_gpu = device.type == "cuda"
        # Layers with a normalization are compiled, which cannot be recorded.
        self.graphs = StepGraphs(self.generator) if on_gpu and config.graphs and config.model.norm == "none" else None
        self.pace = Pace(AHEAD) if on_gpu else None
        self.step = 0
        self.seconds = 0.0  # spent on this run, also before it was resumed
        self.begun = time.perf_counter()
        self.decisions = self.tokens = 0
        # Since the last line: two measures (loss and right choices), what they are divided by, skipped steps.
        self.sums = torch.zeros(4, device=device)
        self.new_sums = torch.zeros(3, device=device)  # what the current step adds, if its gradient is finite

    def _make_feed(self) -> Feed | Reinforce:
        if self.config.method == REINFORCE:
            return Reinforce(self.config, self.problem, self.device, self.generator, self.processes)
        assert self.data is not None
        return make_feed(self.config, self.problem, self.data, self.rng, self.generator)

    @property
    def progress(self) -> float:
        """How much of the run is over."""
        if self.config.steps is not None:
            return self.step / self.config.steps
        if self.config.epochs is not None:
            return self.feed.passes / self.config.epochs
        assert self.config.seconds is not None
        return self.seconds / self.config.seconds

    def learning_rate(self) -> float:
        warm = min(1.0, (self.step + 1) / max(1, self.config.warmup))
        left = max(0.0, 1 - self.progress)
        decay = 1 - self.config.decay_from
        cool = 1.0 if left >= decay else left / decay
        return self.config.learning_rate * min(warm, cool) * self.config.epoch_decay ** int(self.feed.passes)

    def train_step(self) -> None:
        rate = self.learning_rate()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"].fill_(rate)
        decisions, tokens = self._reinforce(self.feed) if isinstance(self.feed, Reinforce) else self._imitate(self.feed)
        if self.pace is not None:
            self.pace.step()
        self.step += 1
        self.decisions += decisions
        self.tokens += tokens
        self.seconds = self.processes.agree(time.perf_counter() - self.begun)

    def _imitate(self, feed: Feed) -> tuple[int, int]:
        """Learn from a batch of labelled decisions; how many they were, and tokens through the decoder."""
        plan = feed.next()
        self._run(plan.key, lambda: self._learn(plan))
        return plan.rows, plan.rows * (plan.available + 2)

    def _reinforce(self, feed: Reinforce) -> tuple[int, int]:
        """Learn from samples."""
        feed.load()
        self._run(feed.key, lambda: self._hand_in(feed.backward(self.model)))
        return feed.decisions, feed.tokens

    def _run(self, key: Hashable | None, hand_in: Callable[[], None]) -> None:
        """A step, from recordings where it has a key; processes exchange gradients between two of them."""
        run = _run_now if self.graphs is None or key is None else self.graphs.run
        run(key, hand_in)
        self.processes.add_up(self.gradient)
        run(CHANGE, self._change_weights)

    def _learn(self, plan: Plan) -> None:
        """Draw a batch and hand in the gradient of its mean loss: work that never waits for the device."""
        batch = plan.draw(self.processes.rows)
        if len(batch.action) == 0:  # more processes than decisions
            self._hand_in(torch.zeros_like(self.new_sums))
            return
        self._hand_in(learn(self.model, self.problem, batch, plan.share, plan.rows))

    @torch.no_grad()
    def _hand_in(self, sums: Tensor) -> None:
        """Gradients to their place in the row, and `sums` (3,) for the next line of the log."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model.parameters()]
        torch.cat([grad.flatten() for grad in grads], out=self.gradient)
        for parameter in self.model.parameters():
            parameter.grad = None
        self.new_sums.copy_(sums)

    @torch.no_grad()
    def _change_weights(self) -> None:
        """By the gradient that was handed in, clipped; not at all if it is not finite. Nothing waits here."""
        norm = torch.linalg.vector_norm(self.gradient)
        finite = torch.isfinite(norm)
        self.gradient.mul_((self.config.clip / (norm + 1e-6)).clamp(max=1.0))
        for parameter, gradient in zip(self.model.parameters(), self.gradients, strict=True):
            parameter.grad = gradient
        for optimizer in self.optimizers:
            optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined] # what a fused optimizer looks at
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.sums[:3] += torch.where(finite, self.new_sums, torch.zeros_like(self.new_sums))
        if self.processes.writes:
            self.sums[3] += ~finite
        self._update_average()

    def _update_average(self) -> None:
        if self.average is None:
            return
        mine, others = ([p.data for p in model.parameters()] for model in (self.average, self.model))
        torch._foreach_lerp_(mine, others, 1 - self.config.average)
        for buffer, other in zip(self.average.buffers(), self.model.buffers(), strict=True):
            buffer.copy_(other)  # statistics of a normalization

    # ---- looking at it

    def validate(self) -> dict[str, float]:
        """What there is to find of the weights, and of their running average where one is kept."""
        self.model.eval()
        found = self._look_at(self.model)
        if self.average is not None:
            found |= {f"average_{name}": value for name, value in self._look_at(self.average).items()}
        self.model.train()
        return found

    def _look_at(self, model: LEHD) -> dict[str, float]:
        groups = [] if self.data is None else self.data.validation
        if not isinstance(self.feed, Reinforce):
            return measure(model, self.problem, groups, DECISIONS[self.device.type])
        found = {"greedy_cost": greedy_cost(model, self.problem, self.feed.held_out(CONSTRUCTIONS[self.device.type]))}
        if groups:
            labels = sum(map(len, groups))
            gaps = [greedy_gap(model, self.problem, group) * len(group) / labels for group in groups]
            found["greedy_gap"] = sum(gaps)
        return found

    def line(self) -> dict[str, float]:
        """What happened since the last line."""
        self._collect_sums()
        record = self.glance()
        self.sums.zero_()
        return record

    def glance(self) -> dict[str, float]:
        """The next line so far, as this process knows it. Waits for the GPU."""
        *sums, count, skipped = self.sums.tolist()
        names = self.feed.names if isinstance(self.feed, Reinforce) else ("loss", "accuracy")
        return {
            "step": self.step,
            "seconds": round(self.seconds, 1),
            **{name: value / max(1.0, count) for name, value in zip(names, sums, strict=True)},
            "learning_rate": self.learning_rate(),
            "skipped": skipped,
            "decisions": self.decisions,
            "tokens_per_second": self.tokens / max(self.seconds, 1e-9),
        }

    def _collect_sums(self) -> None:
        """All processes' sums go to the one that writes."""
        self.processes.add_up(self.sums)
        if not self.processes.writes:
            self.sums.zero_()

    # ---- going on later

    def save(self, folder: Path) -> None:
        """A checkpoint of everything that `resume` needs."""
        self._collect_sums()
        if not self.processes.writes:
            return
        tensors = optimizer_tensors(self.model, self.optimizers)
        tensors |= {"generator": self.generator.get_state(), "sums": self.sums}
        facts = {
            **{name: getattr(self, name) for name in COUNTERS},
            "batches": self.feed.batches,
            "random": self.rng.getstate(),
            "device": self.device.type,
            "launchers": sorted(self.processes.launchers),
            "config": asdict(self.config),
        }
        save_checkpoint(folder, self.step, Checkpoint(self.model, self.average, tensors, facts))

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on where a checkpoint was made. The configuration may differ, but for problem, model and method, and what
        passes over the data are counted by."""
        facts, tensors = checkpoint.facts, checkpoint.tensors
        if facts["config"]["problem"] != self.config.problem or checkpoint.weights.config != self.config.model:
            raise LehdError("the checkpoint belongs to a model of other sizes or for another problem")
        if facts["config"].get("optimizer", ADAMW) != self.config.optimizer:
            raise LehdError(f"the checkpoint is one of optimizer = {facts['config'].get('optimizer', ADAMW)!r}")
        for name in ("method", "states", *(("batch", "instances") if self.feed.counts_batches else ())):
            before = facts["config"].get(name, getattr(self.config, name))
            if before != getattr(self.config, name):
                raise LehdError(f"the checkpoint is one of {name} = {before!r}: that cannot change within a run")
        self.model.load_state_dict(checkpoint.weights.state_dict())
        if self.average is not None:
            self.average.load_state_dict((checkpoint.average or checkpoint.weights).state_dict())
        restore_optimizers(self.model, self.optimizers, tensors)
        for name in COUNTERS:
            setattr(self, name, facts[name])
        self.feed.batches = facts["batches"]
        version, state, gauss = facts["random"]
        self.rng.setstate((version, tuple(state), gauss))
        if facts["device"] == self.device.type:  # another kind of device draws other numbers anyway
            self.generator.set_state(tensors["generator"])
        if self.processes.writes:
            self.sums.copy_(tensors["sums"])

    def run(self, folder: Path, watch: Watch, pause: float = float("inf")) -> LEHD:
        """Train to the end, or to a checkpoint after `pause` seconds; `folder` gets log, weights and checkpoints."""
        if self.progress >= 1:  # a finished run, resumed
            return self.model.eval()
        config = self.config
        with writing(folder, lambda: _intact(folder)):
            log = Log(folder, self.step) if self.processes.writes else None

        def record(line: dict[str, Any]) -> None:
            if log is not None:
                log.write(line)
                watch.logged(line)

        self.begun = time.perf_counter() - self.seconds
        logged = validated = saved = begun = self.seconds
        with writing(folder, lambda: _intact(folder)):
            while self.progress < 1 and not (self.seconds - begun >= pause and self.feed.between):
                self.train_step()
                watch.stepped(self)
                if self.seconds - logged >= config.log_every and self.progress < 1:
                    logged = self.seconds
                    record(self.line())
                if self.seconds - validated >= config.validate_every and self.progress < 1:
                    validated = self.seconds
                    self._validate_and_save(folder, record, {"step": self.step})
                # Not after the last step: a run that is over by its checkpoint has been validated and saved.
                if self.seconds - saved >= config.checkpoint_every and self.feed.between and self.progress < 1:
                    saved = self.seconds
                    self.save(folder)
            if self.progress >= 1:
                self._validate_and_save(folder, record, self.line())
            self.save(folder)
            if log is not None:
                log.close()
        return self.model.eval()

    def _validate_and_save(self, folder: Path, record: Callable[[dict[str, Any]], None], line: dict[str, Any]) -> None:
        if not self.processes.writes:
            return
        record({**line, **self.validate()})
        save_model(self.model, folder / WEIGHTS)
        if self.average is not None:
            save_model(self.average, folder / AVERAGE)


def _intact(folder: Path) -> str:
    return "; the last checkpoint is intact, --resume goes on from it" if has_checkpoint(folder) else ""


def _run_now(_: Hashable, work: Callable[[], None]) -> None:
    work()
