"""Ray's own simulation of a cluster: several machines on this one, in processes of their own."""

from __future__ import annotations

import os
from contextlib import contextmanager

MEMORY = 80 << 20  # of a machine's object store: the least that Ray takes


@contextmanager
def small_cluster(machines: int = 3, cores: int = 1):
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": cores, "include_dashboard": False, "object_store_memory": MEMORY},
    )
    try:
        for _ in range(machines - 1):
            cluster.add_node(num_cpus=cores, object_store_memory=MEMORY)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()
