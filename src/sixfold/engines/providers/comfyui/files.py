"""What a ComfyUI server's node schemas tell of the files that it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

Schemas = Mapping[str, Mapping[str, Any]]  # a node class -> its `/object_info`

_SEPARATORS = re.compile(r"[^a-z0-9.]+")


def options(schemas: Schemas, class_type: str, name: str) -> tuple[str, ...]:
    """The choices of an input, in either of the two ways in which ComfyUI spells them."""
    inputs: dict[str, Any] = schemas.get(class_type, {}).get("input", {})
    spec: list[Any] = {**inputs.get("optional", {}), **inputs.get("required", {})}.get(name) or [[]]
    listed = spec[0] if isinstance(spec[0], list) else (spec[1] if len(spec) > 1 else {}).get("options", ())
    return tuple(str(value) for value in listed)


def base(file: str) -> str:
    """A file's name without its folders."""
    return PurePosixPath(file.replace("\\", "/")).name


def words(text: str) -> str:
    """What a file's name says: lower case, separators as blanks, without its ending."""
    stem = re.sub(r"\.(safetensors|sft|ckpt|pth?|gguf|bin)$", "", text.lower())
    return _SEPARATORS.sub(" ", stem).strip()


def first(files: Iterable[str], pattern: str) -> str:
    """The first file whose words match, or an empty text."""
    return next((file for file in files if re.search(pattern, words(base(file)))), "")


def pinned(file: str, models: Iterable[str]) -> str | None:
    """The model that an operator means by a file's name, with its folder or without."""
    return next((model for model in models if file in (model, base(model))), None)
