"""Detection of phrases: pages in which the words of a query are adjacent.

The index does not contain the positions of words, so the texts of the best pages with all the words are
searched.
"""

from __future__ import annotations

import re

from sixfold.core.memory.indexing import tokens

# Maximum number of pages that are searched, characters of each, and words of a phrase.
MAX_PAGES, MAX_CHARS = 30, 8192
_MAX_WORDS = 8
_WORD = re.compile(r"\w+")


def phrase_of(query: str) -> str:
    """Return the words of a short query, which may be in quotes, or an empty string."""
    words = _words(query) if len(query) <= MAX_CHARS else []
    return f" {' '.join(words)} " if 1 < len(words) <= _MAX_WORDS else ""


def has_phrase(text: str, phrase: str) -> bool:
    """Return whether the words of `phrase_of` are adjacent in a text, in this order."""
    return phrase in f" {' '.join(_words(text))} "


def _words(text: str) -> list[str]:
    return _WORD.findall(tokens.fold(text))
