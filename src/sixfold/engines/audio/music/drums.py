"""Synthesis of single drum strokes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from sixfold.engines.audio.music import synthesis
from sixfold.engines.audio.music.synthesis import RATE, Array, Partials

PANS = {
    "hat": 0.3,
    "open": 0.3,
    "ride": -0.35,
    "shaker": -0.4,
    "rim": 0.2,
    "clap": 0.1,
    "brush": -0.15,
    "cymbal": 0.1,
}
LEVELS = {
    "kick": 1.0,
    "snare": 0.62,
    "hat": 0.22,
    "open": 0.24,
    "clap": 0.55,
    "rim": 0.42,
    "ride": 0.3,
    "shaker": 0.13,
    "brush": 0.3,
    "cymbal": 0.34,
    "timpani": 0.8,
}


def _time(seconds: float) -> Array:
    return np.arange(round(seconds * RATE), dtype=np.float32) / RATE


def _skin(high: float, low: float, fall: float, seconds: float) -> Array:
    """Synthesize a membrane whose pitch falls from `high` to `low` Hz."""
    time = _time(seconds)
    phase = math.tau * (low * time + (high - low) * fall * (1 - np.exp(-time / fall)))
    return (np.sin(phase) * synthesis.decay(time.size, seconds)).astype(np.float32)


def _hiss(rng: np.random.Generator, low: float, high: float, seconds: float) -> Array:
    length = round(seconds * 1.2 * RATE)
    return synthesis.band_noise(length, rng, low, high) * synthesis.decay(length, seconds)


def _mix(*waves: Array) -> Array:
    """Return the sum of waves that start at the same time."""
    out = np.zeros(max(wave.size for wave in waves), np.float32)
    for wave in waves:
        out[: wave.size] += wave
    return out


def kick(rng: np.random.Generator) -> Array:
    """Synthesize a bass drum."""
    return synthesis.rise(_mix(_skin(160, 48, 0.035, 0.42), 0.12 * _hiss(rng, 1500, 6000, 0.02)), 0.001)


def snare(rng: np.random.Generator) -> Array:
    return synthesis.rise(
        _mix(
            0.55 * _skin(250, 178, 0.02, 0.16),
            0.3 * _hiss(rng, 900, 9000, 0.24),
            0.2 * _skin(420, 330, 0.01, 0.1),
        ),
        0.001,
    )


def hat(rng: np.random.Generator) -> Array:
    """Synthesize a closed hi-hat."""
    return synthesis.rise(0.5 * _hiss(rng, 6500, 16000, 0.07), 0.0007)


def open_hat(rng: np.random.Generator) -> Array:
    """Synthesize an open hi-hat."""
    return synthesis.rise(0.45 * _hiss(rng, 6000, 16000, 0.4), 0.0007)


def clap(rng: np.random.Generator) -> Array:
    """Synthesize a hand clap."""
    wave = 0.5 * _hiss(rng, 900, 4500, 0.2)
    for delay in (0.011, 0.022):
        begin = round(delay * RATE)
        part = 0.5 * _hiss(rng, 900, 4500, 0.03)
        wave[begin : begin + part.size] += part
    return synthesis.rise(wave, 0.001)


def rim(rng: np.random.Generator) -> Array:
    """Synthesize a rim shot."""
    wood = synthesis.ring(
        Partials(
            np.array([830.0, 1710.0, 2450.0]),
            np.array([0.5, 0.35, 0.2]),
            np.array([0.09, 0.06, 0.04]),
            np.zeros(3),
        ),
        round(0.12 * RATE),
    )
    return synthesis.rise(_mix(wood, 0.15 * _hiss(rng, 2000, 8000, 0.02)), 0.0008)


def _metal(rng: np.random.Generator, seconds: float, low: float, high: float, share: float) -> Array:
    hertz = np.sort(rng.uniform(low, high, 42))
    partials = Partials(
        hertz,
        rng.uniform(0.2, 1.0, 42) / 12,
        seconds * rng.uniform(0.4, 1.0, 42),
        rng.uniform(0, math.tau, 42),
    )
    length = round(seconds * RATE)
    return synthesis.rise(
        _mix(
            share * synthesis.ring(partials, length),
            (1 - share) * 0.4 * _hiss(rng, high / 2, 15000, seconds * 0.7),
        ),
        0.001,
    )


def ride(rng: np.random.Generator) -> Array:
    """Synthesize a ride cymbal."""
    return _metal(rng, 1.1, 2800, 9500, 0.75)


def cymbal(rng: np.random.Generator) -> Array:
    """Synthesize a crash cymbal."""
    return _metal(rng, 2.2, 1800, 12000, 0.35)


def shaker(rng: np.random.Generator) -> Array:
    return synthesis.rise(0.6 * _hiss(rng, 4500, 12000, 0.09), 0.018)


def brush(rng: np.random.Generator) -> Array:
    """Synthesize a brush on a snare drum."""
    return synthesis.rise(0.5 * _hiss(rng, 1800, 8000, 0.16), 0.02)


def timpani(rng: np.random.Generator) -> Array:
    """Synthesize an untuned kettledrum."""
    return synthesis.rise(_mix(_skin(100, 82, 0.05, 1.3), 0.1 * _hiss(rng, 100, 700, 0.1)), 0.003)


STROKES: Mapping[str, Callable[[np.random.Generator], Array]] = {
    "kick": kick,
    "snare": snare,
    "hat": hat,
    "open": open_hat,
    "clap": clap,
    "rim": rim,
    "ride": ride,
    "cymbal": cymbal,
    "shaker": shaker,
    "brush": brush,
    "timpani": timpani,
}
