"""A long text as sentences, each short enough to be said in one breath of work."""

from __future__ import annotations

import re
import unicodedata

from sixfold.core.normalization import normalized

MOST = 400  # characters of one piece
_ENDS = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*\s+|\n\s*\n+")
_PAUSES = re.compile(r"(?<=[,;:–—])\s+")
_MARKUP = re.compile(r"[*_`#>|~]{1,3}")
_TITLES = re.compile(r"\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|no|sr|sra|m|mme|hr|fr|bzw|z\.b)\.$", re.I)


def split(text: str) -> list[str]:
    """The sentences in order; a text without a letter or a figure has none."""
    found = [part for sentence in _pieces(_clean(text), _ENDS, joined=True) for part in _short(sentence)]
    return [part for part in found if any(char.isalnum() for char in part)]


def _clean(text: str) -> str:
    normal = normalized("NFC", text)
    return "".join(
        char if unicodedata.category(char)[0] != "C" or char in "\n\t" else " "
        for char in _MARKUP.sub(" ", normal)
    )


def _pieces(text: str, between: re.Pattern[str], *, joined: bool = False) -> list[str]:
    parts = [" ".join(part.split()) for part in between.split(text)]
    kept: list[str] = []
    for part in filter(None, parts):
        if joined and kept and _TITLES.search(kept[-1]):
            kept[-1] = f"{kept[-1]} {part}"
        else:
            kept.append(part)
    return kept


def _short(sentence: str) -> list[str]:
    """A sentence, cut at commas and at last between words where it is too long."""
    if len(sentence) <= MOST:
        return [sentence]
    parts: list[str] = []
    for piece in _pieces(sentence, _PAUSES):
        for word in piece.split(" ") if len(piece) > MOST else [piece]:
            for at in range(0, len(word), MOST):
                bit = word[at : at + MOST]
                if parts and len(parts[-1]) + len(bit) < MOST:
                    parts[-1] += f" {bit}"
                else:
                    parts.append(bit)
    return parts
