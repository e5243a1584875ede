"""Splitting of text into sentences of limited length."""

from __future__ import annotations

import re
import unicodedata

from sixfold.core.input_limits.normalization import normalized

MAX_CHARACTERS = 400  # the longest piece
_ENDS = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*\s+|\n\s*\n+")
_PAUSES = re.compile(r"(?<=[,;:–—])\s+")
_MARKUP = re.compile(r"[*_`#>|~]{1,3}")
_TITLES = re.compile(r"\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|no|sr|sra|m|mme|hr|fr|bzw|z\.b)\.$", re.I)


def split(text: str) -> list[str]:
    """Return the sentences in order; pieces without letters or digits are dropped."""
    parts = [part for sentence in _pieces(_clean(text), _ENDS, joined=True) for part in _shorten(sentence)]
    return [part for part in parts if any(char.isalnum() for char in part)]


def _clean(text: str) -> str:
    normal = normalized("NFC", text)
    return "".join(
        char if unicodedata.category(char)[0] != "C" or char in "\n\t" else " "
        for char in _MARKUP.sub(" ", normal)
    )


def _pieces(text: str, separator: re.Pattern[str], *, joined: bool = False) -> list[str]:
    parts = [" ".join(part.split()) for part in separator.split(text)]
    pieces: list[str] = []
    for part in filter(None, parts):
        if joined and pieces and _TITLES.search(pieces[-1]):
            pieces[-1] = f"{pieces[-1]} {part}"
        else:
            pieces.append(part)
    return pieces


def _shorten(sentence: str) -> list[str]:
    """Split a sentence that is too long at commas, else between or within words."""
    if len(sentence) <= MAX_CHARACTERS:
        return [sentence]
    parts: list[str] = []
    for piece in _pieces(sentence, _PAUSES):
        for word in piece.split(" ") if len(piece) > MAX_CHARACTERS else [piece]:
            for at in range(0, len(word), MAX_CHARACTERS):
                fragment = word[at : at + MAX_CHARACTERS]
                if parts and len(parts[-1]) + len(fragment) < MAX_CHARACTERS:
                    parts[-1] += f" {fragment}"
                else:
                    parts.append(fragment)
    return parts
