"""The files of a repository that a pipeline needs: one set of safetensors for each component."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import sources

# Configurations, vocabularies and templates.
_CONFIG_SUFFIXES = frozenset({".json", ".txt", ".model", ".jinja"})
_DOCUMENTS = ("LICENSE", "README")


def pipeline_files(paths: Iterable[str], index: Mapping[str, Any], variant: str = "") -> list[str]:
    """Return the files of a pipeline by its `model_index.json`; raises `EngineError` for pickles only."""
    names = sorted(paths)
    files = [path for path in names if path == sources.INDEX or _is_document(path)]
    required_names = set(sources.weighted_components(index))
    for name, value in index.items():
        if not name.startswith("_") and isinstance(value, list) and len(value) == 2 and value[1] is not None:
            folder_files = [path for path in names if path.startswith(f"{name}/") and path.count("/") == 1]
            files += _component(folder_files, variant, must=name in required_names, title=name)
    return files


def model_files(paths: Iterable[str], variant: str = "") -> list[str]:
    """Return the files of a single model, such as a ControlNet, at the top level of its repository."""
    top = sorted(path for path in paths if "/" not in path)
    documents = [path for path in top if _is_document(path)]
    return documents + _component(top, variant, must=True, title="the repository")


def onnx_files(paths: Iterable[str], file: str) -> list[str]:
    """Return the paths of one ONNX model with its external data, configuration, license and README."""
    names = sorted(paths)
    if file not in names:
        raise EngineError(f"{file} was not found in the repository.")
    return [path for path in names if path in {file, f"{file}_data", f"{file}.json"} or _is_document(path)]


def _component(paths: list[str], variant: str, *, must: bool, title: str) -> list[str]:
    names = {path: PurePosixPath(path).name for path in paths}
    weights: list[str] = []
    for kind in (*([variant] if variant else []), None, *sources.VARIANTS):
        weights = weights or [path for path, name in names.items() if _kind(name) == (kind,)]
    if must and not any(path.endswith(".safetensors") for path in weights):
        raise EngineError(
            f"{title} does not contain safetensors; pickles can run code and are not downloaded."
        )
    configs = [
        path
        for path, name in names.items()
        if PurePosixPath(name).suffix in _CONFIG_SUFFIXES and not _is_document(path) and ".index." not in name
    ]
    return configs + weights


def _kind(name: str) -> tuple[str | None] | None:
    """Return the variant (None if plain) of weights or of their index in a tuple; None for other files."""
    index = re.fullmatch(r"(?P<stem>\w+)\.safetensors\.index(?:\.(?P<variant>\w+))?\.json", name)
    match = index or sources.WEIGHTS.fullmatch(name)
    return (match["variant"],) if match else None


def _is_document(path: str) -> bool:
    return "/" not in path and path.upper().startswith(_DOCUMENTS) and not path.endswith((".png", ".jpg"))
