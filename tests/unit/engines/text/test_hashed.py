"""Hashed embeddings: similar spelling gives similar vectors; and the engine of MiniLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.text.embedding import EmbeddingEngine
from sixfold.engines.text.hashed import DIMENSIONS, HashedEngine
from tests.unit.engines.engine_runs import RunContext


def vectors(folder: Path, *texts: str, **inputs: Any) -> NDArray[np.float64]:
    task = Task("t", "embeddings", {"texts": list(texts), "normalize": True, **inputs})
    return np.array(HashedEngine().run(task, RunContext(folder)).data["embeddings"])


def test_texts_with_common_words_have_similar_vectors(tmp_path: Path) -> None:
    fox, foxes, boat = vectors(
        tmp_path,
        "The red fox runs in the snow",
        "Red foxes run over snow",
        "Quarterly invoices of the shipyard",
    )
    assert fox @ foxes > 0.4
    assert abs(fox @ boat) < 0.2


def test_common_words_have_little_weight(tmp_path: Path) -> None:
    first, second = vectors(tmp_path, "the fox and the boat", "the invoice and the river")
    assert abs(first @ second) < 0.25


def test_case_and_accents_are_ignored(tmp_path: Path) -> None:
    first, second = vectors(tmp_path, "CAFÉ CRÈME", "cafe creme")
    assert first @ second == pytest.approx(1)


def test_vectors_are_normalized_unless_disabled(tmp_path: Path) -> None:
    texts = ("one", "one two three four five six", "", "!?", "\ud800")
    result = vectors(tmp_path, *texts)
    assert result.shape == (5, DIMENSIONS)
    assert np.allclose(np.linalg.norm(result, axis=1), 1, atol=1e-6)
    plain = vectors(tmp_path, *texts, normalize=False)
    assert np.linalg.norm(plain[1]) > 1.5 * np.linalg.norm(plain[0])


def test_vector_is_independent_of_other_texts(tmp_path: Path) -> None:
    assert np.array_equal(vectors(tmp_path, "a fox")[0], vectors(tmp_path, "a boat", "a fox")[1])


def test_missing_weights_error_names_a_command(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="engines add embeddings"):
        EmbeddingEngine(weights=str(tmp_path))
