"""Common parts of the speech tests: a recording context and a measurement of pitch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Note:
    """A context that records progress and log lines."""

    def __init__(self, scratch: Path) -> None:
        scratch.mkdir(exist_ok=True)
        self.scratch = scratch
        self.lines: list[str] = []
        self.shares: list[float] = []

    def progress(self, fraction: float) -> None:
        """Remember it."""
        self.shares.append(fraction)

    def log(self, line: str) -> None:
        """Remember it."""
        self.lines.append(line)


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
