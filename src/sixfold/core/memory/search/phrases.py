"""Phrases: whether a page has the words of a query next to each other.

The index has no positions of words, so the texts of the best pages that have all the words are searched.
"""

from __future__ import annotations

import re

from sixfold.core.memory.indexing import tokens

# The pages that are searched, the characters of each, and the words of a phrase.
MAX_PAGES, MAX_CHARS = 30, 8192
_MAX_WORDS = 8
_WORD = re.compile(r"\w+")


def phrase_of(query: str) -> str:
    """Return the words of a short query, which may be in quotes, or an empty string."""
    words = _words(query) if len(query) <= MAX_CHARS else []
    return f" {' '.join(words)} " if 1 < len(words) <= _MAX_WORDS else ""


def has_phrase(text: str, phrase: str) -> bool:
    """Return whether a text has the words of `phrase_of` next to each other, in this order."""
    return phrase in f" {' '.join(_words(text))} "


def _words(text: str) -> list[str]:
    return _WORD.findall(tokens.fold(text))
