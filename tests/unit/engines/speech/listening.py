"""Measure the pitch of synthesized speech."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pitch(wave: NDArray[Any], rate: int) -> float:
    """Return the median fundamental in Hz of the loud parts, by autocorrelation."""
    window = round(0.06 * rate)
    low, high = rate // 420, rate // 60
    loud = 0.7 * float(np.sqrt((wave**2).mean()))
    results: list[float] = []
    for at in range(0, wave.size - window, window // 2):
        part = wave[at : at + window] - wave[at : at + window].mean()
        if float(np.sqrt((part**2).mean())) < loud:
            continue
        likeness = np.fft.irfft(np.abs(np.fft.rfft(part, 4 * window)) ** 2)
        best = low + int(np.argmax(likeness[low:high]))
        if likeness[best] > 0.4 * likeness[0]:
            results.append(rate / best)
    return float(np.median(results))
