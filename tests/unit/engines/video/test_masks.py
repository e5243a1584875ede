"""Mask tracking: it follows the subject, rests with it, and restarts after a cut."""

from __future__ import annotations

import itertools
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from sixfold.engines.video.matting import motion
from sixfold.engines.video.matting.masks import MaskTracker
from tests.corpora import moving
from tests.corpora.composites import Stratum
from tests.corpora.moving import Shot

Array = NDArray[Any]
SIZE = (160, 120)


def scene(at: int, color: tuple[int, int, int] = (190, 50, 40), ground: int = 190) -> tuple[Array, Array]:
    """Return a ball in front of a wall with grain, and its true mask."""
    truth = np.zeros((SIZE[1], SIZE[0]), np.uint8)
    cv2.circle(truth, (at, 60), 30, 255, -1, cv2.LINE_AA)
    share = truth[..., None] / 255
    grain = np.random.default_rng(at).normal(0, 3, (SIZE[1], SIZE[0], 1))
    image = share * color + (1 - share) * (ground, ground + 5, ground + 10) + grain
    return np.clip(image, 0, 255).astype(np.uint8), truth / 255


def overlap(alpha: Array, truth: Array) -> float:
    return float(np.minimum(alpha, truth).sum() / np.maximum(alpha, truth).sum())


def test_a_mask_follows_its_subject() -> None:
    masks = MaskTracker()
    for step in range(14):
        image, truth = scene(50 + 4 * step)
        assert overlap(masks.alpha(image), truth) > 0.85, step
    assert masks.confidence > 0.5


@pytest.mark.nightly
def test_video_mask_flickers_less_than_per_frame_masks() -> None:
    images = [scene(80)[0]] * 8
    rng = np.random.default_rng(3)
    images = [np.clip(image + rng.normal(0, 4, image.shape), 0, 255).astype(np.uint8) for image in images]
    steady = MaskTracker()
    remaining = [steady.alpha(image) for image in images]
    alone = [MaskTracker().alpha(image) for image in images]
    assert _flicker(remaining) < 0.75 * _flicker(alone)


def _flicker(masks: list[Array]) -> float:
    return float(np.mean([np.abs(first - second).mean() for first, second in itertools.pairwise(masks)]))


def test_scene_cut_restarts_the_mask() -> None:
    masks = MaskTracker()
    for step in range(3):
        masks.alpha(scene(40 + step)[0])
    image, truth = scene(120, (40, 60, 160), 60)
    assert overlap(masks.alpha(image), truth) > 0.85


def test_the_same_frames_give_the_same_masks() -> None:
    runs = []
    for _ in range(2):
        masks = MaskTracker()
        runs.append([masks.alpha(scene(50 + 3 * step)[0]) for step in range(8)])
    assert all(np.array_equal(first, second) for first, second in zip(*runs, strict=True))


def cut_out(seed: int, ground: Stratum, shot: Shot) -> tuple[list[float], float]:
    """Return the overlaps of the frames of a synthetic video, and the reported confidence."""
    masks, overlaps = MaskTracker(), list[float]()
    frames = list(itertools.islice(moving.film(seed, ground, shot, 12), 8))
    for image, _ in frames[: masks.ahead]:
        masks.preview(image)
    for number, (image, truth) in enumerate(frames):
        if number + masks.ahead < len(frames):
            masks.preview(frames[number + masks.ahead][0])
        overlaps.append(overlap(masks.alpha(image), truth))
    return overlaps, masks.confidence


def test_moving_subject_is_separated_from_a_busy_background() -> None:
    results = [cut_out(seed, "cluttered", "standing")[0] for seed in (123,)]
    assert np.mean(results) > 0.9, results


@pytest.mark.nightly
def test_subject_is_tracked_by_a_moving_camera() -> None:
    assert np.mean(cut_out(100, "cluttered", "following")[0]) > 0.8


def test_still_scene_has_no_independent_motion() -> None:
    image = scene(80)[0]
    assert motion.independent(image, [image] * 3).weight == 0
    assert motion.independent(image, []).only is None


def test_unlikely_mask_has_low_confidence() -> None:
    sure = cut_out(123, "cluttered", "standing")[1]
    image = np.random.default_rng(1).integers(0, 255, (120, 160, 3), dtype=np.uint8)
    masks = MaskTracker()
    masks.alpha(image)
    assert masks.confidence < 0.6 < sure


