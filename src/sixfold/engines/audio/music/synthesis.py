"""Additive synthesis of decaying partials by one matrix multiplication per note.

A partial is z to the power of the sample index. With the index written as 512 a + b, its samples are the
outer product of two short vectors, and the sum over the partials is a product of two small matrices.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float32

RATE = 48_000
_BLOCK = 512
_SILENT = 6.9  # e**-6.9 is a thousandth
_HIGHEST = 17_000.0  # Hz
# Results are rounded to this many steps per unit, because their last bits depend on the number of threads.
_STEPS = 2.0**20


class Partials(msgspec.Struct, frozen=True):
    """Frequency in Hz, strength, decay to a thousandth in seconds, and phase in radians of each partial."""

    hertz: Array
    strength: Array
    seconds: Array
    phase: Array


def pitch_hertz(pitch: float) -> float:
    """Return the frequency in Hz of a MIDI pitch."""
    return 440.0 * 2 ** ((pitch - 69) / 12)


def ring(partials: Partials, length: int) -> Array:
    """Return `length` samples of the sum of partials, mono, or stereo if `strength` has two rows."""
    audible = partials.hertz < _HIGHEST
    hertz, seconds = partials.hertz[audible], partials.seconds[audible]
    strength = np.atleast_2d(partials.strength)[:, audible]
    phase = np.atleast_2d(partials.phase)[:, audible]
    turn = (-_SILENT / np.maximum(seconds, 1e-3) + 2j * math.pi * hertz) / RATE
    blocks = -(-length // _BLOCK)
    outer = _parts(np.exp(np.arange(blocks)[:, None] * (turn * _BLOCK)[None]), -1)
    inner = np.exp(turn[:, None] * np.arange(_BLOCK)[None])
    sides = [
        (outer @ _parts((side * np.exp(1j * around))[:, None] * inner, 1, axis=0)).reshape(-1)[:length]
        for side, around in zip(strength, np.broadcast_to(phase, strength.shape), strict=True)
    ]
    signal = np.stack(sides) if len(sides) > 1 else sides[0]
    return (np.rint(signal * _STEPS) / _STEPS).astype(np.float32)


def _parts(values: NDArray[np.complex128], sign: int, axis: int = 1) -> Array:
    """Concatenate real and imaginary parts; a real product then returns the real part of the product."""
    return np.concatenate([values.real, sign * values.imag], axis=axis)


def rise(wave: Array, seconds: float) -> Array:
    """Return the wave with a soft attack of `seconds`."""
    count = min(wave.shape[-1], max(2, round(seconds * RATE)))
    shape = (0.5 - 0.5 * np.cos(np.linspace(0, math.pi, count))).astype(np.float32)
    out = wave.copy()
    out[..., :count] *= shape
    return out


def release(wave: Array, sustain: int, seconds: float) -> Array:
    """Return the wave released after `sustain` samples, fading out in `seconds`."""
    end = min(wave.shape[-1], sustain + round(seconds * RATE))
    out = wave[..., :end].copy()
    count = end - sustain
    if count > 0:
        shape = np.exp(-np.arange(count, dtype=np.float32) * np.float32(5.0 / (seconds * RATE)))
        out[..., sustain:] *= shape * np.linspace(1, 0, count, dtype=np.float32) ** np.float32(0.5)
    return out


def band_noise(length: int, rng: np.random.Generator, low: float, high: float) -> Array:
    """Return noise between two frequencies in Hz with an RMS of 1."""
    size = max(64, length)
    spectrum = np.fft.rfft(rng.standard_normal(size).astype(np.float32))
    frequency = np.maximum(np.fft.rfftfreq(size, 1 / RATE), 1.0)
    spectrum *= 1 / np.sqrt(1 + (low / frequency) ** 4) / np.sqrt(1 + (frequency / high) ** 4)
    wave = np.fft.irfft(spectrum, size)[:length].astype(np.float32)
    return wave / np.float32(max(float(np.sqrt((wave * wave).mean())), 1e-9))


def decay(length: int, seconds: float) -> Array:
    """Return an envelope that decays to a thousandth in `seconds`."""
    return np.exp(np.arange(length, dtype=np.float32) * np.float32(-_SILENT / (seconds * RATE)))
