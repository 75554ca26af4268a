"""Engines by the words of a command line."""

from __future__ import annotations

import argparse

from lehd.errors import LehdError
from lehd.work.local import Pool
from lehd.work.on_ray import Ray
from lehd.work.units import Engine, Needs, usable_cores

LOCAL = "local"
CLUSTER_HELP = "local: this machine. auto or HOST:PORT: a Ray cluster."
PROCESSES_HELP = "Units at a time, each in a process of its own."
GPUS_HELP = "For each unit, with --processes or --cluster; 0.5: two units share one."


def find_engine(cluster: str = LOCAL, processes: int | None = None) -> Engine:
    """A Ray cluster, or processes of this machine: so many, or one for every core."""
    if cluster != LOCAL:
        if processes is not None:
            raise LehdError("--processes is for this machine; a cluster takes as many units at a time as it has cores")
        return Ray(cluster)
    if processes is not None and processes < 1:
        raise LehdError(f"{processes} processes: expected at least 1")
    return Pool(processes)


def find_crew(cluster: str = LOCAL, processes: int | None = None, gpus: float = 0.0) -> tuple[Engine | None, Needs]:
    """For work that one process does as a rule: None unless the user asks for more."""
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise LehdError(f"{gpus:g} GPUs for a unit: expected a part of one, or a whole number")
    if cluster == LOCAL and processes is None:
        if gpus:
            raise LehdError("--gpus goes with --processes or --cluster; --device names the GPU of one process")
        return None, Needs()
    return find_engine(cluster, processes), Needs(gpus=gpus)


def refuse_crowding(processes: int | None) -> None:
    """Work against the clock needs its cores for itself. On a cluster Ray sees to that."""
    if processes is not None and processes > usable_cores():
        raise LehdError(f"{processes} processes on {usable_cores()} cores would take the time from each other")


def add_engine_options(parser: argparse.ArgumentParser, gpus: bool = False) -> None:
    """For the commands `python -m …`."""
    parser.add_argument("--processes", type=int, help=PROCESSES_HELP)
    parser.add_argument("--cluster", default=LOCAL, metavar="ADDRESS", help=CLUSTER_HELP)
    if gpus:
        parser.add_argument("--gpus", type=float, default=0.0, help=GPUS_HELP)
