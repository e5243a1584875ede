"""Search for GGUF models: a file, a folder, or the models that `sixfold engines add chat` has downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

MAGIC = b"GGUF"
_PART = re.compile(r"-(\d{5})-of-\d{5}$")
# Prefix of the file beside a model that enables image input.
_PROJECTOR = "mmproj"


class GgufModel(msgspec.Struct, frozen=True):
    """A model file, and its projector for image input, if there is one."""

    path: Path
    projector: Path | None = None


def models_at(source: Path) -> Mapping[str, GgufModel]:
    """Return the models of a file or a folder, by file name without suffix."""
    if source.is_dir():
        return _models_in(source)
    return {_PART.sub("", source.stem): GgufModel(source)} if _is_model(source) else {}


def added_models(folder: Path) -> Mapping[str, GgufModel]:
    """Return the added models in a folder of weights by name, oldest first."""
    records: list[tuple[str, str, GgufModel]] = []
    for record in folder.glob("[!.]*/sixfold.json"):
        models = _models_in(record.parent)
        if models:
            added_at = str(json.loads(record.read_bytes()).get("added", ""))
            records.append((added_at, record.parent.name, next(iter(models.values()))))
    return {name: model for _, name, model in sorted(records, key=lambda row: row[:2])}


def _models_in(folder: Path) -> Mapping[str, GgufModel]:
    files = sorted(folder.rglob("*.gguf"))
    projector = next((path for path in files if path.name.startswith(_PROJECTOR)), None)
    models = [path for path in files if not path.name.startswith(_PROJECTOR) and _is_model(path)]
    return {_PART.sub("", path.stem): GgufModel(path, projector) for path in models}


def _is_model(path: Path) -> bool:
    """Return whether the file begins with GGUF's magic bytes and is not a later part of a split model."""
    part = _PART.search(path.stem)
    if part is not None and int(part[1]) != 1:
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
