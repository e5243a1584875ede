"""Ambient tracks from a prompt: selection of layers and their levels, and the mix."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources

import msgspec
import numpy as np

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.audio.ambience import loudness, music, nature, wildlife
from sixfold.engines.audio.ambience.loop_buffer import RATE, Array, LoopBuffer
from sixfold.engines.image.scene import noise

_QUIET_DB = -7.0
_BED_DB = -9.0
# More layers would blend into noise.
_MAX_LAYERS = 5
_NEGATION = re.compile(r"\b(?:no|without|not|silent|mute(?:d)?) (?:\w+ )?$")
LAYERS: Mapping[str, Callable[[LoopBuffer, np.random.Generator], Array]] = {
    "wind": nature.wind,
    "sea": nature.sea,
    "stream": nature.stream,
    "rain": nature.rain,
    "thunder": nature.thunder,
    "fire": nature.fire,
    "leaves": nature.leaves,
    "depths": nature.depths,
    "birds": wildlife.birds,
    "insects": wildlife.insects,
    "crowd": wildlife.crowd,
    "city": wildlife.city,
}


class AmbienceMix(msgspec.Struct, frozen=True):
    """The levels of the layers in dB, and the mood of the music; `mood` is empty without music."""

    layers: Mapping[str, float]
    mood: str = ""
    music_db: float = 0.0

    @property
    def description(self) -> list[str]:
        """The layers and the mood with their levels, as strings such as `sea +0 dB`."""
        layers = [f"{name} {db:+g} dB" for name, db in self.layers.items()]
        return [*layers, f"music ({self.mood}) {self.music_db:+g} dB"] if self.mood else layers


class _AmbienceRow(msgspec.Struct, frozen=True):
    db: float
    words: re.Pattern[str]
    quiet: re.Pattern[str] | None


@cache
def _table() -> tuple[Mapping[str, _AmbienceRow], Mapping[str, re.Pattern[str]]]:
    text = resources.files("sixfold.engines.audio.ambience").joinpath("words.toml").read_text("utf-8")
    document = tomllib.loads(text)
    moods = {name: re.compile(words) for name, words in document.pop("moods").items()}
    rows = {
        name: _AmbienceRow(
            row["db"], re.compile(row["words"]), re.compile(row["quiet"]) if "quiet" in row else None
        )
        for name, row in document.items()
    }
    return rows, moods


def mix_of(prompt: str) -> AmbienceMix:
    """Return the mix for a prompt; a prompt without a known sound results in soft music."""
    text = prompt.casefold()
    rows, moods = _table()
    prominent = {name: row.db for name, row in rows.items() if _named(row.words, text)}
    quiet = {
        name: row.db + _QUIET_DB
        for name, row in rows.items()
        if name not in prominent and row.quiet is not None and _named(row.quiet, text)
    }
    levels = {**prominent, **quiet}
    music_level = levels.pop("music", None)
    if "depths" in levels:
        levels = {name: db for name, db in levels.items() if name not in ("sea", "stream", "wind", "birds")}
    layers = dict(sorted(levels.items(), key=lambda layer: -layer[1])[:_MAX_LAYERS])
    mood = next((name for name, words in moods.items() if words.search(text)), "calm")
    if music_level is not None:
        return AmbienceMix(layers, mood, music_level)
    if not layers:
        return AmbienceMix({}, mood, 0.0)
    return AmbienceMix(layers, mood, _BED_DB + min(0.0, max(layers.values())))


def words(prompt: str) -> PromptWords:
    """Return the prompt words that select layers or the mood of the music, and the ignored words."""
    rows, moods = _table()
    mix = mix_of(prompt)
    patterns = [rows[name].words for name in mix.layers]
    patterns += [moods[mix.mood]] if mix.mood in moods else []
    patterns += [quiet for name in mix.layers if (quiet := rows[name].quiet) is not None]
    return prompt_words.of_patterns(prompt, patterns)


def _named(words: re.Pattern[str], text: str) -> bool:
    """Return whether the text contains a match that is not negated (as in `no wind`)."""
    return any(
        not _NEGATION.search(text[max(0, match.start() - 24) : match.start()])
        for match in words.finditer(text)
    )


def render(prompt: str, seconds: float, seed: int) -> Array:
    """Return a looping track as float32 (2, samples) at 48 kHz and -16 LUFS, deterministic by seed."""
    buffer = LoopBuffer(max(RATE // 2, round(seconds * RATE)))
    mix = mix_of(prompt)
    out = buffer.silence()
    for name, db in mix.layers.items():
        out += LAYERS[name](buffer, noise.stream(seed, "sound", name)) * np.float32(10 ** (db / 20))
    if mix.mood:
        bed = music.bed(buffer, noise.stream(seed, "sound", "music"), mix.mood)
        out += bed * np.float32(10 ** (mix.music_db / 20))
    return loudness.normalize(out)[:, : max(1, round(seconds * RATE))]
