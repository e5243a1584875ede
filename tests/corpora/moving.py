"""Videos with an exactly known subject in every frame, generated from a seed.

A subject of `composites` moves in front of one of its backgrounds: with a static camera (`standing`),
a camera that follows it (`following`: the background moves), or a handheld one (`handheld`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from tests.corpora import composites
from tests.corpora.composites import Stratum

Array = NDArray[Any]
Shot = Literal["standing", "following", "handheld"]
SHOTS: tuple[Shot, ...] = ("standing", "following", "handheld")
_NOISE = 0.006


def film(
    seed: int, stratum: Stratum, shot: Shot, frames: int = 24, size: tuple[int, int] = (216, 288)
) -> Iterator[tuple[NDArray[np.uint8], Array]]:
    """Yield each frame (height, width, 3) and the alpha of its subject."""
    rng = np.random.default_rng([seed, composites.STRATA.index(stratum), SHOTS.index(shot)])
    height, width = size
    # Cover everything that the camera may show.
    wide = (height + height // 3, width + width // 2)
    ground, alpha, paint = composites.layers(seed, stratum, wide, share=0.42)
    walk = rng.uniform(0.12, 0.3) * width * rng.choice([-1, 1])
    bob, turn = rng.uniform(0.005, 0.02) * height, rng.uniform(2, 7)
    shake = np.cumsum(rng.normal(0, 0.7, (frames, 2)), axis=0)
    middle = np.array([wide[1] / 2, wide[0] / 2])
    for index in range(frames):
        share = index / max(1, frames - 1) - 0.5
        moved = np.array([walk * share, bob * np.sin(index * 0.9)])
        eye = {"standing": np.zeros(2), "following": moved * [1, 0], "handheld": shake[index]}[shot]
        move = cv2.getRotationMatrix2D(
            (float(middle[0]), float(middle[1])), float(turn * np.sin(index * 0.4)), 1 + 0.06 * share
        )
        move[:, 2] += moved
        cover, colors = (
            cv2.warpAffine(item, move, wide[::-1], flags=cv2.INTER_LINEAR) for item in (alpha, paint)
        )
        image = colors * cover[..., None] + ground * (1 - cover[..., None])
        corner = (middle + eye - np.array([width, height]) / 2).astype(np.float32)
        view = np.array([[1, 0, -corner[0]], [0, 1, -corner[1]]], np.float32)
        view_image, truth = (cv2.warpAffine(item, view, (width, height)) for item in (image, cover))
        grained = view_image + rng.normal(0, _NOISE, view_image.shape)
        yield np.clip(np.rint(grained * 255), 0, 255).astype(np.uint8), truth.astype(np.float32)
