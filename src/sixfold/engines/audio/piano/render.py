"""Rendering of notes on the modeled piano: touch, pedal resonance and room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sixfold.engines.audio.ambience.loop_buffer import RATE
from sixfold.engines.audio.music import mixing, synthesis
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.piano import strings
from sixfold.engines.audio.piano.strings import StringSound
from sixfold.engines.image.scene import noise

Array = mixing.Array

# The number of sampled key velocities; a loudness between two of them changes only the gain.
_FORCES = 7
_LONGEST = 7.0
_HUMAN_SECONDS = 0.0035
_DAMPER_SECONDS = 0.11
_SYMPATHY = 0.025
_LAST_SECONDS = 0.35


class Piano:
    """A piano that caches the sounds of its strings."""

    def __init__(self, sound: StringSound, seed: int) -> None:
        self._sound = sound
        self.seed = seed
        self._strings: dict[tuple[int, int], Array] = {}

    def note(self, pitch: int, loudness: float, seconds: float) -> tuple[Array, float]:
        """Return a note held for `seconds`, and its gain."""
        level = min(_FORCES - 1, int(loudness * _FORCES))
        force = (level + 0.5) / _FORCES
        length = min(_LONGEST, seconds + _DAMPER_SECONDS * 3)
        wave = self._strings.get((pitch, level))
        if wave is None or wave.shape[1] < round(length * RATE):
            rng = noise.stream(self.seed, "string", pitch)
            wave = strings.strike(pitch, force, min(_LONGEST, length * 1.3 + 0.3), self._sound, rng)
            self._strings[pitch, level] = wave
        fall = _DAMPER_SECONDS * (2.2 if pitch > 88 else 1.4 if pitch < 45 else 1.0)
        return synthesis.release(wave, round(seconds * RATE), fall * 3), (0.18 + 0.82 * loudness) / (
            0.18 + 0.82 * force
        )


def play(
    notes: Sequence[Note], tempo: float, seconds: float, piano: Piano, progress: Callable[[float], None]
) -> Array:
    """Return the notes in stereo without reverberation, and report progress from 0 to 1."""
    out = mixing.silence(seconds)
    rng = noise.stream(piano.seed, "hands")
    beat = 60 / tempo
    for count, note in enumerate(notes):
        offset = float(np.clip(rng.normal(0, _HUMAN_SECONDS), -0.008, 0.008)) if note.beat else 0.0
        loudness = float(np.clip(note.loudness * rng.uniform(0.93, 1.07), 0.02, 1))
        wave, gain = piano.note(note.pitch, loudness, max(0.05, note.beats * beat))
        mixing.put(out, wave, note.beat * beat + offset, gain)
        if count % 16 == 0:
            progress(count / len(notes))
    return out


def add_room(dry: Array, sound: StringSound, seed: int) -> Array:
    """Add string resonance and the room, and master the result."""
    rng = noise.stream(seed, "room")
    resonant = mixing.convolve(dry, strings.sympathy(rng)) * np.float32(_SYMPATHY * sound.sustain)
    wet = mixing.convolve(dry + resonant, mixing.reverb(rng, sound.room_seconds, sound.room_hertz))
    mixed = (dry + resonant) * np.float32(1 - sound.share) + wet * np.float32(sound.share * 1.6)
    return mixing.master(mixed, _LAST_SECONDS)
