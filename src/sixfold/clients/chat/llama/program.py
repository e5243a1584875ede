"""The process that runs llama.cpp: one model on a port of loopback, for whoever knows the key.

It reads its order as a line of JSON, answers with a line that says where it is asked, and ends when its input
does: a server that was killed leaves none behind. Where it cannot load the model it ends at once.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

_CACHE_MIB = 256  # what prompts that may be asked again may keep of the machine's memory


def main() -> None:
    """Load the model, say where it is asked, and stay until nobody is there."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # llama.cpp prints what it likes
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    library: Any = importlib.import_module("xllamacpp")
    server = library.Server(_parameters(library.CommonParams(), order))
    answer.write(json.dumps({"url": server.listening_address}) + "\n")
    answer.flush()
    sys.stdin.read()
    os._exit(0)  # its threads may still be at work


def _parameters(asked: Any, order: dict[str, Any]) -> Any:
    asked.model.path = order["path"]
    asked.model_alias = {order["model"]}
    asked.hostnames, asked.port, asked.api_keys = ["127.0.0.1"], 0, [order["key"]]
    asked.n_parallel, asked.n_ctx = order["slots"], order["slots"] * order["context"]
    asked.cache_ram_mib = _CACHE_MIB
    asked.endpoint_metrics, asked.offline, asked.ui = True, True, False
    if order.get("projector"):
        asked.mmproj.path = order["projector"]
    if order.get("threads"):
        asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = order["threads"]
    if order.get("gpu_layers") is not None:
        asked.n_gpu_layers = order["gpu_layers"]
    return asked


if __name__ == "__main__":
    main()
