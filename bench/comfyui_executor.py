"""Run graphs with ComfyUI's executor; started by the Python interpreter of a ComfyUI checkout.

PYTHON bench/comfyui_executor.py CHECKOUT    prints the version of ComfyUI, then reads one graph per line and
                                             prints one {"fresh": seconds, "again": seconds} per graph

`fresh` is validation and execution with an empty cache, `again` the same with every output cached. A
stand-in for ComfyUI's server ignores all messages. The module imports nothing of Sixfold, because ComfyUI's
modules have general names such as `nodes` and need a separate process.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

# Arguments of caches other than the classic cache.
_CACHE = {"lru": 0, "ram": 0, "ram_inactive": 0}


def _class(run: Callable[..., Any], inputs: dict[str, Any], **more: Any) -> type:
    """Define a class in the format of ComfyUI's custom nodes."""
    table = classmethod(lambda _cls: {"required": inputs})
    return type("Trivial", (), {"FUNCTION": "run", "run": run, "INPUT_TYPES": table, **more})


# The node classes of tests/unit/workflows/tiny_graphs.py in ComfyUI's format.
CLASSES = {
    "Number": _class(
        lambda _, value: (value,), {"value": ("INT", {"min": 0, "max": 100})}, RETURN_TYPES=("INT",)
    ),
    "Add": _class(
        lambda _, a, b: (a + b,), {"a": ("INT",), "b": ("INT", {"default": 1})}, RETURN_TYPES=("INT",)
    ),
    "Show": _class(
        lambda _, value: {"ui": {"text": (str(value),)}},
        {"value": ("INT",)},
        RETURN_TYPES=(),
        OUTPUT_NODE=True,
    ),
}


class Client:
    """Stand-in for ComfyUI's server with one connected client, for which ComfyUI builds every message."""

    client_id = "bench"
    last_node_id: str | None = None

    def send_sync(self, event: object, data: object, sid: str | None = None) -> None:
        """Ignore a message."""


class Executor:
    """ComfyUI's executor with an empty cache."""

    def __init__(self, execution: Any) -> None:
        self._execution = execution
        self._own = execution.PromptExecutor(
            Client(), cache_type=execution.CacheType.CLASSIC, cache_args=_CACHE
        )

    def seconds(self, runner: asyncio.Runner, text: str) -> float:
        """Validate and run a graph, as the server and its worker do in turn, and return the seconds."""
        graph: dict[str, Any] = json.loads(text)
        gc.collect()
        began = time.perf_counter()
        valid, error, outputs, _ = runner.run(self._execution.validate_prompt("bench", graph, None))
        if not valid:
            raise SystemExit(f"ComfyUI refused the graph: {error}")
        self._own.execute(graph, "bench", {"client_id": "bench"}, outputs)
        duration = time.perf_counter() - began
        if not self._own.success:
            raise SystemExit(f"ComfyUI failed: {self._own.status_messages}")
        return duration


def _load(checkout: Path) -> Any:
    """Import ComfyUI's modules on the CPU, register the trivial node classes, and return `execution`."""
    sys.path.insert(0, str(checkout))
    sys.argv = ["main.py", "--cpu"]
    importlib.import_module("comfy.options").enable_args_parsing()
    importlib.import_module("nodes").NODE_CLASS_MAPPINGS.update(CLASSES)
    return importlib.import_module("execution")


def main(checkout: Path, answers: TextIO) -> None:
    """Process requests until the input ends."""
    execution = _load(checkout)
    print(importlib.import_module("comfyui_version").__version__, file=answers, flush=True)
    with asyncio.Runner() as runner:
        for text in sys.stdin:
            executor = Executor(execution)
            response = {"fresh": executor.seconds(runner, text), "again": executor.seconds(runner, text)}
            print(json.dumps(response), file=answers, flush=True)


if __name__ == "__main__":
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as only_answers:
        # Output of ComfyUI must not mix with the results.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        main(Path(sys.argv[1]), only_answers)
