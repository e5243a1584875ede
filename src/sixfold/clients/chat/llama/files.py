"""Which models there are: a GGUF file, a folder of them, or what `sixfold engines add chat` has fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"GGUF"
_PART = re.compile(r"-(\d{5})-of-\d{5}$")
_PROJECTOR = "mmproj"  # so begins the name of what lets a model see, beside the model


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A model's file, and the one by which it sees pictures, where there is one."""

    path: Path
    projector: Path | None = None


def named(source: Path) -> Mapping[str, GgufModel]:
    """The models of a file or a folder, by the file's name without its end."""
    if source.is_dir():
        return _of_folder(source)
    return {_PART.sub("", source.stem): GgufModel(source)} if _is_model(source) else {}


def added(folder: Path) -> Mapping[str, GgufModel]:
    """The models under a folder of weights, by the names under which they were added, oldest first."""
    found: list[tuple[str, str, GgufModel]] = []
    for record in folder.glob("[!.]*/sixfold.json"):
        models = _of_folder(record.parent)
        if models:
            when = str(json.loads(record.read_bytes()).get("added", ""))
            found.append((when, record.parent.name, next(iter(models.values()))))
    return {name: model for _, name, model in sorted(found, key=lambda row: row[:2])}


def _of_folder(folder: Path) -> Mapping[str, GgufModel]:
    files = sorted(folder.rglob("*.gguf"))
    projector = next((path for path in files if path.name.startswith(_PROJECTOR)), None)
    models = [path for path in files if not path.name.startswith(_PROJECTOR) and _is_model(path)]
    return {_PART.sub("", path.stem): GgufModel(path, projector) for path in models}


def _is_model(path: Path) -> bool:
    """Whether it is whole by its first bytes; of a model in parts the first one stands for all."""
    part = _PART.search(path.stem)
    if part is not None and int(part[1]) != 1:
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
