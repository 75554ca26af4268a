"""Jobs for tests, in a module of their own: workers elsewhere must find them by name."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lehd.work.run import run_units
from lehd.work.units import Unit


@dataclass(frozen=True)
class Troubled:
    """Doubles its content, where nothing is made to go wrong."""

    trouble: dict  # content -> crash, raise, hang, or crash-once
    folder: Path | None = None  # a line for each attempt

    def __call__(self, content):
        if self.folder is not None:
            with (self.folder / f"{content}").open("a") as file:
                file.write("x")
        match self.trouble.get(content):
            case "crash":
                os._exit(9)
            case "raise":
                raise ValueError(content)
            case "hang":
                time.sleep(600)
            case "import":
                import no_such_package  # noqa: F401
            case "crash-once":
                if len((self.folder / f"{content}").read_text()) == 1:
                    os._exit(9)
        return 2 * content

    def attempts(self, content) -> int:
        return len((self.folder / f"{content}").read_text())


def draw(seed):
    """Arrays that depend on the seed alone."""
    return {"drawn": np.random.default_rng(seed).random(3)}


def where(content):
    """Which process does it, and with what."""
    return os.getpid(), os.environ.get("OMP_NUM_THREADS"), os.environ.get("CUDA_VISIBLE_DEVICES")


def slow(content):
    """Long enough for every worker to get some."""
    time.sleep(0.05)
    return where(content)


def machine_of(content):
    """The machine of a cluster on which it is done."""
    import ray

    time.sleep(0.05)
    return ray.get_runtime_context().get_node_id()


def numbered(count):
    return [Unit(f"unit-{number}", number) for number in range(count)]


def read_for_ten(engine):
    """How many of a thousand units have been read when ten are done."""
    read = []

    def units():
        for unit in numbered(1000):
            read.append(unit)
            yield unit

    running = run_units(units(), Troubled({}), engine)
    for _ in range(10):
        next(running)
    running.close()
    return len(read)
