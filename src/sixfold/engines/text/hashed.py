"""Embeddings without a model: words and their parts, hashed into 384 dimensions by spelling."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.core.input_limits.normalization import normalized
from sixfold.engines.text import embedding

DIMENSIONS = 384
_WORD = re.compile(r"\w+")
_WHOLE, _PAIR, _PART = 1.0, 0.6, 0.35  # weights of a word, a pair of words, and a trigram of a word
_COMMON = frozenset(
    _WORD.findall(
        "a an and are as at be by for from has he in is it its of on or she that the their they this to was "
        "were will with der die das und ist zu le la les et est un une el los las y es de del il lo e o os um"
    )
)
_COMMON_WEIGHT = 0.15  # factor for words that occur in almost every text


class HashedEngine:
    """Computes lexical vectors of `texts`, identical on every machine."""

    name = "hashed"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return `embeddings` in the order of the texts, normalized if `normalize` is set."""
        texts = list(task.inputs["texts"])
        vectors = np.zeros((len(texts), DIMENSIONS))
        for number, text in enumerate(texts):
            if number % 64 == 0:
                context.progress(number / len(texts))
            vectors[number] = vector(text)
        if task.inputs.get("normalize", True):
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return embedding.embedding_result(vectors, "hashed-ngrams-384", "preview")


def vector(text: str) -> NDArray[np.float64]:
    """Return the vector of a text, the signed sum of its hashed features."""
    result = np.zeros(DIMENSIONS)
    counts: Counter[str] = Counter()
    for feature, weight in _features(text):
        counts[feature] += 1
        index, sign = _index_and_sign(feature)
        # The tenth occurrence counts less than the first.
        result[index] += sign * weight / counts[feature]
    if not counts:
        result[0] = 1.0  # the vector of a text without words must not be 0
    return result


def _features(text: str) -> Iterator[tuple[str, float]]:
    words = _WORD.findall(_plain(text))
    for number, word in enumerate(words):
        share = _COMMON_WEIGHT if word in _COMMON else 1.0
        yield f"w {word}", _WHOLE * share
        if number:
            yield f"p {words[number - 1]} {word}", _PAIR * share
        if share == 1.0:
            edged = f"<{word}>"
            for at in range(len(edged) - 2):
                yield f"c {edged[at : at + 3]}", _PART


def _plain(text: str) -> str:
    """Return a text in lower case without accents."""
    split = normalized("NFKD", text.casefold())
    return "".join(char for char in split if not unicodedata.combining(char))


def _index_and_sign(feature: str) -> tuple[int, float]:
    number = int.from_bytes(blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    return (number >> 1) % DIMENSIONS, 1.0 if number & 1 else -1.0
