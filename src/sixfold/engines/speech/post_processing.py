"""Post-processing of synthesized speech: equalization, slight reverberation and loudness."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.engines.audio.ambience import loop_buffer, loudness

Wave = NDArray[np.float32]

TARGET = -18.0  # LUFS
# The gain of a recording is determined by this much of its beginning.
SAMPLE_SECONDS = 20.0
# The reverberation that processing adds to the end of a sentence.
TAIL_SECONDS = 0.06
_REVERB_SECONDS = 0.14
_REVERB_SHARE = 0.05
_FADE_SECONDS = 0.006
_SILENCE = 0.004


def process(wave: Wave, rate: int, warmth: float) -> Wave:
    """Fade the edges of a sentence, equalize it and add the reverberation of a small room."""
    if not wave.size:
        return wave
    tail = round(_REVERB_SECONDS * rate)
    size = 1 << int(np.ceil(np.log2(wave.size + tail)))
    hertz = np.fft.rfftfreq(size, 1 / rate)
    spectrum = np.fft.rfft(_fade_edges(wave, rate), size) * _tone(hertz, warmth) * (1 + _reverb(size, rate))
    return np.fft.irfft(spectrum, size)[: wave.size + round(TAIL_SECONDS * rate)].astype(np.float32)


def trim(wave: Wave) -> Wave:
    """Remove leading and trailing silence."""
    audible = np.flatnonzero(np.abs(wave) > _SILENCE)
    return wave[audible[0] : audible[-1] + 1] if audible.size else wave[:0]


def gain(sample: Wave, rate: int) -> float:
    """Return the factor that brings a sample to the target loudness."""
    seconds = sample.size / rate
    times = np.arange(round(seconds * loop_buffer.RATE)) / loop_buffer.RATE
    resampled = np.interp(times, np.arange(sample.size) / rate, sample)
    if not resampled.size:
        return 1.0
    return round(float(10 ** ((TARGET - loudness.integrated(resampled[None])) / 20)), 4)


def apply_gain(wave: Wave, factor: float) -> Wave:
    """Multiply the wave by `factor`, with soft clipping."""
    scaled = wave * np.float32(factor)
    knee, ceiling = np.float32(0.6), np.float32(loudness.CEILING)
    excess = np.maximum(np.abs(scaled) - knee, 0) / (ceiling - knee)
    soft = np.sign(scaled) * (knee + (ceiling - knee) * np.tanh(excess))
    return np.where(np.abs(scaled) > knee, soft, scaled).astype(np.float32)


def _fade_edges(wave: Wave, rate: int) -> Wave:
    edge = min(wave.size // 2, round(_FADE_SECONDS * rate))
    out = wave.copy()
    if edge:
        ramp = np.linspace(0, 1, edge, dtype=np.float32)
        out[:edge] *= ramp
        out[-edge:] *= ramp[::-1]
    return out


def _tone(hertz: NDArray[Any], warmth: float) -> NDArray[Any]:
    """Return gains that cut rumble, raise low frequencies, and soften the synthesizer's harsh frequencies."""
    octave = np.log2(np.maximum(hertz, 1.0))
    low = 1 / (1 + np.exp((octave - np.log2(350)) * 4))
    high = 1 / (1 + np.exp((np.log2(4_000) - octave) * 4))
    dip = np.exp(-(((octave - np.log2(3_100)) / 0.35) ** 2))
    decibels = warmth * low - (1.0 + warmth / 2) * high - 2.5 * dip
    return 10 ** (decibels / 20) / np.sqrt(1 + (65 / np.maximum(hertz, 1.0)) ** 4)


def _reverb(size: int, rate: int) -> NDArray[Any]:
    """Return the spectrum of a small room's reflections, which is deterministic."""
    count = round(_REVERB_SECONDS * rate)
    seconds = np.arange(count) / rate
    noise = np.random.default_rng(6).standard_normal(count)
    echoes = noise * np.exp(-seconds * 6.9 / _REVERB_SECONDS) * np.minimum(1, seconds / 0.009)
    spectrum = np.fft.rfft(echoes, size)
    hertz = np.fft.rfftfreq(size, 1 / rate)
    return spectrum * (_REVERB_SHARE / np.sqrt((echoes**2).sum())) / (1 + (hertz / 3_000) ** 2)
