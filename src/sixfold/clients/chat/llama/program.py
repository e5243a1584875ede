"""The process that runs llama.cpp: one model on a loopback port, protected by a key.

It reads its options as a line of JSON from stdin, prints a line with its URL, and exits when stdin closes, as
it does when the server is killed. If the model cannot be loaded, it exits at once.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

# Memory for the prompt cache.
_CACHE_MIB = 256
_LOG_SECONDS = 1.0


def main() -> None:
    """Load the model, print its URL, and serve until stdin closes."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # llama.cpp prints to stdout, which is reserved for the URL.
    os.dup2(2, 1)
    options: dict[str, Any] = json.loads(sys.stdin.readline())
    library: Any = importlib.import_module("xllamacpp")
    try:
        server = library.Server(_parameters(library.CommonParams(), options))
    except RuntimeError:
        # The reason is in the log, which is written by a thread that cannot be joined.
        time.sleep(_LOG_SECONDS)
        raise
    output.write(json.dumps({"url": server.listening_address}) + "\n")
    output.flush()
    sys.stdin.read()
    # A regular exit would wait for threads of llama.cpp.
    os._exit(0)


def _parameters(parameters: Any, options: dict[str, Any]) -> Any:
    parameters.model.path = options["path"]
    parameters.model_alias = {options["model"]}
    parameters.hostnames, parameters.port, parameters.api_keys = ["127.0.0.1"], 0, [options["key"]]
    parameters.n_parallel, parameters.n_ctx = options["slots"], options["slots"] * options["context"]
    parameters.cache_ram_mib = _CACHE_MIB
    parameters.endpoint_metrics, parameters.offline, parameters.ui = True, True, False
    if options.get("projector"):
        parameters.mmproj.path = options["projector"]
    if options.get("threads"):
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = options["threads"]
    if options.get("gpu_layers") is not None:
        parameters.n_gpu_layers = options["gpu_layers"]
    return parameters


if __name__ == "__main__":
    main()
