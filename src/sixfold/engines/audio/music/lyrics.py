"""Lyrics as a composer reads them: sections by their tags, lines, and the syllables of each line."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = re.compile(r"\s*\[\s*([^\]\n]{1,60}?)\s*\]\s*")
_VOWELS = re.compile(r"[aeiouyäöüáéíóúàèìòùâêîôûåæøœ]+", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+", re.UNICODE)
_NAMES = ("intro", "verse", "pre-chorus", "chorus", "bridge", "outro", "hook", "solo", "interlude", "break")
_ALIKE = {"hook": "chorus", "refrain": "chorus", "pre-chorus": "verse", "solo": "bridge", "break": "bridge"}
_MOST_SYLLABLES = 24
MOST_LINES = 400


@dataclass(frozen=True, slots=True)
class Stanza:
    """One section: its name in small letters, and the syllables of each of its lines."""

    name: str
    lines: tuple[int, ...]


def read(text: str) -> list[Stanza]:
    """The stanzas of lyrics; `[Instrumental]` and nothing at all are none."""
    found: list[tuple[str, list[int]]] = []
    for line in text.splitlines()[:MOST_LINES]:
        while tag := _TAG.match(line):
            found.append((_name(tag[1]), []))
            line = line[tag.end() :]
        count = syllables(line)
        if count:
            if not found:
                found.append(("verse", []))
            found[-1][1].append(count)
    stanzas = [Stanza(name, tuple(lines)) for name, lines in found]
    return [stanza for stanza in stanzas if stanza.name != "instrumental" or stanza.lines]


def syllables(line: str) -> int:
    """About how many syllables a line has."""
    count = 0
    for word in _WORD.findall(line):
        groups = len(_VOWELS.findall(word))
        silent = word.lower().endswith("e") and groups > 1 and not word.lower().endswith("le")
        count += max(1, groups - silent)
    return min(count, _MOST_SYLLABLES)


def _name(tag: str) -> str:
    lowered = tag.casefold()
    known = next(
        (name for name in _NAMES if lowered.startswith(name)), lowered.split()[0] if lowered else "verse"
    )
    return _ALIKE.get(known, known)
