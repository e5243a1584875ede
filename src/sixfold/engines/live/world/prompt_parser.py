"""Parser of prompts into landscape, time of day and weather."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
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
    land, hour, weather = (_best_match(_TABLES[table], text) for table in ("lands", "hours", "weathers"))
    patterns = (re.compile(rf"\b(?:{row['words']})\b") for row in (land, hour, weather))
    return WorldSpec(text, land, hour, weather, prompt_words.of_patterns(prompt, patterns))


def _best_match(table: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """Return the entry with the most words in the text: in a tie the last, without a match the first."""
    counts = {name: len(set(re.findall(rf"\b(?:{row['words']})\b", text))) for name, row in table.items()}
    best = max(reversed(counts), key=lambda name: counts[name])
    return table[best] if counts[best] else next(iter(table.values()))
