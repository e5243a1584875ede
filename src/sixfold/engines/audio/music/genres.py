"""Words to a band: which genre a prompt calls for, who leads, how lively it is, and what it does without."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

_FALLBACK = "pop"
_NOT = re.compile(r"\b(?:no|without|not|minus) (?:\w+ )?$")
_LIVELY = ((re.compile(r"energetic|fast|driving|aggressive|powerful|loud|intense|wild|epic"), 0.2),)
_STILL = ((re.compile(r"slow|soft|quiet|gentle|calm|sparse|minimal|tender|sad|melanchol\w+|sleepy"), -0.2),)
# What a prompt may leave out or ask for: the part, and its words.
_PARTS = {
    "drums": re.compile(r"drums?|percussion|beats?\b|drumless"),
    "bass": re.compile(r"\bbass\b"),
    "lead": re.compile(r"melody|lead\b|solo"),
    "pad": re.compile(r"\bpads?\b|strings"),
}


@dataclass(frozen=True, slots=True)
class Genre:
    """One row of `genres.toml`."""

    name: str
    words: re.Pattern[str]
    major: tuple[str, ...]
    minor: tuple[str, ...]
    drums: str
    bass: tuple[str, str]
    comp: tuple[str, str]
    pad: str
    lead: str
    room: float = 1.0
    energy: float = 0.6
    beats: int = 4
    swing: float = 0.0
    duck: float = 0.0
    dust: float = 0.0
    density: float = 1.0
    scale: str = ""


@dataclass(frozen=True, slots=True)
class GenreBand:
    """A genre as one prompt wants it."""

    genre: Genre
    lead: str
    energy: float
    without: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def told(self) -> str:
        """The band in words."""
        parts = [f"genre {self.genre.name}", f"lead {self.lead}", f"energy {self.energy:.2f}"]
        return ", ".join(parts + [f"no {part}" for part in sorted(self.without)])


@dataclass(frozen=True, slots=True)
class GenreTable:
    """All of `genres.toml`."""

    genres: Mapping[str, Genre]
    drums: Mapping[str, Mapping[str, str]]
    bass: Mapping[str, str]
    comp: Mapping[str, str]
    leads: Mapping[str, re.Pattern[str]]


@cache
def table() -> GenreTable:
    """The table, read once."""
    text = resources.files("sixfold.engines.audio.music").joinpath("genres.toml").read_text("utf-8")
    document: dict[str, Any] = tomllib.loads(text)
    genres = {name: _genre(name, row) for name, row in document["genres"].items()}
    leads = {name: re.compile(words) for name, words in document["leads"].items()}
    return GenreTable(genres, document["drums"], document["bass"], document["comp"], leads)


def _genre(name: str, row: Mapping[str, Any]) -> Genre:
    facts = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Genre(**{**facts, "name": name, "words": re.compile(row["words"])})


def band(prompt: str) -> GenreBand:
    """The band that a prompt calls for: the genre named first, with the instrument and the mood it names."""
    text = prompt.casefold()
    known = table()
    found = {name: at for name, row in known.genres.items() if (at := _first(row.words, text)) is not None}
    genre = known.genres[min(found, key=lambda name: found[name])] if found else known.genres[_FALLBACK]
    named = {name: at for name, words in known.leads.items() if (at := _first(words, text)) is not None}
    lead = min(named, key=lambda name: named[name]) if named else genre.lead
    energy = genre.energy + sum(
        shift for words, shift in (*_LIVELY, *_STILL) if _first(words, text) is not None
    )
    without = frozenset(part for part, words in _PARTS.items() if _denied(words, text))
    return GenreBand(genre, lead, min(1.0, max(0.1, energy)), without)


def _first(words: re.Pattern[str], text: str) -> int | None:
    """Where a word stands first that is not denied (`no guitar`)."""
    places = (found.start() for found in words.finditer(text))
    return next((at for at in places if not _NOT.search(text[max(0, at - 20) : at])), None)


def _denied(words: re.Pattern[str], text: str) -> bool:
    return any(
        _NOT.search(text[max(0, found.start() - 20) : found.start()]) or found[0].endswith("less")
        for found in words.finditer(text)
    )
