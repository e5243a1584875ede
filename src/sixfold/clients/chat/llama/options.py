"""Options of a model server of the kind `gguf`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KIND = "gguf"
_NUMBERS: Mapping[str, tuple[float, float]] = {
    "context": (128, 10_000_000),
    "slots": (1, 64),
    "loaded": (1, 64),
    "threads": (1, 1024),
    "gpu_layers": (0, 10_000),
    "idle_seconds": (0.1, 7 * 24 * 3600),
}


@dataclass(frozen=True, slots=True)
class GgufOptions:
    """How models run: `slots` concurrent chats of `context` tokens each, `loaded` models at a time.

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


def parse(name: str, given: Mapping[str, Any]) -> GgufOptions:
    """Parse the options of a row; raises `ValueError` with a one-line message."""
    where = f"[gateway.upstreams.{name}]"
    for word, value in given.items():
        if word == "source":
            if not isinstance(value, str):
                raise ValueError(f"{where} source must be a GGUF file or a folder of them")
        elif word not in _NUMBERS:
            raise ValueError(f"{where} has an unknown field {word!r}")
        elif not _within(word, value):
            least, most = _NUMBERS[word]
            raise ValueError(f"{where} {word} must be a number from {least:g} to {most:g}, not {value!r}")
    return GgufOptions(**given)


def _within(word: str, value: Any) -> bool:
    least, most = _NUMBERS[word]
    kinds = (int, float) if word == "idle_seconds" else (int,)
    return isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most
