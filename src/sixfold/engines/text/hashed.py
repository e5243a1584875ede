"""Texts as vectors without a model: words and their parts, hashed into 384 places. Near is written alike."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.core.normalization import normalized
from sixfold.engines.text import embedding

DIMENSIONS = 384
_WORD = re.compile(r"\w+")
_WHOLE, _PAIR, _PART = 1.0, 0.6, 0.35  # weights of a word, of two in a row, of three letters of one
_COMMON = frozenset(
    _WORD.findall(
        "a an and are as at be by for from has he in is it its of on or she that the their they this to was "
        "were will with der die das und ist zu le la les et est un une el los las y es de del il lo e o os um"
    )
)
_LEAST = 0.15  # of a word that every text has


class HashedEngine:
    """Lexical vectors of `texts`, the same on every machine."""

    name = "hashed"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """`embeddings`, in the order of the texts; of length 1 where `normalize` is set."""
        texts = list(task.inputs["texts"])
        vectors = np.zeros((len(texts), DIMENSIONS))
        for number, text in enumerate(texts):
            if number % 64 == 0:
                context.progress(number / len(texts))
            vectors[number] = vector(text)
        if task.inputs.get("normalize", True):
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return embedding.told(vectors, "hashed-ngrams-384", "preview")


def vector(text: str) -> NDArray[np.float64]:
    """The weights of a text's features, each at its place with its sign."""
    found = np.zeros(DIMENSIONS)
    counts: Counter[str] = Counter()
    for feature, weight in _features(text):
        counts[feature] += 1
        place, sign = _placed(feature)
        found[place] += sign * weight / counts[feature]  # the tenth time says less than the first
    if not counts:
        found[0] = 1.0  # a text without a word has a direction, too
    return found


def _features(text: str) -> Iterator[tuple[str, float]]:
    words = _WORD.findall(_plain(text))
    for number, word in enumerate(words):
        share = _LEAST if word in _COMMON else 1.0
        yield f"w {word}", _WHOLE * share
        if number:
            yield f"p {words[number - 1]} {word}", _PAIR * share
        if share == 1.0:
            edged = f"<{word}>"
            for at in range(len(edged) - 2):
                yield f"c {edged[at : at + 3]}", _PART


def _plain(text: str) -> str:
    """Lower case, without accents."""
    split = normalized("NFKD", text.casefold())
    return "".join(char for char in split if not unicodedata.combining(char))


def _placed(feature: str) -> tuple[int, float]:
    number = int.from_bytes(blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    return (number >> 1) % DIMENSIONS, 1.0 if number & 1 else -1.0
