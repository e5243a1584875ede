"""Instruments as additive synthesis: partials, envelopes and noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from sixfold.engines.audio.music import synthesis
from sixfold.engines.audio.music.synthesis import RATE, Array, Partials

_SUSTAINED = 1e4  # seconds
_MAX_PARTIALS = 28


def _saw(number: Array) -> Array:
    return 1 / number**1.15


def _square(number: Array) -> Array:
    return np.where(number % 2 == 1, 1 / number**1.3, 0.02 / number)


def _soft(number: Array) -> Array:
    return 1 / number**2


def _reed(number: Array) -> Array:
    return np.where(number % 2 == 1, 1 / number**0.8, 0.35 / number**0.8)


def _organ(number: Array) -> Array:
    return np.where(np.isin(number, (1, 2, 3, 4, 6, 8)), 1 / number**0.8, 0.0)


def _plucked(number: Array) -> Array:
    return np.abs(np.sin(math.pi * number * 0.19)) / number**1.7


def _hammered(number: Array) -> Array:
    return np.abs(np.sin(math.pi * number * 0.12)) / number**1.9


def _hollow(number: Array) -> Array:
    return np.where(number == 1, 1.0, 0.22 / number**1.2)


def _formants(number: Array) -> Array:
    return 1 / number**1.2


class InstrumentVoice(msgspec.Struct, frozen=True):
    """The parameters of an instrument.

    `cut` is the low-pass corner as a multiple of the pitch (plus 300 Hz). `life` is the decay in seconds of a
    note of 220 Hz (0 for sustained notes), and `damp` shortens the decay of higher partials. `cents` are the
    offsets of detuned unison voices, `ratios` replace harmonic partials, and `vibrato` is in cents.
    """

    law: Callable[[Array], Array]
    cut: float = 6.0
    life: float = 0.0
    damp: float = 0.15
    attack: float = 0.01
    release: float = 0.12
    cents: tuple[float, ...] = (0.0,)
    ratios: tuple[float, ...] = ()
    formants: tuple[float, ...] = ()
    vibrato: float = 0.0
    breath: float = 0.0
    drive: float = 0.0
    level: float = 1.0
    wet: float = 0.25
    low: int = 24
    high: int = 96


_PAIR = (-4.0, 4.0)
_MANY = (-9.0, -4.0, 0.0, 5.0, 10.0)
VOICES: Mapping[str, InstrumentVoice] = {
    "keys": InstrumentVoice(_hammered, 9, 5.0, 0.25, 0.003, 0.14, (-0.8, 0.9), level=1.0, wet=0.2),
    "electric-piano": InstrumentVoice(_hollow, 5, 4.0, 0.4, 0.004, 0.16, _PAIR, level=0.95, wet=0.2),
    "guitar": InstrumentVoice(_plucked, 9, 3.2, 0.35, 0.002, 0.12, (-1.0, 1.5), level=1.0, wet=0.2),
    "clav": InstrumentVoice(_plucked, 14, 1.2, 0.3, 0.001, 0.04, level=0.9, wet=0.1),
    "crunch": InstrumentVoice(_saw, 5, 0, 0, 0.004, 0.06, (-5, 5), drive=3.0, level=0.5, wet=0.12),
    "drive-lead": InstrumentVoice(
        _saw, 6, 0, 0, 0.012, 0.16, (-2, 3), drive=4.0, vibrato=14, level=0.55, wet=0.25
    ),
    "organ": InstrumentVoice(_organ, 8, 0, 0, 0.008, 0.06, (-2, 2), level=0.6, wet=0.2),
    "accordion": InstrumentVoice(_reed, 8, 0, 0, 0.03, 0.08, (-7, 0, 7), level=0.55, wet=0.2),
    "melodica": InstrumentVoice(_reed, 7, 0, 0, 0.03, 0.09, breath=0.02, level=0.7, wet=0.3),
    "warm": InstrumentVoice(_saw, 1.6, 0, 0, 0.25, 0.5, _MANY, level=0.6, wet=0.35),
    "glass": InstrumentVoice(_soft, 3, 0, 0, 0.9, 1.6, _MANY, breath=0.01, level=0.7, wet=0.5),
    "strings": InstrumentVoice(_saw, 2.6, 0, 0, 0.16, 0.4, _MANY, level=0.6, wet=0.4),
    "short-strings": InstrumentVoice(_saw, 3.5, 0.9, 0.1, 0.02, 0.12, _MANY, level=0.8, wet=0.4),
    "low-strings": InstrumentVoice(_saw, 3.2, 0, 0, 0.07, 0.25, (-5, 0, 5), level=0.8, wet=0.3, high=60),
    "horn": InstrumentVoice(
        _formants, 3.2, 0, 0, 0.06, 0.2, (-4, 0, 4), (), (500, 1100), 9, level=0.9, wet=0.4
    ),
    "brass": InstrumentVoice(_saw, 5, 0, 0, 0.03, 0.09, (-4, 4), (), (900, 1700), 10, level=0.7, wet=0.25),
    "sax": InstrumentVoice(
        _saw, 5, 0, 0, 0.03, 0.1, (), (), (620, 1500, 2600), 16, 0.02, level=0.8, wet=0.25
    ),
    "flute": InstrumentVoice(_soft, 4, 0, 0, 0.05, 0.12, (0.0,), (), (), 14, 0.04, level=1.0, wet=0.35),
    "fiddle": InstrumentVoice(
        _saw, 4, 0, 0, 0.05, 0.14, (-1.5, 1.5), (), (500, 1000, 2900), 18, level=0.75, wet=0.3
    ),
    "voices": InstrumentVoice(
        _formants, 4, 0, 0, 0.12, 0.3, _MANY, (), (700, 1150, 2800), 12, 0.015, level=0.8, wet=0.45
    ),
    "bells": InstrumentVoice(
        _soft, 20, 4.5, 0.5, 0.001, 1.2, (0.0,), (1.0, 2.0, 2.76, 4.07, 5.4), level=0.8, wet=0.45
    ),
    "pluck-lead": InstrumentVoice(_plucked, 8, 1.6, 0.3, 0.002, 0.15, _PAIR, level=1.0, wet=0.35),
    "bright-lead": InstrumentVoice(_square, 5, 0, 0, 0.012, 0.12, _PAIR, vibrato=8, level=0.55, wet=0.3),
    "soft-lead": InstrumentVoice(_soft, 4, 0, 0, 0.18, 0.8, _PAIR, vibrato=8, level=0.8, wet=0.55),
    "saw-lead": InstrumentVoice(_saw, 4.5, 0, 0, 0.006, 0.12, (-8, -3, 3, 8), level=0.5, wet=0.3),
    "stab": InstrumentVoice(_saw, 4, 0.7, 0.1, 0.003, 0.08, (-9, 0, 9), level=0.8, wet=0.3),
    "round-bass": InstrumentVoice(_soft, 4, 3.0, 0.3, 0.006, 0.07, level=1.25, wet=0.02, high=55),
    "pick-bass": InstrumentVoice(_plucked, 6, 2.4, 0.3, 0.003, 0.06, level=1.3, wet=0.03, high=55),
    "upright": InstrumentVoice(_plucked, 3.5, 1.6, 0.4, 0.008, 0.1, level=1.35, wet=0.08, high=55),
    "synth-bass": InstrumentVoice(
        _saw, 2.4, 0.9, 0.1, 0.003, 0.05, (-3, 3), drive=1.2, level=0.85, wet=0.02, high=55
    ),
    "sub": InstrumentVoice(_soft, 2, 0, 0, 0.012, 0.09, drive=0.6, level=1.2, wet=0.02, high=52),
    "square-bass": InstrumentVoice(_square, 6, 0, 0, 0.002, 0.02, level=0.6, wet=0.0, high=60),
    "square": InstrumentVoice(_square, 10, 0, 0, 0.002, 0.02, level=0.45, wet=0.0),
    "square-lead": InstrumentVoice(_square, 12, 0, 0, 0.002, 0.03, vibrato=10, level=0.55, wet=0.0),
}


def synthesize(
    voice: InstrumentVoice, pitch: int, loudness: float, seconds: float, rng: np.random.Generator
) -> Array:
    """Return a note, mono or stereo, with its release, at about the same level for all instruments."""
    sustain_samples = max(64, round(seconds * RATE))
    length = sustain_samples + round(voice.release * RATE)
    wave = synthesis.ring(_partials(voice, pitch, loudness, rng), length)
    if voice.vibrato:
        wave = _with_vibrato(wave, voice.vibrato)
    if voice.breath:
        hertz = synthesis.pitch_hertz(pitch)
        wave = wave + synthesis.band_noise(length, rng, hertz, 4 * hertz) * np.float32(voice.breath)
    if voice.drive:
        wave = np.tanh(wave * np.float32(1.5 * voice.drive)) / np.float32(math.sqrt(1 + voice.drive))
    wave = synthesis.rise(wave, min(voice.attack, seconds / 2))
    return synthesis.release(wave, sustain_samples, voice.release) * np.float32(voice.level)


def _partials(voice: InstrumentVoice, pitch: int, loudness: float, rng: np.random.Generator) -> Partials:
    base = synthesis.pitch_hertz(pitch)
    count = int(np.clip(15_000 / base, 1, _MAX_PARTIALS))
    number = np.array(voice.ratios) if voice.ratios else np.arange(1.0, count + 1)
    strength = voice.law(number)
    edge = (base * voice.cut + 300) * (0.6 + 0.7 * loudness)
    hertz = base * number
    strength = strength / np.sqrt(1 + (hertz / edge) ** 4)
    if voice.formants:
        strength = strength * (0.25 + sum(np.exp(-(((hertz - f) / (0.2 * f)) ** 2)) for f in voice.formants))
    strength = strength / max(1e-9, math.sqrt(float((strength**2).sum())))
    cents = np.array(voice.cents or (0.0,))
    all_hertz = (hertz[:, None] * 2 ** (cents / 1200)[None]).ravel()
    strengths = np.repeat(strength, cents.size) / math.sqrt(cents.size) * 0.3
    life = np.full(all_hertz.size, _SUSTAINED)
    if voice.life:
        life = voice.life * (220 / base) ** 0.45 / (1 + voice.damp * (all_hertz / base - 1))
    if cents.size < 3:
        return Partials(all_hertz, strengths, life, rng.uniform(0, math.tau, all_hertz.size))
    pan = np.tile(np.linspace(-0.7, 0.7, cents.size), strength.size)
    sides = strengths[None] * np.sqrt(1 + np.array([[-1.0], [1.0]]) * pan[None])
    return Partials(all_hertz, sides, life, rng.uniform(0, math.tau, all_hertz.size))


def _with_vibrato(wave: Array, cents: float) -> Array:
    time = np.arange(wave.shape[-1]) / RATE
    depth = cents / 1200 * math.log(2) / (math.tau * 5.3) * np.clip((time - 0.12) / 0.35, 0, 1)
    position = np.arange(wave.shape[-1]) + depth * np.sin(math.tau * 5.3 * time) * RATE
    if wave.ndim == 1:
        return np.interp(position, np.arange(wave.size), wave).astype(np.float32)
    return np.stack([np.interp(position, np.arange(side.size), side) for side in wave]).astype(np.float32)
