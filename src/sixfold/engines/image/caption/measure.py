"""Measurements of an image: palette, light, sharpness, faces, lettering."""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import face_detection
from sixfold.engines.image.decode import DecodedImage

Array = NDArray[Any]

_SIDE = 400
_COLORS = 6
_MIN_SHARE = 0.06
_NAMES = (
    ("black", (12, 12, 14)), ("dark grey", (70, 70, 72)), ("grey", (128, 128, 128)),
    ("light grey", (200, 200, 200)), ("light grey", (226, 226, 226)), ("white", (250, 250, 250)),
    ("red", (205, 35, 40)), ("red", (235, 70, 60)), ("dark red", (110, 20, 25)),
    ("orange", (240, 135, 30)), ("brown", (115, 70, 35)), ("beige", (222, 202, 168)),
    ("yellow", (245, 215, 50)), ("olive", (115, 115, 45)), ("green", (55, 150, 60)),
    ("green", (20, 200, 40)), ("dark green", (25, 70, 40)), ("light green", (160, 215, 140)),
    ("teal", (25, 130, 130)), ("turquoise", (70, 200, 200)), ("sky blue", (135, 190, 235)),
    ("blue", (45, 90, 200)), ("blue", (25, 40, 200)), ("blue", (40, 120, 230)),
    ("dark blue", (20, 30, 90)), ("violet", (120, 70, 180)), ("violet", (90, 20, 160)),
    ("lilac", (190, 160, 220)), ("pink", (240, 160, 185)), ("magenta", (200, 45, 140)),
    ("peach", (230, 165, 135)), ("cream", (247, 238, 214)), ("slate", (92, 108, 128)),
    ("brown", (150, 108, 80)), ("brown", (100, 62, 48)), ("tan", (190, 155, 118)),
    ("coral", (222, 118, 96)), ("mauve", (150, 96, 122)), ("dark blue", (32, 44, 74)),
    ("sand", (222, 190, 130)), ("sky blue", (120, 200, 240)),
)  # fmt: skip


class NamedColor(msgspec.Struct, frozen=True):
    """A color of the palette: its name, `#rrggbb`, and its fraction of the image."""

    name: str
    hex: str
    share: float


class ImageFacts(msgspec.Struct, frozen=True):
    """The measurements of an image.

    `light` and `contrast` are 0 to 1; a `sharpness` of 1 is typical. `flatness` is the fraction of pixels
    that equal their neighbors; `upper` and `lower` are mean colors (hue in degrees, saturation, value).
    `upper_spread` is the mean difference of the top's columns from their mean; in skies it is small.
    """

    width: int
    height: int
    palette: tuple[NamedColor, ...]
    light: float
    contrast: float
    colorfulness: float
    sharpness: float
    flatness: float
    faces: tuple[face_detection.DetectedFace, ...]
    lettering: int
    transparent: float
    upper: tuple[float, float, float]
    lower: tuple[float, float, float]
    upper_spread: float

    @property
    def largest_face(self) -> float:
        """The fraction of the image that the largest face covers."""
        return self.faces[0].area / (self.width * self.height) if self.faces else 0.0


