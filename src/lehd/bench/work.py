"""What bulk work costs beside the work: the way of a unit to its worker and back, and what a second worker brings.

    python -m lehd.bench.work
    ray start --head --num-cpus 2 && python -m lehd.bench.work --cluster auto

The first table has units that do nothing, the second labels by HGS with an iteration limit, the third files that lehd
solves, the same in every row.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from lehd.bench.text import markdown
from lehd.bulk import SolveFile, Source
from lehd.data.dataset import draw_shard
from lehd.errors import LehdError
from lehd.labels.shards import Shard
from lehd.labels.solvers import SolveEach, make_solver
from lehd.work.engines import CLUSTER_HELP, LOCAL
from lehd.work.here import Here
from lehd.work.local import Pool
from lehd.work.on_ray import Ray
from lehd.work.run import run_units
from lehd.work.units import Engine, Failure, Job, Needs, Unit, usable_cores

SIZES = (0, 16, 1024)  # KiB that travel with a unit; 16 are those of five CVRPs with 100 customers, and their labels
WARM = 40  # units until every worker has started
RECIPE = "uniform_cvrp"


def nothing(content: object) -> object:
    return content


@dataclass(frozen=True)
class Timed:
    """A job, and what it took of the clock and of a core."""

    job: Job

    def __call__(self, content: object) -> tuple[object, float, float]:
        begun, before = time.perf_counter(), time.process_time()
        result = self.job(content)
        return result, time.perf_counter() - begun, time.process_time() - before


class Spent(NamedTuple):
    """Seconds for a unit, on average, once the workers are there."""

    seconds: float  # from one result to the next
    working: float  # within the job
    cpu: float  # the same on a core: what others take on a busy machine is not in it


def spent_per_unit(units: Iterable[Unit], job: Job, engine: Engine, needs: Needs, warm: int = WARM) -> Spent:
    done, begun, working, cpu = 0, 0.0, 0.0, 0.0
    for done, (_, answer) in enumerate(run_units(units, Timed(job), engine, needs=needs), 1):
        if isinstance(answer, Failure):
            raise LehdError(f"a unit failed: {answer.reason}")
        if isinstance(answer[0], str):  # a file's job says in words what is wrong with it
            raise LehdError(f"a unit failed: {answer[0]}")
        if done == warm:
            begun = time.perf_counter()
        elif done > warm:
            working, cpu = working + answer[1], cpu + answer[2]
    number = done - warm
    return Spent((time.perf_counter() - begun) / number, working / number, cpu / number)


def overhead_table(engines: dict[str, tuple[Engine, Needs]], number: int) -> str:
    """Microseconds of a unit that does nothing."""
    rows = []
    for name, (engine, needs) in engines.items():
        cells = []
        for size in SIZES:
            content = np.zeros(size << 10, np.uint8)
            units = (Unit(str(place), content) for place in range(number + WARM))
            cells.append(f"{1e6 * spent_per_unit(units, nothing, engine, needs).seconds:.0f}")
        rows.append([name, *cells])
    return markdown(["engine", *(f"µs per unit, {size} KiB there and back" for size in SIZES)], rows)


def labels_table(engines: dict[str, tuple[Engine, Needs]], number: int, customers: int, iterations: int) -> str:
    job, batch = SolveEach(make_solver("CVRP", "hgs", iterations=iterations)), 5
    shards = (Shard(RECIPE, customers, place, draw_shard(RECIPE, customers, place)) for place in range(10**6))
    units = list(islice((unit for shard in shards for unit in shard.units(batch)), number + WARM))
    return _efficiency("labels", engines, units, batch, job, WARM)


def files_table(engines: dict[str, tuple[Engine, Needs]], number: int, nodes: int, iterations: int) -> str:
    """TSP files, read, solved and put into text."""
    job = SolveFile({"rrc": iterations, "seed": 0, "model": None, "device": "cpu"})
    rng, units, warm = np.random.default_rng(0), [], 4
    for place in range(number + warm):
        lines = "".join(f"{x:.6f},{y:.6f}\n" for x, y in rng.random((nodes, 2)))
        units.append(Source(f"{place}.csv", f"x,y\n{lines}".encode()).unit())
    return _efficiency("files", engines, units, 1, job, warm)


def _efficiency(
    things: str, engines: dict[str, tuple[Engine, Needs]], units: list[Unit], batch: int, job: Job, warm: int
) -> str:
    """How many in a second; on a busy machine the last two columns say more, as others do not count in them."""
    rows = []
    for name, (engine, needs) in engines.items():
        spent = spent_per_unit(units, job, engine, needs, warm)
        workers = 2 if name.startswith("2") else 1
        busy = spent.working / spent.seconds / workers
        rows.append([name, f"{batch / spent.seconds:.3g}", f"{batch / spent.cpu:.3g}", f"{100 * busy:.1f} %"])
    columns = ["engine", f"{things}/s", f"{things} in a second of a core", "share of the time in which workers work"]
    return markdown(columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the overhead of bulk work.")
    parser.add_argument("--cluster", default=LOCAL, metavar="ADDRESS", help=f"{CLUSTER_HELP} It should have two cores.")
    parser.add_argument("--units", type=int, default=2000, help="of nothing")
    parser.add_argument("--label-units", type=int, default=100, help="of five labels each")
    parser.add_argument("--customers", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=100, help="of a file")
    parser.add_argument("--rrc", type=int, default=20)
    given = parser.parse_args()
    engines: dict[str, tuple[Engine, Needs]] = {
        "bare loop": (Here(), Needs()),
        "1 process": (Pool(1), Needs()),
        "2 processes": (Pool(2), Needs()),
    }
    if given.cluster != LOCAL:
        engines |= {"1 worker of Ray": (Ray(given.cluster), Needs(cores=2)), "2 of Ray": (Ray(given.cluster), Needs())}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"{usable_cores()} cores, load {load:.1f} before the start\n", flush=True)
    try:
        print(overhead_table(engines, given.units) + "\n", flush=True)
        print(labels_table(engines, given.label_units, given.customers, given.iterations) + "\n", flush=True)
        print(files_table(engines, given.files, given.nodes, given.rrc))
    except LehdError as error:
        sys.exit(f"lehd: {error}")


if __name__ == "__main__":
    main()
