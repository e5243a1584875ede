"""Fake embedding model: words on one line have equal vectors, all others orthogonal ones."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

from sixfold.core.memory.indexing import tokens

MEANINGS = ("car automobile vehicle", "doctor physician", "cat feline kitten", "happy glad cheerful")
_WIDTH = 384


class Meanings:
    """`embedding.Model` without weights; `version` makes it another model."""

    def __init__(self, version: str = "1") -> None:
        self.name = f"meanings/{version}"
        self.texts = 0
        self._same = {word: line.split()[0] for line in MEANINGS for word in map(tokens.stem, line.split())}

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a unit vector with a dimension for each meaning."""
        self.texts += len(texts)
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        values = [0.0] * _WIDTH
        for word in tokens.terms(text):
            meaning = self._same.get(word, word)
            digest = hashlib.sha256(meaning.encode()).digest()
            values[int.from_bytes(digest[:4], "little") % _WIDTH] += 1.0
        length = sum(value * value for value in values) ** 0.5 or 1.0
        return array("f", [value / length for value in values]).tobytes()
