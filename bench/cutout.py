"""Measure video background removal without weights on videos whose alpha is known in every frame.

.venv/bin/python -m bench cutout

The videos combine three backgrounds with three camera movements and use seeds that were not used for
tuning. Overlap is the soft IoU, averaged over all frames. Flicker is the change of the mask between frames
beyond the change of the subject.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import cv2
import numpy as np

from bench.reporting import Row, calibration
from sixfold.engines.video.matting.masks import MaskTracker
from tests.corpora import moving
from tests.corpora.composites import Stratum
from tests.corpora.moving import Shot

TITLE = "Video background removal without weights, 45 videos of 288 x 216"
EACH, FIRST_SEED, FRAMES = 5, 91_000, 18
GROUNDS: tuple[Stratum, ...] = ("plain", "textured", "cluttered")
_HD = (720, 1280)


@dataclass(frozen=True, slots=True)
class Found:
    """Quality of a video's masks: mean and last overlap, flicker in thousandths, and reported confidence."""

    overlap: float
    flicker: float
    confidence: float


def measure(seed: int, ground: Stratum, shot: Shot) -> Found:
    """Cut out one video as the engine does, and return the quality of its masks."""
    masks = MaskTracker()
    frames = list(moving.film(seed, ground, shot, FRAMES))
    for rgb, _ in frames[: masks.ahead]:
        masks.preview(rgb)
    inputs = []
    for number, (rgb, _) in enumerate(frames):
        if number + masks.ahead < len(frames):
            masks.preview(frames[number + masks.ahead][0])
        inputs.append(masks.alpha(rgb))
    truth = [alpha for _, alpha in frames]
    overlaps = [
        np.minimum(one, true).sum() / np.maximum(one, true).sum()
        for one, true in zip(inputs, truth, strict=True)
    ]
    changes = zip(itertools.pairwise(inputs), itertools.pairwise(truth), strict=True)
    flicker = [np.abs((after - before) - (so - was)).mean() for (before, after), (was, so) in changes]
    return Found(float(np.mean(overlaps)), 1000 * float(np.mean(flicker)), masks.confidence)


def _speed() -> Row:
    masks = MaskTracker()
    frames = [rgb for rgb, _ in moving.film(FIRST_SEED, "textured", "standing", 13, _HD)]
    began = time.process_time()
    for rgb in frames:
        masks.alpha(rgb)
    return Row("a mask of 1280 x 720", (time.process_time() - began) / len(frames) * 1e3, "ms")


def rows() -> list[Row]:
    """Return the figures of each background and camera motion, and the error of the confidence."""
    cv2.setNumThreads(1)
    result = calibration()
    every: list[Found] = []
    for ground in GROUNDS:
        for shot in moving.SHOTS:
            here = [measure(seed, ground, shot) for seed in range(FIRST_SEED, FIRST_SEED + EACH)]
            every += here
            flicker = np.mean([one.flicker for one in here])
            least = min(one.overlap for one in here)
            note = f"least {100 * least:.0f}; flicker {flicker:.1f} ‰ of alpha"
            mean = 100 * float(np.mean([one.overlap for one in here]))
            result.append(Row(f"{ground}, {shot}: mean overlap", mean, "%", note=note))
    truth = np.array([one.overlap for one in every])
    response = np.array([one.confidence for one in every])
    note = f"correlation {np.corrcoef(truth, response)[0, 1]:.2f}"
    distance = 100 * float(np.abs(truth - response).mean())
    result.append(Row("confidence: mean distance from the overlap", distance, "%", note=note))
    return [*result, _speed()]
