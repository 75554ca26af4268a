"""A GPU's kernels compiled beside a search, once on every machine: Triton's cache keeps them.

Compiling takes longer than many a search. So where there is a time limit nobody waits: a process of its own compiles
whatever a search may need, and until it is done the layers' own code does the work. It goes on if the search ends
before, so that the next one finds the kernels.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from lehd import problems
from lehd.decoding.construct import construct
from lehd.decoding.replay import Recording, Replays
from lehd.decoding.rrc import ConstructPart
from lehd.model import fused
from lehd.model.lehd import LEHD, ModelConfig, run
from lehd.model.precision import inference
from lehd.problems.base import Problem
from lehd.types import Instances, Rollout

# Rows, and nodes in view of each: with any others the layers go by kernels that they go by with one of these.
SHAPES = ((1, 20), (1024, 8), (1, 50), (256, 50), (1, 80), (256, 75), (256, 90), (256, 120), (1, 150))
NODES, NEAREST = 12, 5  # of the instance whose steps are compiled
SOURCES = ("attention_kernels.py", "fused.py", "kernels.py", "step_kernels.py")


class Compilation:
    """Of the kernels for one model and such instances on one GPU; it need not be over yet."""

    def __init__(self, model: LEHD, problem: Problem, instances: Instances):
        device = instances.device
        some = instances.rows(slice(1)).take(torch.arange(NODES, device=device)[None] % instances.num_nodes)
        sample = _as_lists(some)
        kinds = {name: kind for name, (kind, _) in sample.items()}
        config, where = asdict(model.config), str(device)
        self.task = {"problem": problem.name, "config": config, "device": where, "instance": sample}
        self.marker = _cache() / f"lehd-{_fingerprint(device, problem.name, model.config, kinds)}"
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """In a session of its own, which an interrupt on a terminal does not reach."""
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        root, quiet = str(Path(__file__).parents[2]), subprocess.DEVNULL  # where this package is, installed or not
        paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.marker)],
            stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        assert self.process.stdin is not None
        with self.process.stdin as task:
            task.write(json.dumps(self.task).encode())

    def over(self) -> bool:
        """Whether there is nothing to wait for: the kernels are there, or will not come from elsewhere."""
        return self.marker.exists() or (self.process is not None and self.process.poll() is not None)


class Meanwhile:
    """Construction by the layers' own code until the kernels are compiled, from then on by them."""

    def __init__(self, compilation: Compilation, make: Callable[[], ConstructPart]):
        self.compilation, self.make = compilation, make  # recordings are of the one or of the other
        self.waiting, self.construct_part = True, make()

    @contextmanager
    def layers(self) -> Iterator[None]:
        if self.waiting and self.compilation.over():
            self.waiting, self.construct_part = False, self.make()
        with fused.plain_layers() if self.waiting else nullcontext():
            yield

    def construct(self, *what: Any, **how: Any) -> Rollout:
        with self.layers():
            return self.construct_part(*what, **how)


_begun: dict[Path, Compilation] = {}


def compiled_beside(model: LEHD, problem: Problem, instances: Instances) -> Compilation | None:
    """The compilation of a search's kernels, begun if it was not; None where there is nothing to wait for."""
    with inference(instances.device):
        if os.name == "nt" or not fused.kernels_run(model.head.weight):
            return None
    try:
        compilation = Compilation(model, problem, instances)
        if compilation.over():
            return None
        begun = _begun.setdefault(compilation.marker, compilation)
        if begun.process is None:
            begun.begin()
    except OSError:  # no process, no folder: then whoever needs a kernel compiles it
        return None
    return None if begun.over() else begun


def _cache() -> Path:
    from triton import knobs

    return Path(knobs.cache.dir)


def _fingerprint(device: torch.device, *what: object) -> str:
    """Of all that the kernels depend on."""
    import triton

    from lehd import model

    (folder,) = model.__path__
    sources = [Path(folder, name).read_bytes() for name in SOURCES]
    facts = (sources, triton.__version__, torch.__version__, torch.cuda.get_device_capability(device), what)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


# ---- the process that compiles


def compile_kernels(model: LEHD, problem: Problem, instance: Instances) -> None:
    """Whatever greedy construction and RRC may need."""
    layer, dim = model.encoder, model.config.dim
    with inference(instance.device):
        for rows, length in SHAPES:
            x = torch.zeros(rows, length, dim, device=instance.device)
            for seen in (None, torch.tensor(length, device=x.device)):
                run([layer], x, seen)
    state = problem.initial_state(instance)
    for nearest in (None, NEAREST):
        Replays(model, problem, _do_again).construct(instance, state, nearest)
        construct(model, problem, instance, state, nearest=nearest)


def _do_again(work: Callable[[], object]) -> Recording:
    """In place of a recording, which would take as long as many steps."""
    return SimpleNamespace(replay=work)


def _as_lists(instances: Instances) -> dict[str, tuple[str, Any]]:
    """What decisions depend on, for JSON."""
    values = {each.name: getattr(instances, each.name) for each in fields(instances)}
    return {
        name: (str(value.dtype).removeprefix("torch."), value.tolist())
        for name, value in values.items()
        if isinstance(value, Tensor) and name not in ("sites", "matrix")
    }


def _from_lists(lists: dict[str, tuple[str, Any]], device: torch.device) -> Instances:
    tensors: dict[str, Any] = {}
    for name, (kind, rows) in lists.items():
        tensors[name] = torch.tensor(rows, dtype=getattr(torch, kind), device=device)
    return Instances(**tensors)


def main(task: dict[str, Any], marker: Path) -> None:
    import fcntl

    with marker.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several searches begin at the same time
        if marker.exists():
            return
        device = torch.device(task["device"])
        model = LEHD(ModelConfig(**task["config"])).to(device).eval()
        compile_kernels(model, problems.PROBLEMS[task["problem"]], _from_lists(task["instance"], device))
        marker.touch()


if __name__ == "__main__":
    main(json.load(sys.stdin), Path(sys.argv[1]))
