"""Measure inpainting of photographs without weights: the visible rim, and time.

.venv/bin/python -m bench inpaint

Photographs of scikit-image, none of which was used for tuning, at one megapixel. The rim is the step of the
mean color across the hole's edge, in the channel that differs most, averaged over sixteen parts of the
edge.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import skimage.data
from numpy.typing import NDArray

from bench.reporting import Row, calibration, of_samples
from sixfold.engines.image.inpaint import fill, masks
from sixfold.engines.image.inpaint.masks import MaskHole

Pixels = NDArray[Any]

TITLE = "Inpainting without weights, photographs of scikit-image"
# The name, and the ellipse of the hole: its center and radii, as shares of the sides.
HOLES = (
    ("rocket", (0.30, 0.25, 0.08, 0.12)),
    ("rocket", (0.62, 0.20, 0.05, 0.15)),
    ("camera", (0.80, 0.25, 0.08, 0.08)),
    ("coffee", (0.90, 0.80, 0.06, 0.12)),
    ("chelsea", (0.90, 0.15, 0.06, 0.10)),
    ("grass", (0.50, 0.50, 0.12, 0.12)),
)
_MEGAPIXEL = 1_000_000
_RING = 6
_SECTORS = 16


def photographs() -> Iterator[tuple[str, Pixels, MaskHole]]:
    for name, (across, down, wide, high) in HOLES:
        image = getattr(skimage.data, name)()
        rgb = np.dstack([image] * 3) if image.ndim == 2 else image[..., :3]
        scale = float(np.sqrt(_MEGAPIXEL / (rgb.shape[0] * rgb.shape[1])))
        rgb = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        height, width = rgb.shape[:2]
        mask = np.zeros((height, width), np.uint8)
        middle, radii = (
            (round(across * width), round(down * height)),
            (round(wide * width), round(high * height)),
        )
        cv2.ellipse(mask, middle, radii, 0, 0, 360, 1, -1)
        yield name, rgb, masks.make_hole(mask > 0, 4, 3)


def rim(result: Pixels, hole: MaskHole) -> float:
    """Return the mean step across the hole's edge, in levels."""
    return float(steps(result, hole).mean())


def steps(image: Pixels, hole: MaskHole) -> NDArray[Any]:
    """Return the step of the mean color across the hole's edge, in each part of the edge."""
    mask = hole.mask.astype(np.uint8)
    window = np.ones((2 * _RING + 1,) * 2, np.uint8)
    outer, inner = cv2.dilate(mask, window) - mask, mask - cv2.erode(mask, window)
    left, top, width, height = hole.box
    rows, columns = np.indices(mask.shape)
    angle = np.arctan2((rows - top - height / 2) / height, (columns - left - width / 2) / width)
    sector = ((angle + np.pi) / (2 * np.pi) * _SECTORS).astype(int) % _SECTORS
    result: list[float] = []
    for number in range(_SECTORS):
        means = [
            image[(ring > 0) & (sector == number)].astype(np.float64).reshape(-1, 3)
            for ring in (inner, outer)
        ]
        if all(len(values) for values in means):
            result.append(float(np.abs(means[0].mean(0) - means[1].mean(0)).max()))
    return np.array(result)


def rows() -> list[Row]:
    """Return the rim of each photograph, and the time relative to a fixed calibration task."""
    cv2.setNumThreads(1)
    result = calibration()
    times: list[float] = []
    for name, rgb, hole in photographs():
        began = time.process_time()
        filled = masks.blend(rgb, fill.fill_hole(rgb, hole), hole.cover)
        times.append(time.process_time() - began)
        result.append(
            Row(f"{name}: rim", rim(filled, hole), "levels", note=f"{rim(rgb, hole):.1f} in the photograph")
        )
    result.append(of_samples("CPU time per megapixel", times, "s"))
    work = [_fixed_work() for _ in range(3)]
    ratio = float(np.median(times)) / float(np.median(work))
    result.append(
        Row("the same, in transforms of a megapixel", ratio, "", note="one takes the calibration's time")
    )
    return result


def _fixed_work() -> float:
    values = np.random.default_rng(1).random((1024, 1024))
    began = time.process_time()
    np.fft.irfft2(np.fft.rfft2(values))
    return time.process_time() - began
