"""The embedding engine of MiniLM, whose weights `sixfold engines add embeddings` installs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.text import minilm

_BATCH = 64


class EmbeddingEngine:
    """Computes embeddings of 384 dimensions for `texts`."""

    name = "minilm"
    version = "1"

    def __init__(self, *, weights: str = "") -> None:
        model = minilm.find(Path(weights))
        if model is None:
            raise EngineError("The embedding model cannot be loaded: run `sixfold engines add embeddings`.")
        self._model = model

    def run(self, task: Task, context: Context) -> Result:
        """Return `embeddings` in the order of the texts; MiniLM's vectors are normalized."""
        texts = list(task.inputs["texts"])
        vectors: list[Any] = []
        for at in range(0, len(texts), _BATCH):
            context.progress(at / len(texts))
            vectors += list(self._model.vectors(texts[at : at + _BATCH]))
        return embedding_result(np.array(vectors), "all-minilm-l6-v2", "full")


def embedding_result(vectors: Any, model: str, quality: Any) -> Result:
    """Return vectors of shape (texts, dimensions) as a result of the embeddings model."""
    rows = [[float(f"{value:.7g}") for value in row] for row in vectors.tolist()]
    return Result(data={"embeddings": rows, "dimensions": vectors.shape[1], "model": model}, quality=quality)
