"""Short-time spectra: a sound as overlapping moments and back, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[Any]

SIZE, HOP = 4096, 1024
_WINDOW = np.sqrt(np.hanning(SIZE + 1)[:-1]).astype(np.float32)
_GAIN = np.float32(HOP / (0.5 * SIZE))  # what overlapping squares of the window add up to


def spectra(sound: Array) -> Array:
    """(2, samples) as complex64 (2, moments, frequencies)."""
    padded = np.pad(sound, ((0, 0), (SIZE, 2 * SIZE)))
    return np.fft.rfft(sliding_window_view(padded, SIZE, axis=1)[:, ::HOP] * _WINDOW, axis=2)


def sound(moments: Array, samples: int) -> Array:
    """The way back: float32 (2, samples)."""
    parts = np.fft.irfft(moments, SIZE, axis=2).astype(np.float32) * (_WINDOW * _GAIN)
    count = parts.shape[1]
    out = np.zeros((2, (count - 1) * HOP + SIZE), np.float32)
    for shift in range(SIZE // HOP):  # moments this far apart do not overlap
        rows = parts[:, shift :: SIZE // HOP]
        flat = rows.reshape(2, -1)
        out[:, shift * HOP : shift * HOP + flat.shape[1]] += flat
    return out[:, SIZE : SIZE + samples]


def median(values: Array, width: int, axis: int) -> Array:
    """The running median along time (0) or frequency (1), the edges held; a few rows at a time."""
    moved = values if axis == 1 else values.T
    half = width // 2
    padded = np.pad(moved, ((0, 0), (half, half)), mode="edge")
    out = np.empty_like(moved)
    each = max(1, 2_000_000 // (moved.shape[1] * width) or 1)
    for begin in range(0, moved.shape[0], each):
        windows = sliding_window_view(padded[begin : begin + each], width, axis=1)
        out[begin : begin + each] = np.partition(windows, half, axis=2)[..., half]
    return out if axis == 1 else out.T
