"""The model files of a ComfyUI server, read from its node schemas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from sixfold.clients.comfyui.errors import short_text
from sixfold.clients.comfyui.server import MAX_CHOICES

Schemas = Mapping[str, Mapping[str, Any]]  # `/object_info` by node class

_SEPARATORS = re.compile(r"[^a-z0-9.]+")


def options(schemas: Schemas, class_type: str, name: str) -> tuple[str, ...]:
    """Return the choices of an input, from either of ComfyUI's two schema formats."""
    inputs: dict[str, Any] = schemas.get(class_type, {}).get("input", {})
    spec: list[Any] = {**inputs.get("optional", {}), **inputs.get("required", {})}.get(name) or [[]]
    choices = spec[0] if isinstance(spec[0], list) else (spec[1] if len(spec) > 1 else {}).get("options", ())
    return tuple(map(short_text, islice(choices, MAX_CHOICES)))


def base(file: str) -> str:
    """Return a file's name without its folders."""
    return PurePosixPath(file.replace("\\", "/")).name


def words(text: str) -> str:
    """Return a file name in lower case without its suffix, its separators replaced by spaces."""
    stem = re.sub(r"\.(safetensors|sft|ckpt|pth?|gguf|bin)$", "", text.lower())
    return _SEPARATORS.sub(" ", stem).strip()


def first(files: Iterable[str], pattern: str) -> str:
    """Return the first file whose words match a regular expression, or an empty string."""
    return next((file for file in files if re.search(pattern, words(base(file)))), "")


def pinned(file: str, models: Iterable[str]) -> str | None:
    """Return the model with this file name, with or without its folder, or None."""
    return next((model for model in models if file in (model, base(model))), None)
