"""BERT's uncased tokenizer, with the ids that the package `tokenizers` computes.

The package is not used, because it takes 37 MB with its dependencies.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

_MAX_WORD = 100  # characters; longer words are unknown
_MAX_CACHED = 20_000  # characters whose normal form is stored
_REMOVED = frozenset({"Cc", "Cf", "Co", "Cs"})
_IDEOGRAPHS = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\U0002f800-\U0002fa1f]"
)


class WordPiece:
    """A vocabulary of words and parts of words, read from a file `tokenizer.json`."""

    def __init__(self, path: Path, max_tokens: int) -> None:
        """Read the tokenizer at `path`, for at most `max_tokens` of a text; raises `ValueError`."""
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if document.get("model", {}).get("type") != "WordPiece":
            raise ValueError(f"{path.name} is not a WordPiece tokenizer")
        self._vocabulary: dict[str, int] = document["model"]["vocab"]
        self._unknown = self._vocabulary["[UNK]"]
        self._ends = self._vocabulary["[CLS]"], self._vocabulary["[SEP]"]
        added = document.get("added_tokens", ())
        self._special: dict[str, int] = {row["content"]: row["id"] for row in added}
        # Without special tokens the pattern matches nowhere.
        self._split = re.compile(f"({'|'.join(map(re.escape, self._special)) or '(?!)'})")
        self._normal = _NormalForms()
        self._room = max_tokens - len(self._ends)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, preceded by the id of `[CLS]` and followed by the id of `[SEP]`."""
        return [self._ends[0], *islice(self._ids(text), self._room), self._ends[1]]

    def _ids(self, text: str) -> Iterator[int]:
        for part in self._split.split(text):
            if part in self._special:
                yield self._special[part]
                continue
            for word in part.translate(self._normal).split(" "):
                yield from self._pieces(word)

    def _pieces(self, word: str) -> list[int]:
        """Return the ids of the longest parts of a word, from its beginning, or the id of unknown words."""
        if len(word) > _MAX_WORD:
            return [self._unknown]
        ids: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._vocabulary), None)
            if end is None:
                return [self._unknown]
            ids.append(self._vocabulary[prefix + word[start:end]])
            start, prefix = end, "##"
        return ids


class _NormalForms(dict[int, str]):
    """A table for `str.translate`: lower case without accents, with spaces around each sign and ideograph."""

    def __missing__(self, code: int) -> str:
        form = _normal_form(chr(code))
        if len(self) < _MAX_CACHED:
            self[code] = form
        return form


def _normal_form(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\t\n\r" or category[0] == "Z":
        return " "
    if category in _REMOVED or character == "\ufffd":
        return ""
    letters = (each for each in unicodedata.normalize("NFD", character) if unicodedata.category(each) != "Mn")
    form = "".join(f" {each} " if _is_punctuation(each) else each for each in "".join(letters).lower())
    return f" {form} " if _IDEOGRAPHS.match(character) else form


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character)[0] == "P"
