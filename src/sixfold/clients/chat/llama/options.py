"""Options of a model server of the kind `gguf`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

KIND = "gguf"
_NUMBERS: Mapping[str, tuple[float, float]] = {
    "context": (128, 10_000_000),
    "slots": (1, 64),
    "loaded": (1, 64),
    "threads": (1, 1024),
    "gpu_layers": (0, 10_000),
    "idle_seconds": (0.1, 7 * 24 * 3600),
}


class GgufOptions(msgspec.Struct, frozen=True):
    """Options of models: `slots` concurrent chats of `context` tokens each, `loaded` models at a time.

    `source` is a file or a folder; empty for the added models. Without `threads` and `gpu_layers`, llama.cpp
    chooses. A model that is idle for `idle_seconds` is unloaded.
    """

    source: str = ""
    context: int = 8192
    slots: int = 2
    loaded: int = 1
    threads: int | None = None
    gpu_layers: int | None = None
    idle_seconds: float = 300.0


def parse(name: str, options: Mapping[str, Any]) -> GgufOptions:
    """Parse the options of a row; raises `ValueError` with a one-line message."""
    label = f"[gateway.upstreams.{name}]"
    for option, value in options.items():
        if option == "source":
            if not isinstance(value, str):
                raise ValueError(f"{label} source must be a GGUF file or a folder of them")
        elif option not in _NUMBERS:
            raise ValueError(f"{label} has an unknown field {option!r}; use source, {', '.join(_NUMBERS)}")
        elif not _is_valid(option, value):
            minimum, maximum = _NUMBERS[option]
            raise ValueError(
                f"{label} {option} must be a number from {minimum:g} to {maximum:g}, not {value!r}"
            )
    return GgufOptions(**options)


def _is_valid(name: str, value: Any) -> bool:
    minimum, maximum = _NUMBERS[name]
    kinds = (int, float) if name == "idle_seconds" else (int,)
    return isinstance(value, kinds) and not isinstance(value, bool) and minimum <= value <= maximum
