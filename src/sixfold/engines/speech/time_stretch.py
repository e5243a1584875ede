"""Time stretching of speech without a change of pitch (WSOLA, Verhelst and Roelands 1993)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Wave = NDArray[np.float32]

_WINDOW_SECONDS = 0.03
# A piece may be shifted by this much to match: more than half a period of a deep voice.
_SEARCH_SECONDS = 0.008
# Relative changes of the length below this value are not applied.
_MIN_CHANGE = 0.005


def to_length(wave: Wave, samples: int, rate: int) -> Wave:
    """Stretch the wave to about `samples` samples, within a window of 30 ms."""
    window = round(_WINDOW_SECONDS * rate) // 2 * 2
    if wave.size <= 2 * window or samples <= window or abs(samples / wave.size - 1) < _MIN_CHANGE:
        return wave
    hop, reach = window // 2, round(_SEARCH_SECONDS * rate)
    envelope = np.hanning(window + 1)[:window].astype(np.float32)
    padded = np.pad(wave, (reach, reach + 2 * window))
    # Sums of integers do not depend on their order, which keeps the result reproducible.
    integers = np.rint(padded * 8_192).astype(np.int64)
    step = hop * (wave.size - window) / max(1, samples - window)
    count = max(2, (samples - window) // hop + 1)
    out = np.zeros(count * hop + window, np.float32)
    position = reach
    for number in range(count):
        if number:
            target = integers[position + hop : position + hop + window]
            center = round(number * step) + reach
            position = (
                center - reach + _best_offset(integers[center - reach : center + reach + window], target)
            )
        piece = padded[position : position + window]
        out[number * hop : number * hop + piece.size] += envelope[: piece.size] * piece
    return out


def _best_offset(field: NDArray[np.int64], target: NDArray[np.int64]) -> int:
    """Return the offset in `field` of the piece most similar to `target`."""
    similarity = np.correlate(field, target, "valid")
    energy = np.cumsum(np.concatenate(([0], field * field)))
    power = energy[target.size :] - energy[: -target.size]
    return int(np.argmax(similarity / np.sqrt(power + 1)))
