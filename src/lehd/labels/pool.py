"""Label seeded instances with HGS on many cores, shard by shard.

    python -m lehd.labels.pool x_type_cvrp FOLDER --shards 0 200 --processes 2 --seconds 0.4

Every finished shard is a file of its own, written atomically; run the command again and it goes on where it stopped.
`--merge FILE` joins all shards in the folder into one label file (layout: lehd.data.dataset).
"""

from __future__ import annotations

import argparse
import io
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from lehd.data.dataset import RECIPES, SHARD, draw_shard
from lehd.labels.hgs import solve_cvrp
from lehd.model.checkpoint import write_atomically


def label_shard(recipe: str, customers: int, shard: int, seconds: float, folder: Path) -> Path:
    """Solve the instances of one shard and write them."""
    instances = draw_shard(recipe, customers, shard)
    nodes = np.zeros((SHARD, customers), np.uint8 if customers < 256 else np.uint16)
    via = np.zeros((SHARD, customers), bool)
    cost = np.zeros(SHARD, np.float32)
    for row in range(SHARD):
        coords, demands, capacity = instances.coords[row], instances.demands[row], int(instances.capacity[row])
        routes = solve_cvrp(coords, demands, capacity, seconds)
        nodes[row] = [node for route in routes for node in route]
        via[row] = [place == 0 for route in routes for place in range(len(route))]
        stops = coords[[0, *(node for route in routes for node in [*route, 0])]].astype(np.float64)
        cost[row] = np.linalg.norm(np.diff(stops, axis=0), axis=1).sum()
    path = folder / f"{recipe}-{customers}-{shard:06d}.npz"
    _write(path, recipe, customers, [shard], nodes[None], np.packbits(via, axis=1)[None], cost[None])
    return path


def merge(folder: Path, recipe: str, customers: int, target: Path) -> int:
    """Join the folder's shards into one file; the number of instances in it."""
    parts = [np.load(path) for path in sorted(folder.glob(f"{recipe}-{customers}-*.npz"))]
    joined = [np.concatenate([part[name] for part in parts]) for name in ("shard", "nodes", "via", "cost")]
    _write(target, recipe, customers, *joined)
    return len(parts) * SHARD


def _write(path: Path, recipe: str, customers: int, shard, nodes, via, cost) -> None:  # type: ignore[no-untyped-def]
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, recipe=np.array(recipe), customers=np.array(customers), shard=shard, nodes=nodes, via=via, cost=cost
    )
    write_atomically(path, buffer.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description="Label seeded CVRP instances with HGS.")
    parser.add_argument("recipe", choices=sorted(RECIPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--customers", type=int, default=100)
    parser.add_argument("--shards", type=int, nargs=2, metavar=("FIRST", "END"), default=(0, 0))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.4, help="time for HGS per instance")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="start no further shard after so many seconds"
    )
    parser.add_argument("--merge", type=Path, help="join all shards in the folder into this file")
    options = parser.parse_args()
    begun = time.perf_counter()
    options.folder.mkdir(parents=True, exist_ok=True)
    missing = [
        shard
        for shard in range(*options.shards)
        if not (options.folder / f"{options.recipe}-{options.customers}-{shard:06d}.npz").exists()
    ]
    with ProcessPoolExecutor(options.processes) as pool:
        waiting = {
            pool.submit(label_shard, options.recipe, options.customers, shard, options.seconds, options.folder)
            for shard in missing
        }
        for done, future in enumerate(as_completed(waiting), 1):
            if future.cancelled():
                continue
            if future.exception() is not None:
                print(f"a shard was left out: {future.exception()}", flush=True)
            elapsed = time.perf_counter() - begun
            print(f"{done}/{len(missing)} shards, {done * SHARD / elapsed:.1f} instances/s", flush=True)
            if elapsed > options.budget:
                for other in waiting:
                    other.cancel()
    if options.merge:
        print(f"{merge(options.folder, options.recipe, options.customers, options.merge)} instances in {options.merge}")


if __name__ == "__main__":
    main()
