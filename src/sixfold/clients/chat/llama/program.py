"""The process that runs llama.cpp: one model on a loopback port, protected by a key.

It reads its options as a line of JSON from stdin, prints a line with its URL, and exits when stdin closes, so
that no process outlives a killed server. If the model cannot be loaded it exits at once.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

# Memory for the prompt cache.
_CACHE_MIB = 256


def main() -> None:
    """Load the model, print its URL, and serve until stdin closes."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # llama.cpp prints to stdout, which has to stay clean for the URL.
    os.dup2(2, 1)
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    library: Any = importlib.import_module("xllamacpp")
    server = library.Server(_parameters(library.CommonParams(), order))
    answer.write(json.dumps({"url": server.listening_address}) + "\n")
    answer.flush()
    sys.stdin.read()
    # Threads of llama.cpp may still be running.
    os._exit(0)


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
