"""What a recording gets after it was spoken: warmth, less harshness, a little room, one loudness."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.engines.audio.ambience import loop_buffer, loudness

Wave = NDArray[np.float32]

TARGET = -18.0  # LUFS of a mono voice, heard as loud as -18 of stereo
SAMPLE_SECONDS = 20.0  # of the beginning, by which the loudness of the whole is set
TAIL_SECONDS = 0.06  # of the room, that a treated sentence is longer
_ROOM_SECONDS = 0.14
_ROOM_SHARE = 0.05
_FADE_SECONDS = 0.006
_SILENCE = 0.004


def treated(wave: Wave, rate: int, warmth: float) -> Wave:
    """A sentence with its edges faded, brought nearer to how a voice sounds in a small room."""
    if not wave.size:
        return wave
    tail = round(_ROOM_SECONDS * rate)
    size = 1 << int(np.ceil(np.log2(wave.size + tail)))
    hertz = np.fft.rfftfreq(size, 1 / rate)
    spectrum = np.fft.rfft(_faded(wave, rate), size) * _tone(hertz, warmth) * (1 + _room(size, rate))
    return np.fft.irfft(spectrum, size)[: wave.size + round(TAIL_SECONDS * rate)].astype(np.float32)


def trimmed(wave: Wave) -> Wave:
    """Without the silence before and after."""
    heard = np.flatnonzero(np.abs(wave) > _SILENCE)
    return wave[heard[0] : heard[-1] + 1] if heard.size else wave[:0]


def gain(sample: Wave, rate: int) -> float:
    """What brings a sample to the target loudness."""
    seconds = sample.size / rate
    times = np.arange(round(seconds * loop_buffer.RATE)) / loop_buffer.RATE
    even = np.interp(times, np.arange(sample.size) / rate, sample)
    if not even.size:
        return 1.0
    return round(float(10 ** ((TARGET - loudness.integrated(even[None])) / 20)), 4)


def levelled(wave: Wave, factor: float) -> Wave:
    """The wave times `factor`, with what would clip rounded off."""
    louder = wave * np.float32(factor)
    knee, ceiling = np.float32(0.6), np.float32(loudness.CEILING)
    over = np.maximum(np.abs(louder) - knee, 0) / (ceiling - knee)
    soft = np.sign(louder) * (knee + (ceiling - knee) * np.tanh(over))
    return np.where(np.abs(louder) > knee, soft, louder).astype(np.float32)


def _faded(wave: Wave, rate: int) -> Wave:
    edge = min(wave.size // 2, round(_FADE_SECONDS * rate))
    out = wave.copy()
    if edge:
        ramp = np.linspace(0, 1, edge, dtype=np.float32)
        out[:edge] *= ramp
        out[-edge:] *= ramp[::-1]
    return out


def _tone(hertz: NDArray[Any], warmth: float) -> NDArray[Any]:
    """Gains: no rumble, a warm bottom, a dip where formant synthesis is harsh, a softer top."""
    octave = np.log2(np.maximum(hertz, 1.0))
    low = 1 / (1 + np.exp((octave - np.log2(350)) * 4))
    high = 1 / (1 + np.exp((np.log2(4_000) - octave) * 4))
    dip = np.exp(-(((octave - np.log2(3_100)) / 0.35) ** 2))
    decibels = warmth * low - (1.0 + warmth / 2) * high - 2.5 * dip
    return 10 ** (decibels / 20) / np.sqrt(1 + (65 / np.maximum(hertz, 1.0)) ** 4)


def _room(size: int, rate: int) -> NDArray[Any]:
    """The spectrum of a small room's reflections, the same every time."""
    count = round(_ROOM_SECONDS * rate)
    seconds = np.arange(count) / rate
    noise = np.random.default_rng(6).standard_normal(count)
    echoes = noise * np.exp(-seconds * 6.9 / _ROOM_SECONDS) * np.minimum(1, seconds / 0.009)
    spectrum = np.fft.rfft(echoes, size)
    hertz = np.fft.rfftfreq(size, 1 / rate)
    return spectrum * (_ROOM_SHARE / np.sqrt((echoes**2).sum())) / (1 + (hertz / 3_000) ** 2)
