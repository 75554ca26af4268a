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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from lehd import problems
from lehd.decoding.construct import construct
from lehd.decoding.replay import Recording, Replays, seen_of, tensors_of
from lehd.decoding.rrc import ConstructPart
from lehd.model import fused
from lehd.model.lehd import LEHD, ModelConfig, run
from lehd.model.precision import inference
from lehd.problems.base import Problem
from lehd.types import Instances, Rollout

# Rows, and nodes in view of each: with any others the layers go by kernels that they go by with one of these.
SHAPES = ((1, 20), (1024, 8), (1, 50), (256, 50), (1, 80), (256, 75), (256, 90), (256, 120), (1, 150))
NODES, SOME = 12, 5  # of the instance whose steps are compiled, and how many of them are in view then
PATIENCE = 180.0  # seconds; it takes fifteen
BEGIN = "import json, sys; task = json.load(sys.stdin); sys.path[:] = task['path']; import {0}; {0}.main(task)"


class Compilation:
    """Of the kernels for one model and such instances on one GPU; it need not be over yet."""

    def __init__(self, model: LEHD, problem: Problem, instances: Instances):
        self.problem, self.config, self.device = problem.name, model.config, instances.device
        places = torch.arange(NODES, device=self.device)[None] % instances.num_nodes
        self.sample = dict(tensors_of(seen_of(instances.rows(slice(1)).take(places))))
        kinds = {name: str(tensor.dtype) for name, tensor in self.sample.items()}
        what = (problem.name, model.config, kinds, torch.cuda.get_device_capability(self.device))
        self.marker = _cache() / f"lehd-{hashlib.sha256(repr((_sources(), what)).encode()).hexdigest()[:16]}"
        self.process: subprocess.Popen[bytes] | None = None
        self.begun = time.monotonic()

    def begin(self) -> None:
        """In a session of its own, which an interrupt on a terminal does not reach."""
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        task = {
            "path": [str(path) for path in sys.path],  # it finds what this process finds, and nothing else
            "marker": str(self.marker),
            "problem": self.problem,
            "config": asdict(self.config),
            "device": str(self.device),
            "instance": {
                name: (str(each.dtype).removeprefix("torch."), each.tolist()) for name, each in self.sample.items()
            },
        }
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BEGIN.format(__name__)],
            stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        with self.process.stdin as pipe:
            pipe.write(json.dumps(task).encode())

    def over(self) -> bool:
        """Whether there is nothing to wait for: the kernels are there, or will not come from elsewhere."""
        ended = self.process is not None and self.process.poll() is not None
        late = self.process is not None and time.monotonic() > self.begun + PATIENCE
        return ended or late or self.marker.exists()


class Meanwhile:
    """Construction by the layers' own code until the kernels are compiled, from then on by them."""

    def __init__(self, compilation: Compilation, make: Callable[[], ConstructPart]):
        self.compilation, self.make = compilation, make  # recordings are of the one or of the other
        self.waiting, self.construct_part = True, make()

    def still_waiting(self) -> bool:
        if self.waiting and self.compilation.over():
            self.waiting, self.construct_part = False, self.make()
        return self.waiting

    @contextmanager
    def layers(self) -> Iterator[None]:
        with fused.plain_layers() if self.still_waiting() else nullcontext():
            yield

    def construct(self, *what: Any, **how: Any) -> Rollout:
        with self.layers():
            return self.construct_part(*what, **how)


_begun: dict[Path, Compilation] = {}
_lock = threading.Lock()


def compiled_beside(model: LEHD, problem: Problem, instances: Instances) -> Compilation | None:
    """The compilation of a search's kernels, begun if it was not; None where there is nothing to wait for."""
    with inference(instances.device):
        if not fused.kernels_run(model.head.weight):
            return None
    if os.name == "nt" or not sys.executable or getattr(sys, "frozen", False):  # there is no such process
        return None
    try:
        compilation = Compilation(model, problem, instances)
        if compilation.over():
            return None
        with _lock:
            compilation = _begun.setdefault(compilation.marker, compilation)
            if compilation.process is None:
                compilation.begin()
    except (OSError, ImportError):  # no process, no folder: then whoever needs a kernel compiles it
        return None
    return None if compilation.over() else compilation


def wait_for_kernels(model: LEHD, problem: Problem, instances: Instances) -> None:
    """Have them compiled now, for whoever wants to measure a search with them."""
    compilation = compiled_beside(model, problem, instances)
    while compilation is not None and not compilation.over():
        time.sleep(0.1)


def _cache() -> Path:
    from triton import knobs

    return Path(knobs.cache.dir)


@cache
def _sources() -> str:
    """A digest of all that decides which kernels there are."""
    import triton

    root = Path(__file__).parents[1]
    files = [
        path.read_bytes() for part in ("decoding", "model", "problems") for path in sorted((root / part).glob("*.py"))
    ]
    return hashlib.sha256(repr((files, triton.__version__, torch.__version__)).encode()).hexdigest()


# ---- the process that compiles


def main(task: dict[str, Any]) -> None:
    import fcntl

    marker, device = Path(task["marker"]), torch.device(task["device"])
    with marker.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several searches begin at the same time
        if marker.exists():
            return
        instance: dict[str, Any] = {}
        for name, (kind, rows) in task["instance"].items():
            instance[name] = torch.tensor(rows, dtype=getattr(torch, kind), device=device)
        model = LEHD(ModelConfig(**task["config"])).to(device).eval()
        compile_kernels(model, problems.PROBLEMS[task["problem"]], Instances(**instance))
        marker.touch()


def compile_kernels(model: LEHD, problem: Problem, instance: Instances) -> None:
    """Whatever greedy construction and RRC may need."""
    layer, dim = model.encoder, model.config.dim
    with inference(instance.device):
        for rows, length in SHAPES:
            x = torch.zeros(rows, length, dim, device=instance.device)
            for seen in (None, torch.tensor(length, device=x.device)):
                run([layer], x, seen)
    state = problem.initial_state(instance)
    for nearest in (None, SOME):
        Replays(model, problem, _do_again).construct(instance, state, nearest)
        construct(model, problem, instance, state, nearest=nearest)


def _do_again(work: Callable[[], object]) -> Recording:
    """In place of a recording, which would take as long as many steps."""
    return SimpleNamespace(replay=work)
