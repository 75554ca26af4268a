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
from itertools import islice

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


def seconds_per_unit(units: Iterable[Unit], job: Job, engine: Engine, needs: Needs, warm: int = WARM) -> float:
    """Once the workers are there."""
    done, begun = 0, 0.0
    for done, (_, result) in enumerate(run_units(units, job, engine, needs=needs), 1):
        if isinstance(result, Failure | str):  # a file's job says in words what is wrong with it
            raise LehdError(f"a unit failed: {result if isinstance(result, str) else result.reason}")
        if done == warm:
            begun = time.perf_counter()
    return (time.perf_counter() - begun) / (done - warm)


def overhead_table(engines: dict[str, tuple[Engine, Needs]], number: int) -> str:
    """Microseconds of a unit that does nothing."""
    rows = []
    for name, (engine, needs) in engines.items():
        cells = []
        for size in SIZES:
            content = np.zeros(size << 10, np.uint8)
            units = (Unit(str(place), content) for place in range(number + WARM))
            cells.append(f"{1e6 * seconds_per_unit(units, nothing, engine, needs):.0f}")
        rows.append([name, *cells])
    return markdown(["engine", *(f"µs per unit, {size} KiB there and back" for size in SIZES)], rows)


def labels_table(engines: dict[str, tuple[Engine, Needs]], number: int, customers: int, iterations: int) -> str:
    """Labels a second, beside those of the bare loop for each worker."""
    job, batch = SolveEach(make_solver("CVRP", "hgs", iterations=iterations)), 5
    shards = (Shard(RECIPE, customers, place, draw_shard(RECIPE, customers, place)) for place in range(10**6))
    units = list(islice((unit for shard in shards for unit in shard.units(batch)), number + WARM))
    rows, bare = [], 0.0
    for name, (engine, needs) in engines.items():
        rate = batch / seconds_per_unit(units, job, engine, needs)
        bare = bare or rate
        rows.append([name, f"{rate:.1f}", f"{100 * rate / bare / _workers(name):.0f} %"])
    return markdown(["engine", "labels/s", "of the bare loop's, for each worker"], rows)


def files_table(engines: dict[str, tuple[Engine, Needs]], number: int, nodes: int, iterations: int) -> str:
    """TSP files a second, read, solved and put into text."""
    job = SolveFile({"rrc": iterations, "seed": 0, "model": None, "device": "cpu"})
    rng, units, warm = np.random.default_rng(0), [], 4
    for place in range(number + warm):
        lines = "".join(f"{x:.6f},{y:.6f}\n" for x, y in rng.random((nodes, 2)))
        units.append(Source(f"{place}.csv", f"x,y\n{lines}".encode()).unit())
    rows, bare = [], 0.0
    for name, (engine, needs) in engines.items():
        rate = 1 / seconds_per_unit(units, job, engine, needs, warm)
        bare = bare or rate
        rows.append([name, f"{rate:.3g}", f"{100 * rate / bare / _workers(name):.0f} %"])
    return markdown(["engine", "files/s", "of the bare loop's, for each worker"], rows)


def _workers(engine: str) -> int:
    return 2 if engine.startswith("2") else 1


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