def measure(image: DecodedImage) -> ImageFacts:
    rgb = image.rgb
    small = _downscale(rgb, _SIDE)
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    hsv = cv2.cvtColor(small, cv2.COLOR_RGB2HSV).astype(np.float32)
    half = max(1, small.shape[0] * 2 // 5)
    large = min(small.shape[:2]) >= 40
    return ImageFacts(
        width=image.width,
        height=image.height,
        palette=_palette(small),
        light=float(gray.mean() / 255),
        contrast=float(gray.std() / 128),
        colorfulness=_colorfulness(small),
        sharpness=_sharpness(rgb),
        flatness=_flatness(small),
        faces=face_detection.find(rgb) if large else (),
        lettering=_lettering(gray) if large else 0,
        transparent=0.0 if image.alpha is None else float((image.alpha < 128).mean()),
        upper=_mean(hsv[:half]),
        lower=_mean(hsv[-half:]),
        upper_spread=_spread(small),
    )


def _palette(rgb: Array) -> tuple[NamedColor, ...]:
    """Return the most common colors; shades with the same name are merged."""
    lab = cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB).reshape(-1, 3).astype(np.float32)
    samples = lab[:: max(1, len(lab) // 8_000)]
    if len(samples) == 1:
        # OpenCV would read a single color as three samples of one number.
        samples = np.repeat(samples, 2, axis=0)
    kinds = min(_COLORS, len(np.unique(samples, axis=0)))
    cv2.setRNGSeed(1)
    criteria = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 30, 0.5)
    first = np.zeros((len(samples), 1), np.int32)
    _, labels, centers = cv2.kmeans(samples, kinds, first, criteria, 2, cv2.KMEANS_PP_CENTERS)
    shares = np.bincount(labels.ravel(), minlength=kinds) / len(samples)
    by_name: dict[str, NamedColor] = {}
    for index in np.argsort(-shares, kind="stable"):
        pixel = np.rint(centers[index]).astype(np.uint8).reshape(1, 1, 3)
        red, green, blue = map(int, cv2.cvtColor(pixel, cv2.COLOR_LAB2RGB)[0, 0])
        name = _name(centers[index])
        previous = by_name.get(name)
        share = float(shares[index]) + (previous.share if previous else 0.0)
        by_name[name] = NamedColor(
            name, previous.hex if previous else f"#{red:02x}{green:02x}{blue:02x}", share
        )
    ordered = sorted(by_name.values(), key=lambda color: -color.share)
    return tuple(color for color in ordered if color.share >= _MIN_SHARE) or tuple(ordered[:1])


def _name(lab: Array) -> str:
    palette = np.array([[color for _, color in _NAMES]], np.uint8)
    table = cv2.cvtColor(palette, cv2.COLOR_RGB2LAB)[0].astype(np.float32)
    difference = (table - lab) * np.array([0.7, 1.2, 1.2], np.float32)
    return _NAMES[int(np.argmin((difference**2).sum(1)))][0]


def _colorfulness(rgb: Array) -> float:
    """Return the colorfulness after Hasler and Suesstrunk (2003), scaled so that 1 is very colorful."""
    red, green, blue = (rgb[..., channel].astype(np.float32) for channel in range(3))
    red_green, yellow_blue = red - green, (red + green) / 2 - blue
    return float(
        (np.hypot(red_green.std(), yellow_blue.std()) + 0.3 * np.hypot(red_green.mean(), yellow_blue.mean()))
        / 110
    )


def _downscale(rgb: Array, side: int) -> Array:
    """Return the image with a long side of at most `side`; a line of pixels keeps its width."""
    height, width = rgb.shape[:2]
    scale = min(1.0, side / max(height, width))
    if scale == 1:
        return rgb
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    is_line = min(height, width) * scale < 1
    return cv2.resize(rgb, size if is_line else None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def _sharpness(rgb: Array) -> float:
    """Return the strength of the finest detail relative to coarser detail, in the sharpest parts."""
    gray = cv2.cvtColor(_downscale(rgb, 1024), cv2.COLOR_RGB2GRAY).astype(np.float32)
    fine = np.abs(gray - cv2.GaussianBlur(gray, (0, 0), 1.0))
    coarse = np.abs(cv2.GaussianBlur(gray, (0, 0), 1.0) - cv2.GaussianBlur(gray, (0, 0), 4.0))
    return float(np.percentile(fine, 99) / max(1.0, float(np.percentile(coarse, 99))) * 2)


def _flatness(rgb: Array) -> float:
    gray = rgb.astype(np.int16)
    same = (np.abs(np.diff(gray, axis=1)).max(2) <= 1)[:-1] & (np.abs(np.diff(gray, axis=0)).max(2) <= 1)[
        :, :-1
    ]
    return float(same.mean()) if same.size else 1.0


def _lettering(gray: Array) -> int:
    """Return the number of lines of probable lettering: even rows of steep strokes on plain ground."""
    edges = cv2.morphologyEx(gray, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8))
    steep = (edges > max(60, int(np.percentile(edges, 90)) // 2)).astype(np.uint8)
    rows = cv2.morphologyEx(steep, cv2.MORPH_CLOSE, np.ones((1, 11), np.uint8))
    count, _, stats, _ = cv2.connectedComponentsWithStats(rows, connectivity=4)
    lines = 0
    for left, top, width, height, area in stats[1:count]:
        inside = steep[top : top + height, left : left + width]
        turns = float(np.abs(np.diff(inside.astype(np.int8), axis=1)).sum(1).mean()) / max(1, width) * height
        even = 6 <= height <= gray.shape[0] * 0.2 and width >= 3.2 * height and area > 0.55 * width * height
        lines += bool(even and 0.6 < turns < 8 and 0.25 < float(inside.mean()) < 0.92)
    return lines


def _spread(rgb: Array) -> float:
    side = 64
    top = cv2.resize(rgb, (side, side), interpolation=cv2.INTER_AREA)[: side // 5].astype(np.float32)
    columns = top.mean(0)
    return float(np.linalg.norm(columns - columns.mean(0), axis=1).mean() / 100)


def _mean(hsv: Array) -> tuple[float, float, float]:
    """Return the mean hue in degrees (weighted by saturation), and mean saturation and value from 0 to 1."""
    turn = np.exp(2j * np.pi * hsv[..., 0] / 180) * hsv[..., 1]
    hue = float(np.degrees(np.angle(turn.mean())) % 360)
    return hue, float(hsv[..., 1].mean() / 255), float(hsv[..., 2].mean() / 255)
