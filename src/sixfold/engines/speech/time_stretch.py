"""Speech made longer or shorter without a change of pitch (WSOLA, Verhelst and Roelands 1993)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Wave = NDArray[np.float32]

_WINDOW_SECONDS = 0.03
_SEARCH_SECONDS = 0.008  # how far a piece may be moved to fit: more than half a period of a deep voice
_ENOUGH = 0.005  # a change smaller than this is left


def to_length(wave: Wave, samples: int, rate: int) -> Wave:
    """The wave at about `samples` samples, within a window."""
    window = round(_WINDOW_SECONDS * rate) // 2 * 2
    if wave.size <= 2 * window or samples <= window or abs(samples / wave.size - 1) < _ENOUGH:
        return wave
    hop, reach = window // 2, round(_SEARCH_SECONDS * rate)
    shape = np.hanning(window + 1)[:window].astype(np.float32)
    padded = np.pad(wave, (reach, reach + 2 * window))
    whole = np.rint(padded * 8_192).astype(np.int64)  # whole numbers add up to the same sum in any order
    step = hop * (wave.size - window) / max(1, samples - window)
    count = max(2, (samples - window) // hop + 1)
    out = np.zeros(count * hop + window, np.float32)
    at = reach
    for number in range(count):
        if number:
            wished = whole[at + hop : at + hop + window]
            around = round(number * step) + reach
            at = around - reach + _fit(whole[around - reach : around + reach + window], wished)
        piece = padded[at : at + window]
        out[number * hop : number * hop + piece.size] += shape[: piece.size] * piece
    return out


def _fit(field: NDArray[np.int64], wished: NDArray[np.int64]) -> int:
    """Where in `field` the piece lies that is most like `wished`."""
    likeness = np.correlate(field, wished, "valid")
    energy = np.cumsum(np.concatenate(([0], field * field)))
    power = energy[wished.size :] - energy[: -wished.size]
    return int(np.argmax(likeness / np.sqrt(power + 1)))
