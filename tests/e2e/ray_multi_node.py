"""Ray cluster of several nodes on loopback, in a process: `ray_multi_node COUNT PROCESSORS KINDS`.

It prints `at` and the cluster's address. The command `kill` on its input kills one node as a power loss
would and prints `killed`; `add` adds one and prints `added`. The end of its input stops the cluster.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

# An optional extra without type stubs.
ray: Any = importlib.import_module("ray")
Cluster: Any = importlib.import_module("ray.cluster_utils").Cluster
SMALL: dict[str, Any] = {"object_store_memory": 80 << 20, "memory": 8 << 30}


def main(machines: int, processors: int, hardware: str) -> None:
    """Run the cluster until standard input ends; `hardware` is separated by commas."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **SMALL}
    )
    others: list[Any] = []

    def add() -> None:
        kinds = dict.fromkeys(filter(None, hardware.split(",")), processors)
        others.append(cluster.add_node(num_cpus=processors, resources=kinds, wait=False, **SMALL))

    def kill() -> None:
        cluster.remove_node(others.pop(0), allow_graceful=False)

    try:
        for _ in range(machines - 1):
            add()
        cluster.wait_for_nodes()
        print("at", cluster.address, flush=True)  # noqa: T201 - what the parent reads
        for line in sys.stdin:
            word = line.strip()
            {"kill": kill, "add": add}[word]()
            print(f"{word}ed", flush=True)  # noqa: T201 - the same
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
