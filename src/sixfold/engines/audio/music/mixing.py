"""Mixing: placement in time and stereo, reverberation, and mastering."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sixfold.engines.audio.ambience import loudness
from sixfold.engines.audio.music.synthesis import RATE

Array = NDArray[Any]  # float32

# Below 1 dB under full scale, because MP3 encoding and conversion add peaks between the samples.
CEILING = 0.82
_STEP = 64  # samples per limiter step
_REACH = 24  # steps before and after a peak in which the gain is reduced
_LOUDNESS_PART = 40 * RATE
_EDGE = 0.004  # seconds


def silence(seconds: float) -> Array:
    """Return two silent channels."""
    return np.zeros((2, round(seconds * RATE)), np.float32)


def put(target: Array, wave: Array, second: float, gain: float = 1.0, pan: float = 0.0) -> None:
    """Add a mono or stereo wave at `second`, panned from left (-1) to right (1), cut at the target's end."""
    begin = round(second * RATE)
    if begin < 0:
        wave, begin = wave[..., -begin:], 0
    count = min(wave.shape[-1], target.shape[1] - begin)
    if count <= 0:
        return
    angle = (pan + 1) * math.pi / 4
    sides = np.array([[math.cos(angle)], [math.sin(angle)]], np.float32) * np.float32(gain)
    if wave.ndim > 1:
        sides *= np.float32(math.sqrt(2))
    target[:, begin : begin + count] += sides * wave[..., :count]


def reverb(rng: np.random.Generator, seconds: float, bright: float, early: float = 0.012) -> Array:
    """Return the impulse response of a room that decays in `seconds` and is damped above `bright` Hz."""
    length = max(256, round(seconds * RATE))
    time = np.arange(length, dtype=np.float32) / RATE
    wave = rng.standard_normal((2, length)).astype(np.float32) * np.exp(-time * np.float32(6.9 / seconds))
    wave *= np.minimum(1, time / np.float32(early))
    spectrum = np.fft.rfft(wave, axis=1)
    frequency = np.fft.rfftfreq(length, 1 / RATE)
    spectrum *= 1 / (1 + (frequency / bright) ** 2) * (1 - np.exp(-((frequency / 160) ** 2)))
    wave = np.fft.irfft(spectrum, length, axis=1).astype(np.float32)
    return wave / np.float32(np.sqrt((wave * wave).sum() / 2))


def convolve(sound: Array, impulse_response: Array) -> Array:
    """Convolve a signal with an impulse response in blocks of constant size; the length is unchanged."""
    size = 1 << max(15, math.ceil(math.log2(2 * impulse_response.shape[1])))
    step = size - impulse_response.shape[1] + 1
    response = np.fft.rfft(impulse_response, size, axis=1)
    out = np.zeros((2, sound.shape[1] + size), np.float32)
    for begin in range(0, sound.shape[1], step):
        part = np.fft.rfft(sound[:, begin : begin + step], size, axis=1)
        out[:, begin : begin + size] += np.fft.irfft(part * response, size, axis=1).astype(np.float32)
    return out[:, : sound.shape[1]]


def master(sound: Array, fade_seconds: float = 0.0) -> Array:
    """Normalize the loudness, remove the DC offset, fade the ends and limit the peaks."""
    out = sound - sound.mean(axis=1, keepdims=True)
    _fade(out, fade_seconds)
    for _ in range(2):
        measured = _loudness(out)
        if measured <= -69:
            return out
        out = _limit(out * np.float32(10 ** ((loudness.TARGET - measured) / 20)))
    return out


def _fade(sound: Array, seconds: float) -> None:
    edge = min(sound.shape[1] // 2, round(_EDGE * RATE))
    if edge:
        sound[:, :edge] *= np.linspace(0, 1, edge, dtype=np.float32)
    count = min(sound.shape[1], max(edge, round(seconds * RATE)))
    if count:
        sound[:, -count:] *= np.cos(np.linspace(0, math.pi / 2, count)).astype(np.float32) ** 2


def _loudness(sound: Array) -> float:
    """Return the loudness in LUFS; long signals are measured in parts."""
    parts = max(1, round(sound.shape[1] / _LOUDNESS_PART))
    levels = [loudness.integrated(part) for part in np.array_split(sound, parts, axis=1)]
    loud = [level for level in levels if level > max(levels) - 10]
    return 10 * math.log10(sum(10 ** (level / 10) for level in loud) / len(loud))


def _limit(sound: Array) -> Array:
    """Keep samples below the ceiling by reducing the gain smoothly around peaks."""
    count = -(-sound.shape[1] // _STEP)
    padded = np.zeros((2, count * _STEP), np.float32)
    padded[:, : sound.shape[1]] = np.abs(sound)
    peaks = padded.reshape(2, count, _STEP).max((0, 2))
    target = np.minimum(1.0, CEILING / np.maximum(peaks, 1e-9))
    wide = np.pad(target, 2 * _REACH, constant_values=1.0)
    lowest = sliding_window_view(wide, 2 * _REACH + 1).min(1)
    window = np.hanning(2 * _REACH + 1)[1:-1]
    gain = np.convolve(lowest, window / window.sum(), "same")[_REACH:-_REACH]
    centers = (np.arange(count) + 0.5) * _STEP
    curve = np.interp(np.arange(sound.shape[1]), centers, gain).astype(np.float32)
    return np.clip(sound * curve, -CEILING, CEILING)
