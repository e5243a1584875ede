"""Texts as vectors, as a model of the catalogue: by MiniLM where `engines add embeddings` has put it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.text import minilm

_AT_ONCE = 64


class EmbeddingEngine:
    """What `texts` mean, in 384 numbers each."""

    name = "minilm"
    version = "1"

    def __init__(self, *, weights: str = "") -> None:
        model = minilm.find(Path(weights))
        if model is None:
            raise EngineError("The embedding model cannot be loaded; run `sixfold engines add embeddings`.")
        self._model = model

    def run(self, task: Task, context: Context) -> Result:
        """`embeddings`, in the order of the texts. MiniLM's vectors have length 1 by themselves."""
        texts = list(task.inputs["texts"])
        found: list[Any] = []
        for at in range(0, len(texts), _AT_ONCE):
            context.progress(at / len(texts))
            found += list(self._model.vectors(texts[at : at + _AT_ONCE]))
        return told(np.array(found), "all-minilm-l6-v2", "full")


def told(vectors: Any, model: str, quality: Any) -> Result:
    """Vectors in the shape of the interface."""
    rows = [[float(f"{value:.7g}") for value in row] for row in vectors.tolist()]
    return Result(data={"embeddings": rows, "dimensions": vectors.shape[1], "model": model}, quality=quality)
