"""A sound as a picture: bars from a line in the middle, what is loud bright, its peaks faint beyond."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_GROUND = ((18, 22, 40), (30, 27, 58))  # top and bottom
_LEFT, _RIGHT = (72, 213, 206), (178, 120, 255)
_BAR, _GAP = 3.0, 2.0  # pixels of a picture 1200 wide
_SHAPE = 0.24  # of the width
_FINE = 3  # times larger that it is drawn
_MARGIN = 0.10


def drawn(pieces: Iterable[Array], samples: int, width: int) -> Array:
    """The waveform of a sound of about so many samples, RGB, `width` pixels wide."""
    scale = max(0.25, width / 1200)
    count = max(4, int(width * (1 - 0.05) / ((_BAR + _GAP) * scale)))
    peaks, powers = _measured(pieces, samples, count)
    height = max(16, round(width * _SHAPE))
    canvas = _ground(width * _FINE, height * _FINE)
    top = float(peaks.max()) or 1.0
    for level, light in ((peaks / top, 0.34), (np.sqrt(powers) / top, 1.0)):
        canvas = _bars(canvas, level**0.8, light)
    return cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)


def _measured(pieces: Iterable[Array], samples: int, count: int) -> tuple[Array, Array]:
    """The highest sample and the mean power of each bar."""
    peaks, powers, seen = np.zeros(count), np.zeros(count), np.zeros(count)
    at = 0
    for piece in pieces:
        loud = np.abs(piece).max(0)
        place = np.minimum((at + np.arange(loud.size)) * count // max(1, samples), count - 1)
        np.maximum.at(peaks, place, loud)
        powers += np.bincount(place, (piece**2).mean(0), count)
        seen += np.bincount(place, minlength=count)
        at += loud.size
    return peaks, powers / np.maximum(seen, 1)


def _ground(width: int, height: int) -> Array:
    part = np.linspace(0, 1, height)[:, None, None]
    ramp = np.array(_GROUND[0]) * (1 - part) + np.array(_GROUND[1]) * part
    return np.ascontiguousarray(np.broadcast_to(ramp, (height, width, 3)).astype(np.uint8))


def _bars(canvas: Array, levels: Array, light: float) -> Array:
    """Round-ended bars about the middle, coloured from left to right; `light` is how much they cover."""
    height, width = canvas.shape[:2]
    cover = np.zeros((height, width), np.uint8)
    pitch = width * (1 - 0.05) / levels.size
    thick = max(1, round(pitch * _BAR / (_BAR + _GAP)))
    for index, level in enumerate(levels):
        x = round(width * 0.025 + (index + 0.5) * pitch)
        half = max(0, round(float(level) * height * (0.5 - _MARGIN)) - thick // 2)
        cv2.line(cover, (x, height // 2 - half), (x, height // 2 + half), 255, thick, cv2.LINE_AA)
    part = np.linspace(0, 1, width)[None, :, None]
    colour = np.array(_LEFT) * (1 - part) + np.array(_RIGHT) * part
    share = cover[..., None].astype(np.float32) / 255 * light
    return (canvas * (1 - share) + colour * share).astype(np.uint8)