def field(at: int) -> tuple[Array, Array]:
    """Return a figure in two colors that walks through grass under a sky, with a static camera."""
    rng = np.random.default_rng(5)
    rough = cv2.GaussianBlur(rng.normal(0, 1, (135, 240)).astype(np.float32), (0, 0), 1.6) * 60
    down = np.linspace(0, 1, 135, dtype=np.float32)[:, None, None]
    image = (
        np.array([120, 170, 225], np.float32)
        + down * np.array([90, 50, 10], np.float32)
        + np.zeros((135, 240, 1), np.float32)
    )
    image[70:] = np.array([88, 132, 52], np.float32) + rough[70:, :, None]
    truth = np.zeros((135, 240), np.uint8)
    cv2.ellipse(truth, (at, 80), (15, 34), 0, 0, 360, 255, -1, cv2.LINE_AA)
    head = np.zeros_like(truth)
    cv2.circle(head, (at, 40), 12, 255, -1, cv2.LINE_AA)
    for mask, color in ((truth, (150, 40, 60)), (head, (228, 182, 150))):
        share = mask[..., None].astype(np.float32) / 255
        image = image * (1 - share) + np.array(color, np.float32) * share
    grain = np.random.default_rng(at).normal(0, 2, (135, 240, 1))
    return np.clip(image + grain, 0, 255).astype(np.uint8), np.maximum(truth, head) / 255


@pytest.mark.nightly
def test_mask_excludes_background_that_the_subject_left() -> None:
    frames = [field(30 + 8 * step) for step in range(20)]
    masks = MaskTracker()
    for image, _ in frames[: masks.ahead]:
        masks.preview(image)
    results = []
    for step, (image, truth) in enumerate(frames):
        if step + masks.ahead < len(frames):
            masks.preview(frames[step + masks.ahead][0])
        results.append(overlap(masks.alpha(image), truth))
    # An earlier version returned 0.17, because the mask contained the whole path.
    assert results[-1] > 0.85, results


def lively(at: int) -> tuple[Array, Array]:
    """Return a tent between sky and grass while two birds fly past, with a static camera."""
    rough = cv2.GaussianBlur(np.random.default_rng(4).normal(0, 1, (150, 160)).astype(np.float32), (0, 0), 3)
    image = np.full((150, 160, 3), (95, 150, 200), np.float32)
    image[95:] = (90, 120, 60)
    image[:, :30] *= 0.7
    image += rough[..., None] * 90
    truth = np.zeros((150, 160), np.uint8)
    cv2.fillPoly(truth, [np.array([[80, 25], [108, 125], [52, 125]])], 255)
    image[truth > 0] = (230, 170, 40)
    for middle in ((8 + at, 12), (150 - at, 22)):
        cv2.circle(image, middle, 6, (30, 30, 40), -1, cv2.LINE_AA)
    grain = np.random.default_rng(at).normal(0, 2, (150, 160, 1))
    return np.clip(image + grain, 0, 255).astype(np.uint8), truth / 255


def test_passing_object_does_not_replace_a_still_subject() -> None:
    frames = [lively(step) for step in range(8)]
    masks = MaskTracker()
    for image, _ in frames[: masks.ahead]:
        masks.preview(image)
    results = [overlap(masks.alpha(image), truth) for image, truth in frames]
    # An earlier version returned 0, because the first twelve frames were empty.
    assert min(results) > 0.9, results


def test_coat_in_background_color_stays_in_the_mask() -> None:
    rough = cv2.GaussianBlur(
        np.random.default_rng(1).normal(0, 1, (120, 160)).astype(np.float32), (0, 0), 1.5
    )
    dark = (30, 32, 44)
    image = np.full((120, 160, 3), (190, 180, 160), np.float32)
    mask = np.zeros((120, 160), np.float32)
    image[:, :50] = image[60:, 60:130] = dark
    image[20:60, 75:115] = (200, 150, 120)
    mask[60:, 60:130] = mask[20:60, 75:115] = 1
    still = np.clip(image + rough[..., None] * 12, 0, 255).astype(np.uint8)
    moves = [np.array([[1, 0, by], [0, 1, 0]], np.float32) for by in (-0.4, 0.4, 0.8)]
    others = [cv2.warpAffine(still, move, (160, 120), borderMode=cv2.BORDER_REPLICATE) for move in moves]
    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    # In an earlier version, two thirds of the mask were uncovered.
    assert not motion.uncovered(still, mask, others, dis).any()
