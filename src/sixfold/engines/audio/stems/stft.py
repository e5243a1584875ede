"""Short-time Fourier transform with exact reconstruction."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[Any]

SIZE, HOP = 4096, 1024
_WINDOW = np.sqrt(np.hanning(SIZE + 1)[:-1]).astype(np.float32)
# Normalizes the sum of the overlapping squared windows.
_GAIN = np.float32(HOP / (0.5 * SIZE))


def forward(sound: Array) -> Array:
    """Transform a signal (2, samples) to complex64 (2, frames, bins)."""
    padded = np.pad(sound, ((0, 0), (SIZE, 2 * SIZE)))
    return np.fft.rfft(sliding_window_view(padded, SIZE, axis=1)[:, ::HOP] * _WINDOW, axis=2)


def inverse(frames: Array, samples: int) -> Array:
    """Return the signal of a spectrum, float32 (2, samples)."""
    parts = np.fft.irfft(frames, SIZE, axis=2).astype(np.float32) * (_WINDOW * _GAIN)
    count = parts.shape[1]
    out = np.zeros((2, (count - 1) * HOP + SIZE), np.float32)
    # Frames at this distance do not overlap.
    for shift in range(SIZE // HOP):
        rows = parts[:, shift :: SIZE // HOP]
        flat = rows.reshape(2, -1)
        out[:, shift * HOP : shift * HOP + flat.shape[1]] += flat
    return out[:, SIZE : SIZE + samples]


def median(values: Array, width: int, axis: int) -> Array:
    """Return the running median along time (`axis` 0) or frequency (1); the edges are repeated."""
    rows = values if axis == 1 else values.T
    half = width // 2
    padded = np.pad(rows, ((0, 0), (half, half)), mode="edge")
    out = np.empty_like(rows)
    batch = max(1, 2_000_000 // (rows.shape[1] * width) or 1)
    for begin in range(0, rows.shape[0], batch):
        windows = sliding_window_view(padded[begin : begin + batch], width, axis=1)
        out[begin : begin + batch] = np.partition(windows, half, axis=2)[..., half]
    return out if axis == 1 else out.T
