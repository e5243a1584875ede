"""Parser of prompts into landscape, time of day and weather."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.engines import prompt_words

Color = NDArray[Any]  # three floats from 0 to 1

_TABLES = tomllib.loads((Path(__file__).parent / "lands.toml").read_text("utf-8"))
_SEA = [36, 84, 108]


class WorldSpec(msgspec.Struct, frozen=True, eq=False):
    """The parameters of a world; colors are screen values from 0 to 1."""

    seed: str
    land: Mapping[str, Any]
    hour: Mapping[str, Any]
    weather: Mapping[str, Any]
    words: PromptWords = NO_WORDS

    def color(self, name: str) -> Color:
        """Return a color of the land or the hour; the weather desaturates and darkens colors of the hour."""
        if name in self.land or name == "sea":
            return _color(self.land.get(name, _SEA))
        color = _color(self.hour[name])
        grey, dark = self.weather.get("grey", 0.0), self.weather.get("dark", 0.0)
        mean = float(color.mean()) * 0.92
        return (color * (1 - grey) + np.array([0.97, 1.0, 1.04], np.float32) * (mean * grey)) * (1 - dark)


def _color(rgb: list[int]) -> Color:
    return np.array(rgb, np.float32) / 255


@lru_cache(maxsize=64)
def parse(prompt: str) -> WorldSpec:
    """Return the world of a prompt; the default is a clear day on a meadow."""
    text = " ".join(prompt.lower().split())
    land, land_words = _land(text)
    hour, weather = (_TABLES[table][_best_match(_TABLES[table], text)] for table in ("hours", "weathers"))
    patterns = map(_pattern, (*land_words, hour["words"], weather["words"]))
    return WorldSpec(text, land, hour, weather, prompt_words.of_patterns(prompt, patterns))


def _land(text: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return the land of a text with its covers and waters, and the patterns of their words."""
    lands = _TABLES["lands"]
    covers = [name for name, row in lands.items() if _count(row.get("cover_words"), text)]
    base = _best_match(lands, text)
    if covers and not _count(lands[base].get("words"), text):
        base = covers[0]
    row = lands[base]
    land, words = row.get("cover", {}) | row, [row[key] for key in ("words", "cover_words") if key in row]
    for name in covers:
        cover = lands[name]
        if name != base and base in cover.get("over", lands):
            land |= {**cover["cover"], "view": _view(land, cover["cover"])}
            words.append(cover["cover_words"])
    for water in _TABLES["waters"].values():
        if _count(water["words"], text):
            land |= {"water": max(land["water"], water["water"]), "view": _view(land, water)}
            words.append(water["words"])
    return land, [*words, "trees?"] if land["trees"] else words


def _view(*rows: Mapping[str, Any]) -> dict[str, float]:
    return {name: weight for row in rows for name, weight in row.get("view", {}).items()}


def _best_match(table: Mapping[str, Any], text: str) -> str:
    """Return the row with the most words in the text: in a tie the last, without a match the first."""
    counts = {name: _count(row.get("words"), text) for name, row in table.items()}
    best = max(reversed(counts), key=lambda name: counts[name])
    return best if counts[best] else next(iter(table))


def _count(words: str | None, text: str) -> int:
    """Return the number of different words in the text that a pattern matches."""
    return len(set(_pattern(words).findall(text))) if words else 0


@cache
def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{words})\b")
