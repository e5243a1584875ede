"""Looping background music: slow pad chords and occasional plucked notes."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from sixfold.engines.audio.ambience.loop_buffer import RATE, Array, LoopBuffer, band, decay, level

_A4, _A4_NUMBER = 440.0, 69
_CHORD_SECONDS = 2.8


class AmbienceMood(msgspec.Struct, frozen=True):
    """The harmony of a mood: a root (MIDI note), and chords and a scale in semitones above the root.

    `plucks` is the density of plucked notes.
    """

    root: int
    chords: tuple[tuple[int, ...], ...]
    scale: tuple[int, ...]
    plucks: float


MOODS = {
    "bright": AmbienceMood(
        48, ((0, 7, 16, 23), (9, 16, 24, 28), (5, 12, 21, 28), (7, 14, 23, 26)), (0, 2, 4, 7, 9), 1.0
    ),
    "calm": AmbienceMood(
        45, ((0, 7, 15, 22), (8, 15, 24, 27), (3, 10, 19, 26), (10, 17, 26, 29)), (0, 3, 5, 7, 10), 0.6
    ),
    "dark": AmbienceMood(
        38, ((0, 7, 15, 19), (8, 15, 20, 27), (5, 12, 20, 24), (7, 12, 19, 26)), (0, 3, 5, 7, 10), 0.25
    ),
    "wide": AmbienceMood(
        43, ((0, 7, 14, 19), (5, 12, 19, 21), (0, 7, 14, 23), (7, 14, 19, 26)), (0, 2, 7, 9, 11), 0.3
    ),
}


def bed(buffer: LoopBuffer, rng: np.random.Generator, mood: str) -> Array:
    settings = MOODS[mood]
    count = max(1, round(buffer.seconds / _CHORD_SECONDS))
    seconds = buffer.seconds / count
    out = buffer.silence()
    for index in range(count):
        chord = settings.chords[index % len(settings.chords)]
        for voice, step in enumerate(chord):
            pan = (voice - 1.5) * 0.35
            buffer.put(
                out,
                _pad(_pitch(settings.root + step), seconds * 1.45, rng),
                index * seconds - seconds * 0.2,
                pan,
            )
        _pluck(buffer, out, rng, settings, index * seconds, seconds)
    air = buffer.noise(rng, band(500, 5000, 0.8)) * buffer.wander(rng, 0.2, 0.2, 1.0, 2) * np.float32(0.003)
    return level(buffer.add_reverb(out, rng, 2.6, 0.42) + air)


def _pitch(note: int) -> float:
    return _A4 * 2 ** ((note - _A4_NUMBER) / 12)


def _pad(pitch: float, seconds: float, rng: np.random.Generator) -> Array:
    """Return a pad note: a few partials on two slightly detuned oscillators, with a slow swell."""
    time = np.arange(round(seconds * RATE), dtype=np.float32) / RATE
    part = time / np.float32(seconds)
    swell = np.sin(math.pi * part) ** 1.3
    wave = np.zeros(time.size, np.float32)
    for detune in (-0.0017, 0.0019):
        phase = float(rng.uniform(0, math.tau))
        for partial, strength in ((1, 1.0), (2, 0.32), (3, 0.13), (4, 0.05)):
            wave += np.float32(strength) * np.sin(
                math.tau * pitch * partial * (1 + detune) * time + phase * partial
            )
    return (wave * swell * np.float32(0.05 * (220 / max(pitch, 60)) ** 0.25)).astype(np.float32)


def _pluck(
    buffer: LoopBuffer,
    out: Array,
    rng: np.random.Generator,
    mood: AmbienceMood,
    second: float,
    seconds: float,
) -> None:
    beats = 4
    for beat in range(beats):
        if rng.random() > mood.plucks * 0.75:
            continue
        note = mood.root + 24 + mood.scale[int(rng.integers(len(mood.scale)))]
        shape = decay(1.5, 0.006)
        time = np.arange(shape.size, dtype=np.float32) / RATE
        pitch = _pitch(note)
        tone = np.sin(math.tau * pitch * time) + 0.3 * np.sin(math.tau * 2 * pitch * time) * np.exp(-time * 5)
        gain = float(rng.uniform(0.03, 0.07))
        buffer.put(
            out,
            (tone * shape * gain).astype(np.float32),
            second + beat * seconds / beats,
            float(rng.uniform(-0.5, 0.5)),
        )
