"""A Ray cluster of several machines on loopback, in a process of its own: `raylets MACHINES HARDWARE`.

It prints `at` and the cluster's address; `kill` on its input ends one machine as a power cut would, and it
says `killed`. The end of its input ends all of it.
"""

from __future__ import annotations

import sys
from typing import Any

import ray
from ray.cluster_utils import Cluster

SMALL: dict[str, Any] = {"object_store_memory": 80 << 20, "memory": 8 << 30}


def main(machines: int, hardware: str) -> None:
    """Run the cluster until nobody wants it any more."""
    head = {"num_cpus": 1, "include_dashboard": False, **SMALL}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        others = [
            cluster.add_node(num_cpus=2, resources={hardware: 2}, wait=False, **SMALL)
            for _ in range(machines - 1)
        ]
        cluster.wait_for_nodes()
        print("at", cluster.address, flush=True)  # noqa: T201 - what the parent reads
        for line in sys.stdin:
            if line.strip() == "kill":
                cluster.remove_node(others.pop(), allow_graceful=False)
                print("killed", flush=True)  # noqa: T201 - the same
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
