"""Options of a model server of the kind `gguf`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sixfold import setting_tables

KIND = "gguf"


class GgufOptions(msgspec.Struct, frozen=True):
    """Options of models: `slots` concurrent chats of `context` tokens each, `loaded` models at a time.

    `source` is a file or a folder; empty for the added models. Without `threads` and `gpu_layers`, llama.cpp
    chooses. A model that is idle for `idle_seconds` is unloaded.
    """

    source: Annotated[str, Meta(description="a GGUF file or a folder of them")] = ""
    context: Annotated[int, Meta(ge=128, le=10_000_000)] = 8192
    slots: Annotated[int, Meta(ge=1, le=64)] = 2
    loaded: Annotated[int, Meta(ge=1, le=64)] = 1
    threads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    gpu_layers: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    idle_seconds: Annotated[float, Meta(ge=0.1, le=7 * 24 * 3600)] = 300.0


def parse(name: str, options: Mapping[str, Any]) -> GgufOptions:
    """Parse the options of a row; raises `ValueError` with a one-line message."""
    return setting_tables.convert(f"[gateway.upstreams.{name}]", options, GgufOptions)
