"""Measure the share of the subject that smart resize keeps, beside a center crop.

.venv/bin/python -m bench resize

120 composites with a known subject at any position, each resized to eight shapes. The figure is the share
of the subject's area that is still in the image, at the scale of the result.
"""

from __future__ import annotations

import time
from collections import Counter

import cv2
import numpy as np

from bench.reporting import Row, calibration, of_samples
from sixfold.engines.image.resize import canvas
from sixfold.engines.image.resize.plan import ResizePlan, find_region, plan
from tests.corpora import composites
from tests.corpora.composites import Stratum

TITLE = "Smart resize, 120 composites of 480 x 320 to eight shapes"
SHAPES = ((320, 320), (270, 480), (320, 400), (480, 270), (600, 200), (300, 250), (160, 600), (480, 360))
EACH, FIRST_SEED = 40, 70_000
GROUNDS: tuple[Stratum, ...] = ("plain", "textured", "shadow")


def retained_share(mask: np.ndarray, way: ResizePlan, size: tuple[int, int]) -> float:
    height, width = mask.shape
    left, top, right, bottom = way.box
    visible = canvas.apply(mask, way, size, fill=False)
    across, down = (right - left) * width, (bottom - top) * height
    if way.carved is not None:
        scale = (size[1] / down) ** 2 if way.across else (size[0] / across) ** 2
    elif way.method == "extend":
        scale = min(size[0] / across, size[1] / down) ** 2
    else:
        scale = size[0] / across * size[1] / down
    return min(1.0, float(visible.sum()) / (float(mask.sum()) * scale))


def center_crop(source: tuple[int, int], size: tuple[int, int]) -> ResizePlan:
    change = size[0] / size[1] * source[1] / source[0]
    half = min(change, 1 / change) / 2
    span = (0.5 - half, 0.0, 0.5 + half, 1.0) if change < 1 else (0.0, 0.5 - half, 1.0, 0.5 + half)
    return ResizePlan("crop", span)


def rows() -> list[Row]:
    """Return the shares of the subject that remain, the methods and the times."""
    cv2.setNumThreads(1)
    ours: list[float] = []
    theirs: list[float] = []
    looks: list[float] = []
    makes: list[float] = []
    methods: Counter[str] = Counter()
    for number in range(EACH * len(GROUNDS)):
        rng = np.random.default_rng([FIRST_SEED, number])
        known = composites.composite(
            FIRST_SEED + number, GROUNDS[number % 3], (320, 480), share=0.5, at=float(rng.uniform(0.2, 0.8))
        )
        began = time.perf_counter()
        seen = find_region(known.rgb)
        looks.append(time.perf_counter() - began)
        for size in SHAPES:
            began = time.perf_counter()
            way = plan(seen, (480, 320), size)
            canvas.apply(known.rgb, way, size)
            makes.append(time.perf_counter() - began)
            methods[way.method] += 1
            ours.append(retained_share(known.alpha, way, size))
            theirs.append(retained_share(known.alpha, center_crop((480, 320), size), size))
    text = ", ".join(f"{name} {count}" for name, count in methods.most_common())
    whole = f"complete subject (99 %) in {100 * np.mean(np.array(ours) > 0.99):.0f} % of the images; {text}"
    return [
        *calibration(),
        Row("subject kept by smart resize", 100 * float(np.mean(ours)), "%", note=whole),
        Row("subject kept by a center crop", 100 * float(np.mean(theirs)), "%"),
        of_samples("analysis of an image, faces included", looks, "ms"),
        of_samples("one size from the analysis", makes, "ms"),
    ]
