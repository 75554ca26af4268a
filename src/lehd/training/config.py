"""What a training run is made of: a TOML file, and the defaults for what it does not say."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from lehd.data.dataset import RECIPES, problem_of
from lehd.errors import LehdError
from lehd.model.lehd import ModelConfig
from lehd.problems import PROBLEMS

SUPERVISED, REINFORCE = "supervised", "reinforce"
RANDOM, STEPS = "random", "steps"
ADAMW, MUON = "adamw", "muon"
AUTO = "auto"
LARGEST_SEED = 2**32 - 1
T = TypeVar("T")


@dataclass(frozen=True)
class TrainConfig:
    problem: str = "TSP"  # "auto": that of the data
    method: str = SUPERVISED  # or "reinforce": without labels; `data`, if there are any, are for validation alone
    data: tuple[str, ...] = ()  # label files
    shares: tuple[float, ...] = ()  # how often each file is drawn from; by size if empty
    # The first labels of every file, never trained on: one number for all files, or one for each.
    held_out: int | tuple[int, ...] = 512
    steps: int | None = None  # the end, by optimizer steps …
    seconds: float | None = None  # … or by wall-clock time …
    epochs: int | None = None  # … or by passes over the data, with states = "steps"
    states: str = RANDOM  # one decision of each of many partial solutions, or "steps": all decisions of some, in order
    tokens: int = 131_072  # through the decoder, per step, with states = "random"
    hardest: float = 1.0  # share of a step's decisions, those of the greatest losses, that gradients are taken from,
    # with states = "random"; below 1 for models that are trained already: supervised.py. With method = "reinforce"
    # those that count most: reinforce.py
    # With states = "random": the share of steps that have few available nodes as often as RRC's partial solutions do;
    like_rrc: float = 0.0  # the others have each number of them equally often, as in construction.
    views: tuple[int, ...] = ()  # With states = "random": sizes of neighbourhoods, as large problems are shown, …
    # … and the share of steps that show one of them, where the problems are large enough; for all files or for each
    view_share: float | tuple[float, ...] = 0.2
    batch: int = 1024  # partial solutions that are stepped through together, with states = "steps"; or instances of a
    # step, with method = "reinforce"
    recipe: str = "uniform_tsp"  # with method = "reinforce": what instances are drawn from, …
    customers: int = 20  # … how many nodes they visit, …
    instances: int = 100_000  # … how many of them are a pass …
    starts: int = 0  # … and from how many nodes each is solved; 0: from all
    entropy: float = 0.0  # with method = "reinforce": what being unsure is worth, in units of cost, so that sampling
    # goes on to try things out
    optimizer: str = ADAMW  # or "muon", for the matrices of the layers
    learning_rate: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    warmup: int = 1000  # steps
    decay_from: float = 0.3  # share of the run after which the learning rate falls linearly, to zero at the end
    epoch_decay: float = 1.0  # factor on the learning rate for each pass over the data, with states = "steps"
    clip: float = 1.0  # of the gradient's norm; inf: never
    average: float = 0.0  # decay of a running average of the weights, such as 0.999; 0: none is kept
    labels_by: str = AUTO  # who labels files without a solution: a solver, "model", or the usual solver if it can
    label_seconds: float | None = None  # for an instance, by a solver
    label_iterations: int = 100  # of RRC, by the model
    seed: int = 0
    compile: bool = True  # on a GPU, where its own kernels do not suit the model
    graphs: bool = True  # on a GPU: record the step of each shape of batch and replay it
    log_every: float = 20.0  # seconds between lines in the log
    validate_every: float = 120.0  # seconds; the weights are saved as often
    checkpoint_every: float = 60.0  # seconds: what a killed run can lose
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        check_kinds(self)
        check_kinds(self.model)
        if self.problem not in (*PROBLEMS, AUTO):
            raise LehdError(f"problem = {self.problem!r}: expected one of {', '.join((*PROBLEMS, AUTO))}")
        if self.states not in (RANDOM, STEPS):
            raise LehdError(f'states = {self.states!r}: expected "{RANDOM}" or "{STEPS}"')
        if self.optimizer not in (ADAMW, MUON):
            raise LehdError(f'optimizer = {self.optimizer!r}: expected "{ADAMW}" or "{MUON}"')
        ends = [end for end in (self.steps, self.seconds, self.epochs) if end is not None]
        if len(ends) != 1:
            raise LehdError("a training run ends after `steps`, `seconds` or `epochs`: give one of them")
        if not ends[0] > 0:
            raise LehdError("`steps`, `seconds` or `epochs` must be positive")
        if self.shares and len(self.shares) != len(self.data):
            raise LehdError("give one of `shares` for every file of `data`, or none")
        if self.shares and not (all(share >= 0 for share in self.shares) and 0 < sum(self.shares) < math.inf):
            raise LehdError(f"shares = {list(self.shares)}: expected numbers from 0, not all of them 0")
        if self.method not in (SUPERVISED, REINFORCE):
            raise LehdError(f'method = {self.method!r}: expected "{SUPERVISED}" or "{REINFORCE}"')
        if self.method == REINFORCE:
            self._check_reinforce()
        elif self.states == RANDOM and (self.epochs is not None or self.epoch_decay != 1):
            raise LehdError('`epochs` and `epoch_decay` need states = "steps": random states have no passes')
        if self.states == STEPS and self.shares:
            raise LehdError('`shares` need states = "random": a pass over the data takes every label once')
        if min(self.tokens, self.batch, *for_each(self.held_out)) < 1:
            raise LehdError("`tokens`, `batch` and `held_out` must be at least 1")
        if not 0 < self.hardest <= 1:
            raise LehdError(f"hardest = {self.hardest}: expected a share above 0, up to 1 (all decisions)")
        if self.hardest < 1 and (self.states != RANDOM or self.model.norm != "none"):
            raise LehdError('`hardest` needs states = "random" and a model without normalization')
        if (self.views or self.like_rrc) and (self.states != RANDOM or self.method != SUPERVISED):
            raise LehdError('`views` and `like_rrc` need labels and states = "random"')
        if not 0 <= self.like_rrc <= 1:
            raise LehdError(f"like_rrc = {self.like_rrc}: expected a share from 0 to 1")
        if any(view < 2 for view in self.views) or not all(0 <= share <= 1 for share in self.view_shares):
            raise LehdError("`views` have at least 2 nodes, and `view_share` is from 0 to 1")
        for name in ("view_share", "held_out"):
            value = getattr(self, name)
            if isinstance(value, tuple) and (not value or len(value) != len(self.data)):
                raise LehdError(f"`{name}` is one number, or one for every file of `data`: set it with `data`")
        if not 0 <= self.entropy < math.inf or (self.entropy and self.method != REINFORCE):
            raise LehdError(f'entropy = {self.entropy}: expected a number from 0, with method = "{REINFORCE}"')
        if not 0 <= self.average < 1:
            raise LehdError(f"average = {self.average}: expected a decay from 0 (none) to below 1")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise LehdError(f"seed = {self.seed}: expected a whole number from 0 to {LARGEST_SEED}")
        self._check_optimizer()

    @property
    def view_shares(self) -> tuple[float, ...]:
        """Of each file of `data`."""
        return for_each(self.view_share, max(1, len(self.data)))

    def _check_optimizer(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise LehdError(f"learning_rate = {self.learning_rate}: expected a positive number")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise LehdError(f"betas = {list(self.betas)}: expected two numbers from 0 to below 1")
        if not 0 <= self.weight_decay < math.inf:
            raise LehdError(f"weight_decay = {self.weight_decay}: expected a number from 0")
        if not self.clip > 0:
            raise LehdError(f"clip = {self.clip}: expected a positive number, or inf: never")

    def _check_reinforce(self) -> None:
        if self.recipe not in RECIPES:
            raise LehdError(f"recipe = {self.recipe!r}: expected one of {', '.join(RECIPES)}")
        if problem_of(self.recipe) != self.problem:
            raise LehdError(f"recipe = {self.recipe!r} draws no {self.problem} instances")
        if self.customers < 5 or self.instances < 1 or self.starts < 0 or self.starts == 1:
            raise LehdError("`customers` must be at least 5, `instances` 1, `starts` 2 (or 0: all)")


def for_each(value: T | tuple[T, ...], count: int = 1) -> tuple[T, ...]:
    """A setting that is one for all of so many files, or one for each."""
    return value if isinstance(value, tuple) else (value,) * count


def read_config(path: str | Path, changes: Sequence[str] = ()) -> TrainConfig:
    """A TrainConfig from a TOML file; what the file does not mention keeps its default.

    Changes such as `steps=60` or `model.dim=64` replace what the file says; their values are JSON.
    """
    return make_config(read_table(path, changes), path)


def read_table(path: str | Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of a TOML file, with changes."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LehdError(f"{path}: {error}") from None
    for change in changes:
        name, _, value = change.partition("=")
        inner, dot, last = name.rpartition(".")
        target = table.setdefault(inner, {}) if dot else table
        if not isinstance(target, dict):
            raise LehdError(f"{change}: {inner} is no table of settings in {path}")
        try:
            target[last] = json.loads(value)
        except json.JSONDecodeError:
            raise LehdError(f"{change}: expected NAME=VALUE with a value in JSON, such as steps=60") from None
    return table


def make_config(table: dict[str, Any], path: str | Path) -> TrainConfig:
    """A TrainConfig from settings; `path` is what messages call them."""
    table = dict(table)
    sizes = table.pop("model", {})
    if not isinstance(sizes, dict):
        raise LehdError(f"{path}: model = {sizes!r}: expected a table [model]")
    refuse_unknown(table, TrainConfig, path)
    refuse_unknown(sizes, ModelConfig, path)
    problem = PROBLEMS.get(str(table.get("problem", "TSP")))
    if problem is not None:
        sizes = problem.model_sizes | sizes
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    try:
        return TrainConfig(**values, model=ModelConfig(**sizes))
    except (LehdError, TypeError) as error:
        raise LehdError(f"{path}: {error}") from None


def refuse_unknown(table: dict[str, Any], kind: Any, path: str | Path) -> None:
    unknown = table.keys() - {each.name for each in fields(kind)}
    if unknown:
        raise LehdError(f"{path}: unknown setting {', '.join(sorted(unknown))}")


def check_kinds(config: Any) -> None:
    """Whether every setting is of the type it is declared with; whole numbers will do where fractions are expected."""
    for each in fields(config):
        value = getattr(config, each.name)
        expected, whole = str(each.type), isinstance(value, int) and not isinstance(value, bool)
        real = whole or isinstance(value, float)
        right = {
            "int": whole,
            "float": real,
            "int | None": value is None or whole,
            "float | None": value is None or real,
            "str": isinstance(value, str),
            "str | None": value is None or isinstance(value, str),
            "bool": isinstance(value, bool),
            "tuple[str, ...]": _all_are(value, str),
            "tuple[int, ...]": _all_are(value, int),
            "tuple[float, ...]": _all_are(value, int | float),
            "float | tuple[float, ...]": real or _all_are(value, int | float),
            "int | tuple[int, ...]": whole or _all_are(value, int),
            "tuple[float, float]": _all_are(value, int | float) and len(value) == 2,
        }.get(expected, True)
        if not right:
            raise LehdError(f"{each.name} = {value!r}: expected {expected}")


def _all_are(value: Any, kind: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, kind) and not isinstance(item, bool) for item in value)
