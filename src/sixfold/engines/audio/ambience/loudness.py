"""Loudness measurement (ITU-R BS.1770-4) and normalization without clipping."""

from __future__ import annotations

import numpy as np

from sixfold.engines.audio.ambience.loop_buffer import RATE, Array

TARGET = -16.0  # LUFS, as usual for streaming
CEILING = 0.89  # 1 dB below full scale
_KNEE = 0.6
_BLOCK, _HOP = round(0.4 * RATE), round(0.1 * RATE)
_SILENT, _BELOW = -70.0, 10.0
# The two filters of K-weighting at 48 kHz, from the recommendation: numerators and denominators.
_FILTERS = (
    ((1.53512485958697, -2.69169618940638, 1.19839281085285), (1.0, -1.69065929318241, 0.73248077421585)),
    ((1.0, -2.0, 1.0), (1.0, -1.99004745483398, 0.99007225036621)),
)


def integrated(sound: Array) -> float:
    """Return the gated loudness of a looped stereo signal in LUFS."""
    weighted = _k_weight(sound)
    power = (weighted * weighted).sum(0)
    energy = np.concatenate([[0.0], np.cumsum(np.concatenate([power, power[:_BLOCK]]), dtype=np.float64)])
    starts = np.arange(0, sound.shape[1], _HOP)
    length = min(_BLOCK, sound.shape[1])
    blocks = (energy[starts + length] - energy[starts]) / length
    levels = _lufs(blocks)
    audible = blocks[levels > _SILENT]
    if not audible.size:
        return _SILENT
    audible = audible[_lufs(audible) > float(_lufs(audible.mean())) - _BELOW]
    return float(_lufs(audible.mean())) if audible.size else _SILENT


def _lufs(power: Array) -> Array:
    return -0.691 + 10 * np.log10(np.maximum(power, 1e-12))


def _k_weight(sound: Array) -> Array:
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(sound.shape[1], 1 / RATE) / RATE)
    response = np.ones_like(turn)
    for above, below in _FILTERS:
        response *= np.polynomial.polynomial.polyval(turn, above) / np.polynomial.polynomial.polyval(
            turn, below
        )
    return np.fft.irfft(np.fft.rfft(sound, axis=1) * response, sound.shape[1], axis=1)


def normalize(sound: Array, target: float = TARGET) -> Array:
    """Scale a signal to `target` LUFS, with soft clipping below the ceiling."""
    out = sound
    for _ in range(3):
        out = _soft_clip(out * np.float32(10 ** ((target - integrated(out)) / 20)))
    return out


def _soft_clip(sound: Array) -> Array:
    size = np.abs(sound)
    excess = np.maximum(size - np.float32(_KNEE), 0) / np.float32(CEILING - _KNEE)
    soft = np.float32(_KNEE) + np.float32(CEILING - _KNEE) * np.tanh(excess)
    return np.where(size > _KNEE, np.sign(sound) * soft, sound).astype(np.float32)
