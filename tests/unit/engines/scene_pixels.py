"""Detectors of image content from pixels, for the scene painter's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[Any]
Plane = NDArray[Any]


def gray(picture: Picture) -> Plane:
    """Return the luma of a BGR image, from 0 to 1."""
    return cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).astype(np.float32) / 255


def hsv(picture: Picture) -> tuple[Plane, Plane, Plane]:
    """Return the hue in degrees, and saturation and value from 0 to 1."""
    planes = cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_BGR2HSV)
    return planes[..., 0], planes[..., 1], planes[..., 2]


def ssim(a: Picture, b: Picture) -> float:
    """Return the mean structural similarity of the luma, with a Gaussian window of sigma 1.5."""
    x, y = gray(a) * 255, gray(b) * 255

    def mean(plane: Plane) -> Plane:
        return cv2.GaussianBlur(plane, (11, 11), 1.5)

    mx, my = mean(x), mean(y)
    vx, vy, cov = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    c1, c2 = 6.5025, 58.5225
    score = ((2 * mx * my + c1) * (2 * cov + c2)) / ((mx * mx + my * my + c1) * (vx + vy + c2))
    return float(score.mean())


def entropy(picture: Picture) -> float:
    counts = np.bincount(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).ravel(), minlength=256)
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


def color_count(picture: Picture) -> int:
    """Return the number of distinct colors at five bits per channel."""
    reduced = (picture >> 3).astype(np.int32)
    return int(np.unique(reduced[..., 0] * 1024 + reduced[..., 1] * 32 + reduced[..., 2]).size)


def _sky(picture: Picture) -> Picture:
    return picture[: picture.shape[0] * 45 // 100]


def _land(picture: Picture) -> Picture:
    return picture[picture.shape[0] * 66 // 100 :]


def _warmth(picture: Picture) -> float:
    """Return the ratio of red to blue in the band around the horizon."""
    band = picture[picture.shape[0] * 35 // 100 : picture.shape[0] * 62 // 100].astype(np.float32) / 255
    return float(np.percentile(band[..., 2] - band[..., 0], 70))


def is_night(picture: Picture) -> bool:
    """Return whether nearly all of the upper part is dark."""
    return float(np.median(gray(_sky(picture)))) < 0.33


def is_day(picture: Picture) -> bool:
    """Return whether the sky is bright, and blue or gray."""
    sky = _sky(picture).astype(np.float32) / 255
    return float(np.median(gray(_sky(picture)))) > 0.42 and float(np.median(sky[..., 2] - sky[..., 0])) < 0.10


def is_sunset(picture: Picture) -> bool:
    """Return whether the horizon is warm, and neither dark nor overexposed."""
    return _warmth(picture) > 0.10 and float(gray(picture).mean()) > 0.25


def is_dusk(picture: Picture) -> bool:
    """Return whether the image is dim and its sky has color."""
    _, saturation, _ = hsv(_sky(picture))
    return 0.10 < float(gray(_sky(picture)).mean()) < 0.60 and float(saturation.mean()) > 0.15


def _hue_share(picture: Picture, low: float, high: float) -> float:
    """Return the share of colored pixels, weighted by chroma, with a hue from `low` to `high` degrees."""
    hue, saturation, value = hsv(picture)
    weight = saturation * value
    inside = (hue >= low) & (hue <= high) if low <= high else (hue >= low) | (hue <= high)
    return float((weight * inside).sum() / max(float(weight.sum()), 1e-6))


def _hue_share_of_subject(picture: Picture, low: float, high: float) -> float:
    """Return the share of a hue in the image or its lower third.

    A color word applies to its noun, which does not include the sky.
    """
    return max(_hue_share(picture, low, high), _hue_share(_land(picture), low, high))


def _mono(picture: Picture) -> bool:
    return float(hsv(picture)[1].mean()) < 0.06


def _pastel(picture: Picture) -> bool:
    """Return whether the whole image is light."""
    _, saturation, value = hsv(picture)
    return (
        float(np.percentile(value, 8)) > 0.42 and float(saturation.mean()) < 0.4 and float(value.mean()) > 0.6
    )


def is_rain(picture: Picture) -> bool:
    """Return whether fine structure is vertical: pixels change much more across than down."""
    fine = gray(picture) - cv2.GaussianBlur(gray(picture), (0, 0), 2)
    sky = _sky_rows(fine)
    down, across = np.abs(np.diff(sky, axis=0)).mean(), np.abs(np.diff(sky, axis=1)).mean()
    return bool(across > down * 1.15 and across > 0.008)


def _sky_rows(plane: Plane) -> Plane:
    return plane[: plane.shape[0] * 40 // 100]


def is_storm(picture: Picture) -> bool:
    """Return whether a thin tall object is much brighter than a dark sky."""
    sky = gray(picture)[: picture.shape[0] * 66 // 100]
    thin = sky - cv2.morphologyEx(sky, cv2.MORPH_OPEN, np.ones((9, 9), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats((thin > 0.22).astype(np.uint8), connectivity=8)
    tall = int(stats[1:, cv2.CC_STAT_HEIGHT].max()) if len(stats) > 1 else 0
    return float(np.median(sky)) < 0.55 and tall > picture.shape[0] * 0.22


def is_snowing(picture: Picture) -> bool:
    """Return whether a sky that is not dark has many small round bright spots."""
    plane = gray(picture)[: picture.shape[0] * 42 // 100]
    spots = plane - cv2.morphologyEx(plane, cv2.MORPH_OPEN, np.ones((7, 7), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats((spots > 0.08).astype(np.uint8))
    wide, high = stats[1:, cv2.CC_STAT_WIDTH], stats[1:, cv2.CC_STAT_HEIGHT]
    round_ones = (wide <= 9) & (high <= 9) & (wide < high * 2.5) & (high < wide * 2.5)
    return int(round_ones.sum()) > 115 and float(np.median(plane)) > 0.3


def is_foggy(picture: Picture) -> bool:
    """Return whether the middle has little contrast, and is light and gray."""
    band = picture[picture.shape[0] * 40 // 100 : picture.shape[0] * 70 // 100]
    pale = float(gray(band).std()) < 0.13 and float(gray(band).mean()) > 0.38
    return pale and float(hsv(band)[1].mean()) < 0.35


def has_water(picture: Picture) -> bool:
    """Return whether a band below the middle has horizontal streaks: pixels change more down than across."""
    plane = gray(picture)
    height = plane.shape[0]
    for top in (50, 56, 62, 68):
        band = plane[height * top // 100 : height * (top + 16) // 100]
        down, across = np.abs(np.diff(band, axis=0)).mean(), np.abs(np.diff(band, axis=1)).mean()
        if down > across * 1.12:
            return True
    return False


def has_ridges(picture: Picture) -> bool:
    """Return whether the strongest horizontal edges of the columns form a continuous line with hills."""
    plane = cv2.GaussianBlur(gray(picture), (0, 0), 1.5)
    height = plane.shape[0]
    drop = np.abs(plane[:-4] - plane[4:])[height * 20 // 100 : height * 72 // 100]
    line = cv2.medianBlur(np.argmax(drop, axis=0).astype(np.float32)[None, :], 5)[0]
    unbroken = float(np.mean(np.abs(np.diff(line)) < height * 0.04))
    return float(np.std(line)) > height * 0.07 and unbroken > 0.945


def is_city(picture: Picture) -> bool:
    """Return whether edges above the horizon are mostly vertical or horizontal."""
    plane = gray(picture)[picture.shape[0] * 30 // 100 : picture.shape[0] * 70 // 100]
    dx, dy = cv2.Sobel(plane, cv2.CV_32F, 1, 0), cv2.Sobel(plane, cv2.CV_32F, 0, 1)
    size = np.hypot(dx, dy)
    strong = size > np.percentile(size, 70)
    angle = np.degrees(np.arctan2(np.abs(dy), np.abs(dx)))[strong]
    return float(((angle < 20) | (angle > 70)).mean()) > 0.54


def is_forest(picture: Picture) -> bool:
    """Return whether trunks are vertical: after vertical smoothing, pixels change more across than down."""
    middle = gray(picture)[picture.shape[0] // 4 : picture.shape[0] * 3 // 4]
    soft = cv2.GaussianBlur(middle, (0, 0), sigmaX=1.0, sigmaY=6.0)
    return float(np.abs(np.diff(soft, axis=1)).mean()) > 1.5 * float(np.abs(np.diff(soft, axis=0)).mean())


def is_space(picture: Picture) -> bool:
    plane = gray(picture)
    points = plane - cv2.morphologyEx(plane, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8))
    return bool(float(np.median(plane)) < 0.34 and (points > 0.06).mean() > 0.002)


def is_snow_covered(picture: Picture) -> bool:
    _, saturation, value = hsv(picture[picture.shape[0] * 62 // 100 : picture.shape[0] * 86 // 100])
    return float(saturation.mean()) < 0.34 and float(value.mean()) > 0.55


SIGHTS: dict[tuple[str, str], Callable[[Picture], bool]] = {
    ("time", "night"): is_night,
    ("time", "day"): is_day,
    ("time", "sunset"): is_sunset,
    ("time", "dusk"): is_dusk,
    ("palette", "mono"): _mono,
    ("palette", "pastel"): _pastel,
    ("palette", "sepia"): lambda p: _hue_share(p, 15, 55) > 0.7,
    ("palette", "red"): lambda p: _hue_share_of_subject(p, 335, 25) > 0.6,
    ("palette", "orange"): lambda p: _hue_share_of_subject(p, 10, 48) > 0.55,
    ("palette", "green"): lambda p: _hue_share_of_subject(p, 70, 165) > 0.5,
    ("palette", "teal"): lambda p: _hue_share_of_subject(p, 160, 205) > 0.5,
    ("palette", "pink"): lambda p: _hue_share_of_subject(p, 300, 20) > 0.5,
    ("palette", "purple"): lambda p: _hue_share_of_subject(p, 245, 320) > 0.5,
    ("weather", "rain"): is_rain,
    ("weather", "storm"): is_storm,
    ("weather", "snow"): is_snowing,
    ("weather", "fog"): is_foggy,
    ("terrain", "water"): has_water,
    ("terrain", "ridges"): has_ridges,
    ("terrain", "city"): is_city,
    ("terrain", "forest"): is_forest,
    ("terrain", "space"): is_space,
    ("terrain", "snow"): is_snow_covered,
    ("terrain", "green"): lambda p: _hue_share(_land(p), 48, 160) > 0.5,
    ("terrain", "sand"): lambda p: _hue_share(_land(p), 5, 55) > 0.6,
    ("terrain", "underwater"): lambda p: _hue_share(p, 165, 230) > 0.8,
}


def stands_out(picture: Picture, without: Picture) -> bool:
    """Return whether the image has one compact object that the image without it lacks."""
    change = np.abs(picture.astype(np.int16) - without.astype(np.int16)).max(2)
    mask = cv2.morphologyEx((change > 24).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask)
    if len(stats) < 2:
        return False
    largest = 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    area = float(stats[largest, cv2.CC_STAT_AREA])
    box = float(stats[largest, cv2.CC_STAT_WIDTH] * stats[largest, cv2.CC_STAT_HEIGHT])
    blob = labels == largest
    ring = cv2.dilate(blob.astype(np.uint8), np.ones((11, 11), np.uint8)).astype(bool) & ~blob
    if not ring.any():
        return False
    tone = np.abs(picture[blob].astype(np.float32).mean(0) - picture[ring].astype(np.float32).mean(0)).max()
    spread = np.abs(picture[blob].astype(np.float32).std(0) - picture[ring].astype(np.float32).std(0)).max()
    return 0.006 < area / mask.size < 0.45 and area / box > 0.15 and max(tone, spread) > 6
