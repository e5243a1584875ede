"""Words to a track: which layers a prompt calls for, how loud each is, and all of them as one sound."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from sixfold.engines.audio.ambience import loudness, music, nature, wildlife
from sixfold.engines.audio.ambience.loop_buffer import RATE, Array, LoopBuffer
from sixfold.engines.image.scene import noise

_QUIET_DB = -7.0
_BED_DB = -9.0
_MOST = 5  # layers: more are a noise
_TAMING = re.compile(r"\b(?:no|without|not|silent|mute(?:d)?) (?:\w+ )?$")
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


@dataclass(frozen=True, slots=True)
class AmbienceMix:
    """Layers by loudness in dB, and the mood of the music (empty: none)."""

    layers: Mapping[str, float]
    mood: str = ""
    music_db: float = 0.0

    @property
    def told(self) -> list[str]:
        """The mix in words: `sea 0 dB`."""
        found = [f"{name} {db:+g} dB" for name, db in self.layers.items()]
        return [*found, f"music ({self.mood}) {self.music_db:+g} dB"] if self.mood else found


@dataclass(frozen=True, slots=True)
class _AmbienceRow:
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
    """What a prompt sounds like. One that says nothing of it gets a soft bed, never silence."""
    text = prompt.casefold()
    rows, moods = _table()
    loud = {name: row.db for name, row in rows.items() if _named(row.words, text)}
    soft = {
        name: row.db + _QUIET_DB
        for name, row in rows.items()
        if name not in loud and row.quiet is not None and _named(row.quiet, text)
    }
    found = {**loud, **soft}
    played = found.pop("music", None)
    if "depths" in found:
        found = {name: db for name, db in found.items() if name not in ("sea", "stream", "wind", "birds")}
    kept = dict(sorted(found.items(), key=lambda layer: -layer[1])[:_MOST])
    mood = next((name for name, words in moods.items() if words.search(text)), "calm")
    if played is not None:
        return AmbienceMix(kept, mood, played)
    if not kept:
        return AmbienceMix({}, mood, 0.0)
    return AmbienceMix(kept, mood, _BED_DB + min(0.0, max(kept.values())))


def _named(words: re.Pattern[str], text: str) -> bool:
    """Whether a word stands there that is not denied (`no wind`)."""
    return any(
        not _TAMING.search(text[max(0, found.start() - 24) : found.start()]) for found in words.finditer(text)
    )


def made(prompt: str, seconds: float, seed: int) -> Array:
    """The track: float32 (2, samples), 48 kHz, -16 LUFS, looping; the same for the same words and seed."""
    tape = LoopBuffer(max(RATE // 2, round(seconds * RATE)))
    mix = mix_of(prompt)
    out = tape.silence()
    for name, db in mix.layers.items():
        out += LAYERS[name](tape, noise.stream(seed, "sound", name)) * np.float32(10 ** (db / 20))
    if mix.mood:
        bed = music.bed(tape, noise.stream(seed, "sound", "music"), mix.mood)
        out += bed * np.float32(10 ** (mix.music_db / 20))
    return loudness.brought(out)[:, : max(1, round(seconds * RATE))]
