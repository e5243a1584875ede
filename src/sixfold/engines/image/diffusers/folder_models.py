"""Catalog models for the folders of image weights on this machine, named `diffusers/NAME`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import EngineError
from sixfold.engines import image_models
from sixfold.engines.image.diffusers import sources

PREFIX = "diffusers/"
# The input with which a catalog model selects its folder.
FOLDER = "weights_folder"
ENGINE = "weights-image"
_LORAS = "loras"
_MAX_MODELS, _MAX_LORAS = 100, 500


def read(weights: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders of pipelines and the names of the LoRAs, both sorted."""
    if not weights.is_dir():
        return (), ()
    folders = sorted(path.name for path in weights.iterdir() if _is_pipeline(path))
    names = itertools.islice((path.stem for path in (weights / _LORAS).glob("*.safetensors")), _MAX_LORAS)
    return tuple(folders[:_MAX_MODELS]), tuple(sorted(filter(_is_plain, names)))


def document(folders: tuple[str, ...], loras: tuple[str, ...]) -> dict[str, Any]:
    """Return a catalog document with a model for each folder."""
    rows: dict[str, Mapping[str, Any]] = {**image_models.inputs(1024), **image_models.sampling(None, None)}
    if loras:
        rows["lora"] = image_models.lora(loras)
    return {"models": {PREFIX + name: _row(name, rows) for name in folders}}


def adapters(texts: Any) -> Iterator[tuple[str, float]]:
    """Yield the files and weights of the LoRAs that a request names."""
    for text in texts or ():
        name, weight = image_models.parse_lora(text)
        yield f"{name}.safetensors", weight


def _is_pipeline(folder: Path) -> bool:
    """Return whether a folder has a plain name and contains a pipeline."""
    if not _is_plain(folder.name) or folder.name == _LORAS:
        return False
    if not (folder / sources.RECORD).is_file():
        return (folder / sources.INDEX).is_file()
    with contextlib.suppress(EngineError):
        return sources.read_json(folder / sources.RECORD).get("role", "pipeline") == "pipeline"
    return False


def _is_plain(name: str) -> bool:
    return bool(name) and name == image_models.sanitized(name)


def _row(name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": name,
        "description": f"Images by the weights in the folder {name}.",
        "output_kind": "image",
        "price": "ra2",
        "engines": [ENGINE],
        "fixed": {"format": "png", FOLDER: name},
        "words": {"cfg": "guidance"},
        "inputs": inputs,
    }
