"""Measurements of audio (key, tempo, brightness), and a context for engines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Canceled

Array = NDArray[Any]
RATE = 48_000
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
# How well listeners find each step of a scale to fit a key (Krumhansl and Kessler, 1982).
_MAJOR = np.array([6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88])
_MINOR = np.array([6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17])
_SIZE = 16_384


@dataclass
class Recorder:
    """A context that records progress and can cancel at a fraction."""

    scratch: Path
    cancel_at: float = 2.0
    fractions: list[float] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)
        if fraction >= self.cancel_at:
            raise Canceled

    def log(self, line: str) -> None:
        self.logs.append(line)


def chroma(sound: Array) -> Array:
    """Return the power of each pitch class between 60 and 2000 Hz."""
    mono = np.pad(sound.mean(0), (0, max(0, _SIZE - sound.shape[1])))
    frequency = np.fft.rfftfreq(_SIZE, 1 / RATE)
    inside = (frequency > 60) & (frequency < 2000)
    classes = np.round(69 + 12 * np.log2(frequency[inside] / 440)).astype(int) % 12
    moments = np.lib.stride_tricks.sliding_window_view(mono, _SIZE)[:: _SIZE // 2] * np.hanning(_SIZE)
    return np.bincount(classes, np.abs(np.fft.rfft(moments, axis=1))[:, inside].sum(0), 12)


def key(sound: Array) -> str:
    """Return the key whose profile fits best, such as `D` or `Dm`."""
    result = chroma(sound)
    fits = {
        f"{NAMES[tonic]}{mode}": float(np.corrcoef(np.roll(profile, tonic), result)[0, 1])
        for tonic in range(12)
        for profile, mode in ((_MAJOR, ""), (_MINOR, "m"))
    }
    return max(fits, key=lambda name: fits[name])


def onsets(sound: Array) -> tuple[Array, float]:
    """Return the onset strength over time, and its sample rate."""
    hop, size = 256, 1024
    moments = np.lib.stride_tricks.sliding_window_view(sound.mean(0), size)[::hop] * np.hanning(size)
    level = np.log1p(100 * np.abs(np.fft.rfft(moments, axis=1)))
    rising = np.maximum(np.diff(level, axis=0), 0).sum(1)
    return rising - rising.mean(), RATE / hop


def tempo(sound: Array, near: float) -> float:
    """Return the tempo by the autocorrelation of onsets, four beats apart, within 7 % of `near`."""
    rising, rate = onsets(sound)
    size = 1 << int(np.ceil(np.log2(2 * rising.size)))
    alike = np.fft.irfft(np.abs(np.fft.rfft(rising, size)) ** 2)[: rising.size]
    lag = 60 / near * rate * 4
    lags = np.arange(int(lag * 0.93), int(lag * 1.07) + 1)
    best = int(lags[np.argmax(alike[lags])])
    before, at, after = alike[best - 1 : best + 2]
    return 240 * rate / (best + (before - after) / (2 * (before - 2 * at + after)))


def centroid(sound: Array) -> float:
    """Return the spectral centroid in Hz."""
    size = np.abs(np.fft.rfft(sound.mean(0)))
    return float((np.fft.rfftfreq(sound.shape[1], 1 / RATE) * size).sum() / size.sum())


def true_peak(sound: Array) -> float:
    """Return the true peak in dB of full scale."""
    part = sound[:, : 8 * RATE]
    fine = np.fft.irfft(np.fft.rfft(part, axis=1), part.shape[1] * 4, axis=1) * 4
    return float(20 * np.log10(np.abs(fine[:, 400:-400]).max()))


def correlation(first: Array, second: Array) -> float:
    """Return the correlation of two signals over the length of the shorter one."""
    length = min(first.shape[1], second.shape[1])
    return float(np.corrcoef(first[:, :length].ravel(), second[:, :length].ravel())[0, 1])
