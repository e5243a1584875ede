"""Which files of a repository a pipeline is loaded from: one set of safetensors a component, no pickle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import sources

_WORDS = frozenset({".json", ".txt", ".model", ".jinja"})  # configurations, vocabularies, templates
_PAPERS = ("LICENSE", "README")


def of_pipeline(paths: Iterable[str], index: Mapping[str, Any], variant: str = "") -> list[str]:
    """The files of a pipeline, given its `model_index.json`; raises `EngineError` where only pickles are."""
    known = sorted(paths)
    chosen = [path for path in known if path == sources.INDEX or _is_paper(path)]
    needed = set(sources.weighted(index))
    for name, value in index.items():
        if not name.startswith("_") and isinstance(value, list) and len(value) == 2 and value[1] is not None:
            inside = [path for path in known if path.startswith(f"{name}/") and path.count("/") == 1]
            chosen += _component(inside, variant, must=name in needed, title=name)
    return chosen


def of_model(paths: Iterable[str], variant: str = "") -> list[str]:
    """The files of a single model, such as a ControlNet, at the top of its repository."""
    top = sorted(path for path in paths if "/" not in path)
    papers = [path for path in top if _is_paper(path)]
    return papers + _component(top, variant, must=True, title="the repository")


def of_file(paths: Iterable[str], file: str) -> list[str]:
    """One ONNX model, with the data that may lie beside it and the repository's papers."""
    known = sorted(paths)
    if file not in known:
        raise EngineError(f"The repository has no {file}.")
    return [path for path in known if path in {file, f"{file}_data"} or _is_paper(path)]


def _component(paths: list[str], variant: str, *, must: bool, title: str) -> list[str]:
    names = {path: PurePosixPath(path).name for path in paths}
    weights: list[str] = []
    for kind in (*([variant] if variant else []), None, *sources.VARIANTS):
        weights = weights or [path for path, name in names.items() if _kind(name) == (kind,)]
    if must and not any(path.endswith(".safetensors") for path in weights):
        raise EngineError(f"{title} has no safetensors there; pickles can run code and are not fetched.")
    words = [
        path
        for path, name in names.items()
        if PurePosixPath(name).suffix in _WORDS and not _is_paper(path) and ".index." not in name
    ]
    return words + weights


def _kind(name: str) -> tuple[str | None] | None:
    """The variant of weights or of their index, in a tuple; None for a file that is neither."""
    index = re.fullmatch(r"(?P<stem>\w+)\.safetensors\.index(?:\.(?P<variant>\w+))?\.json", name)
    found = index or sources.WEIGHTS.fullmatch(name)
    return (found["variant"],) if found else None


def _is_paper(path: str) -> bool:
    return "/" not in path and path.upper().startswith(_PAPERS) and not path.endswith((".png", ".jpg"))
