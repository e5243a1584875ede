"""Parsing of lyrics into tagged sections and syllables per line."""

from __future__ import annotations

import re

import msgspec

_TAG = re.compile(r"\s*+\[([^\]\n]++)\]\s*+")
_MAX_TAG_CHARS = 60
_VOWELS = re.compile(r"[aeiouyäöüáéíóúàèìòùâêîôûåæøœ]+", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+", re.UNICODE)
_NAMES = ("intro", "verse", "pre-chorus", "chorus", "bridge", "outro", "hook", "solo", "interlude", "break")
_ALIASES = {"hook": "chorus", "refrain": "chorus", "pre-chorus": "verse", "solo": "bridge", "break": "bridge"}
_MAX_SYLLABLES = 24
MAX_LINES = 400


class Stanza(msgspec.Struct, frozen=True):
    """A section: its name in lower case and the syllables of each line."""

    name: str
    lines: tuple[int, ...]


def parse(text: str) -> list[Stanza]:
    """Return the stanzas of lyrics; the list is empty for empty text and for `[Instrumental]`."""
    sections: list[tuple[str, list[int]]] = []
    for line in text.splitlines()[:MAX_LINES]:
        while (tag := _TAG.match(line)) and len(name := tag[1].strip()) <= _MAX_TAG_CHARS:
            sections.append((_name(name), []))
            line = line[tag.end() :]
        count = syllables(line)
        if count:
            if not sections:
                sections.append(("verse", []))
            sections[-1][1].append(count)
    stanzas = [Stanza(name, tuple(lines)) for name, lines in sections]
    return [stanza for stanza in stanzas if stanza.name != "instrumental" or stanza.lines]


def syllables(line: str) -> int:
    count = 0
    for word in _WORD.findall(line):
        groups = len(_VOWELS.findall(word))
        silent = word.lower().endswith("e") and groups > 1 and not word.lower().endswith("le")
        count += max(1, groups - silent)
    return min(count, _MAX_SYLLABLES)


def _name(tag: str) -> str:
    lowered = tag.casefold()
    section = next(
        (name for name in _NAMES if lowered.startswith(name)), lowered.split()[0] if lowered else "verse"
    )
    return _ALIASES.get(section, section)
