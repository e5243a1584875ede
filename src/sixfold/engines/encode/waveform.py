"""Waveform images: bars around a center line, bright for the mean power and faint for the peaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_BACKGROUND = ((18, 22, 40), (30, 27, 58))  # top and bottom
_LEFT, _RIGHT = (72, 213, 206), (178, 120, 255)
_BAR, _GAP = 3.0, 2.0  # pixels at a width of 1200
_HEIGHT = 0.24  # as a fraction of the width
# The image is drawn at this multiple of its size and reduced.
_OVERSAMPLING = 3
_MARGIN = 0.10


def draw(pieces: Iterable[Array], samples: int, width: int) -> Array:
    """Return an RGB image, `width` pixels wide, of audio with about `samples` samples."""
    scale = max(0.25, width / 1200)
    count = max(4, int(width * (1 - 0.05) / ((_BAR + _GAP) * scale)))
    peaks, powers = _measure(pieces, samples, count)
    height = max(16, round(width * _HEIGHT))
    canvas = _gradient(width * _OVERSAMPLING, height * _OVERSAMPLING)
    top = float(peaks.max()) or 1.0
    for level, light in ((peaks / top, 0.34), (np.sqrt(powers) / top, 1.0)):
        canvas = _bars(canvas, level**0.8, light)
    return cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)


def _measure(pieces: Iterable[Array], samples: int, count: int) -> tuple[Array, Array]:
    peaks, powers, counts = np.zeros(count), np.zeros(count), np.zeros(count)
    position = 0
    for piece in pieces:
        levels = np.abs(piece).max(0)
        bars = np.minimum((position + np.arange(levels.size)) * count // max(1, samples), count - 1)
        np.maximum.at(peaks, bars, levels)
        powers += np.bincount(bars, (piece**2).mean(0), count)
        counts += np.bincount(bars, minlength=count)
        position += levels.size
    return peaks, powers / np.maximum(counts, 1)


def _gradient(width: int, height: int) -> Array:
    part = np.linspace(0, 1, height)[:, None, None]
    ramp = np.array(_BACKGROUND[0]) * (1 - part) + np.array(_BACKGROUND[1]) * part
    return np.ascontiguousarray(np.broadcast_to(ramp, (height, width, 3)).astype(np.uint8))


def _bars(canvas: Array, levels: Array, light: float) -> Array:
    """Draw bars with round ends and a horizontal color gradient; `light` is their opacity."""
    height, width = canvas.shape[:2]
    mask = np.zeros((height, width), np.uint8)
    pitch = width * (1 - 0.05) / levels.size
    thickness = max(1, round(pitch * _BAR / (_BAR + _GAP)))
    for index, level in enumerate(levels):
        x = round(width * 0.025 + (index + 0.5) * pitch)
        half = max(0, round(float(level) * height * (0.5 - _MARGIN)) - thickness // 2)
        cv2.line(mask, (x, height // 2 - half), (x, height // 2 + half), 255, thickness, cv2.LINE_AA)
    part = np.linspace(0, 1, width)[None, :, None]
    color = np.array(_LEFT) * (1 - part) + np.array(_RIGHT) * part
    share = mask[..., None].astype(np.float32) / 255 * light
    return (canvas * (1 - share) + color * share).astype(np.uint8)
