"""Choice of a genre, a lead instrument, energy and omitted parts from a prompt."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words

_FALLBACK = "pop"
_NOT = re.compile(r"\b(?:no|without|not|minus) (?:\w+ )?$")
_LIVELY = ((re.compile(r"energetic|fast|driving|aggressive|powerful|loud|intense|wild|epic"), 0.2),)
_STILL = ((re.compile(r"slow|soft|quiet|gentle|calm|sparse|minimal|tender|sad|melanchol\w+|sleepy"), -0.2),)
# Parts that a prompt may exclude, with their words.
_PARTS = {
    "drums": re.compile(r"drums?|percussion|beats?\b|drumless"),
    "bass": re.compile(r"\bbass\b"),
    "lead": re.compile(r"melody|lead\b|solo"),
    "pad": re.compile(r"\bpads?\b|strings"),
}


class Genre(msgspec.Struct, frozen=True):
    """A row of `genres.toml`."""

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


class GenreBand(msgspec.Struct, frozen=True):
    """A genre, with the lead instrument, energy and excluded parts that a prompt selects."""

    genre: Genre
    lead: str
    energy: float
    without: frozenset[str] = msgspec.field(default_factory=frozenset[str])

    @property
    def description(self) -> str:
        """The choices as a string for logs."""
        parts = [f"genre {self.genre.name}", f"lead {self.lead}", f"energy {self.energy:.2f}"]
        return ", ".join(parts + [f"no {part}" for part in sorted(self.without)])


class GenreTable(msgspec.Struct, frozen=True):
    """The contents of `genres.toml`."""

    genres: Mapping[str, Genre]
    drums: Mapping[str, Mapping[str, str]]
    bass: Mapping[str, str]
    comp: Mapping[str, str]
    leads: Mapping[str, re.Pattern[str]]


@cache
def table() -> GenreTable:
    """Return the table, which is read once."""
    text = resources.files("sixfold.engines.audio.music").joinpath("genres.toml").read_text("utf-8")
    document: dict[str, Any] = tomllib.loads(text)
    genres = {name: _genre(name, row) for name, row in document["genres"].items()}
    leads = {name: re.compile(words) for name, words in document["leads"].items()}
    return GenreTable(genres, document["drums"], document["bass"], document["comp"], leads)


def _genre(name: str, row: Mapping[str, Any]) -> Genre:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Genre(**{**values, "name": name, "words": re.compile(row["words"])})


def band(prompt: str) -> GenreBand:
    """Return the band for a prompt, from the first genre, lead instrument and moods in the prompt."""
    text = prompt.casefold()
    genre_table = table()
    genres = {
        name: at for name, row in genre_table.genres.items() if (at := _first(row.words, text)) is not None
    }
    genre = (
        genre_table.genres[min(genres, key=lambda name: genres[name])]
        if genres
        else genre_table.genres[_FALLBACK]
    )
    leads = {name: at for name, words in genre_table.leads.items() if (at := _first(words, text)) is not None}
    lead = min(leads, key=lambda name: leads[name]) if leads else genre.lead
    energy = genre.energy + sum(
        shift for words, shift in (*_LIVELY, *_STILL) if _first(words, text) is not None
    )
    without = frozenset(part for part, words in _PARTS.items() if _excluded(words, text))
    return GenreBand(genre, lead, min(1.0, max(0.1, energy)), without)


def words(prompt: str) -> PromptWords:
    """Return the prompt words that select the band, and the ignored words."""
    choice, genre_table = band(prompt), table()
    lead = genre_table.leads.get(choice.lead)
    moods = [pattern for pattern, _ in (*_LIVELY, *_STILL)]
    parts = [_PARTS[part] for part in choice.without]
    used = [choice.genre.words, *moods, *parts, *([] if lead is None else [lead])]
    return prompt_words.of_patterns(prompt, used)


def _first(words: re.Pattern[str], text: str) -> int | None:
    """Return the position of the first match that is not negated (as in `no guitar`), or None."""
    positions = (match.start() for match in words.finditer(text))
    return next((at for at in positions if not _NOT.search(text[max(0, at - 20) : at])), None)


def _excluded(words: re.Pattern[str], text: str) -> bool:
    return any(
        _NOT.search(text[max(0, match.start() - 20) : match.start()]) or match[0].endswith("less")
        for match in words.finditer(text)
    )
