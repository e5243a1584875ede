"""The mixing desk: sounds at their places in time and space, a room around them, and the finished level."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sixfold.engines.audio.ambience import loudness
from sixfold.engines.audio.music.synthesis import RATE

Array = NDArray[Any]  # float32

CEILING = 0.82  # of full scale: what an MP3 or a converter adds between the samples still fits under 1 dB
_STEP = 64  # samples: the limiter's grid
_REACH = 24  # steps before and after a peak in which it is made room for
_LOUDNESS_PART = 40 * RATE
_EDGE = 0.004  # seconds


def silence(seconds: float) -> Array:
    """Two empty channels."""
    return np.zeros((2, round(seconds * RATE)), np.float32)


def put(target: Array, wave: Array, second: float, gain: float = 1.0, pan: float = 0.0) -> None:
    """Add a mono or stereo wave at a second, from left (-1) to right (1); what runs over the end is lost."""
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


def room(rng: np.random.Generator, seconds: float, bright: float, early: float = 0.012) -> Array:
    """A room as what it answers to a click: it dies in `seconds`, and is dull above `bright` Hz."""
    length = max(256, round(seconds * RATE))
    time = np.arange(length, dtype=np.float32) / RATE
    wave = rng.standard_normal((2, length)).astype(np.float32) * np.exp(-time * np.float32(6.9 / seconds))
    wave *= np.minimum(1, time / np.float32(early))
    spectrum = np.fft.rfft(wave, axis=1)
    frequency = np.fft.rfftfreq(length, 1 / RATE)
    spectrum *= 1 / (1 + (frequency / bright) ** 2) * (1 - np.exp(-((frequency / 160) ** 2)))
    wave = np.fft.irfft(spectrum, length, axis=1).astype(np.float32)
    return wave / np.float32(np.sqrt((wave * wave).sum() / 2))


def convolved(sound: Array, answer: Array) -> Array:
    """The sound in a room, as long as the sound; block by block, so that length costs no memory."""
    size = 1 << max(15, math.ceil(math.log2(2 * answer.shape[1])))
    step = size - answer.shape[1] + 1
    response = np.fft.rfft(answer, size, axis=1)
    out = np.zeros((2, sound.shape[1] + size), np.float32)
    for begin in range(0, sound.shape[1], step):
        part = np.fft.rfft(sound[:, begin : begin + step], size, axis=1)
        out[:, begin : begin + size] += np.fft.irfft(part * response, size, axis=1).astype(np.float32)
    return out[:, : sound.shape[1]]


def mastered(sound: Array, fade_seconds: float = 0.0) -> Array:
    """The sound at the level that streams have, without clicks at its ends, offset or overs."""
    out = sound - sound.mean(axis=1, keepdims=True)
    _faded(out, fade_seconds)
    for _ in range(2):
        found = _loudness(out)
        if found <= -69:
            return out
        out = _limited(out * np.float32(10 ** ((loudness.TARGET - found) / 20)))
    return out


def _faded(sound: Array, seconds: float) -> None:
    edge = min(sound.shape[1] // 2, round(_EDGE * RATE))
    if edge:
        sound[:, :edge] *= np.linspace(0, 1, edge, dtype=np.float32)
    count = min(sound.shape[1], max(edge, round(seconds * RATE)))
    if count:
        sound[:, -count:] *= np.cos(np.linspace(0, math.pi / 2, count)).astype(np.float32) ** 2


def _loudness(sound: Array) -> float:
    """The loudness in LUFS, of long sounds from their parts."""
    parts = max(1, round(sound.shape[1] / _LOUDNESS_PART))
    found = [loudness.integrated(part) for part in np.array_split(sound, parts, axis=1)]
    heard = [level for level in found if level > max(found) - 10]
    return 10 * math.log10(sum(10 ** (level / 10) for level in heard) / len(heard))


def _limited(sound: Array) -> Array:
    """No sample above the ceiling: the whole is turned down round a peak, smoothly and beforehand."""
    count = -(-sound.shape[1] // _STEP)
    padded = np.zeros((2, count * _STEP), np.float32)
    padded[:, : sound.shape[1]] = np.abs(sound)
    peaks = padded.reshape(2, count, _STEP).max((0, 2))
    wanted = np.minimum(1.0, CEILING / np.maximum(peaks, 1e-9))
    wide = np.pad(wanted, 2 * _REACH, constant_values=1.0)
    lowest = sliding_window_view(wide, 2 * _REACH + 1).min(1)
    window = np.hanning(2 * _REACH + 1)[1:-1]
    gain = np.convolve(lowest, window / window.sum(), "same")[_REACH:-_REACH]
    centres = (np.arange(count) + 0.5) * _STEP
    curve = np.interp(np.arange(sound.shape[1]), centres, gain).astype(np.float32)
    return np.clip(sound * curve, -CEILING, CEILING)
