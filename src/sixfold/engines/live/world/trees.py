"""Sprites of trees: a few variants of each kind, with alpha, as image pyramids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene import noise
from sixfold.engines.live.world.prompt_parser import WorldSpec

Field = NDArray[Any]
VARIANTS = 4
_TALL, _WIDE = 256, 192
_BARK = (0.30, 0.22, 0.16)
_AUTUMN = ((0.80, 0.44, 0.12), (0.72, 0.26, 0.12), (0.84, 0.62, 0.18), (0.56, 0.42, 0.16))
_LEAVES = {"broadleaf": (0.28, 0.42, 0.16), "conifer": (0.15, 0.28, 0.16), "snowy": (0.17, 0.27, 0.20),
           "palm": (0.27, 0.46, 0.18), "cactus": (0.33, 0.46, 0.24)}  # fmt: skip


def draw(place: WorldSpec) -> list[list[Field]]:
    """Return the image pyramid of each variant, as premultiplied RGBA down to a few pixels."""
    kind = str(place.land["tree"])
    light = (
        place.color("light") * np.float32(0.80 * place.weather["sun"] + 0.06) + place.color("shade") * 0.40
    )
    pyramids: list[list[Field]] = []
    for number in range(VARIANTS):
        rng = noise.stream("live", "tree", kind, number)
        canvas = np.zeros((_TALL, _WIDE, 4), np.float32)
        _DRAW_FUNCTIONS[kind](canvas, rng, number)
        canvas[..., :3] *= light[None, None]
        levels: list[Field] = [canvas]
        while levels[-1].shape[0] > 4:
            rows, columns = levels[-1].shape[:2]
            levels.append(
                cv2.resize(
                    levels[-1], (max(2, columns // 2), max(3, rows // 2)), interpolation=cv2.INTER_AREA
                )
            )
        pyramids.append(levels)
    return pyramids


def _blob(canvas: Field, x: float, y: float, size: tuple[float, float], color: Any) -> None:
    """Draw a soft blob of leaves over the canvas."""
    wide, tall = size
    left, right = max(0, int(x - wide)), min(_WIDE, int(x + wide) + 1)
    top, bottom = max(0, int(y - tall)), min(_TALL, int(y + tall) + 1)
    if left >= right or top >= bottom:
        return
    ys, xs = np.mgrid[top:bottom, left:right]
    away = ((xs - x) / wide) ** 2 + ((ys - y) / tall) ** 2
    alpha = np.clip((1 - away) * 3.2, 0, 1)[..., None].astype(np.float32)
    part = canvas[top:bottom, left:right]
    part[..., :3] = part[..., :3] * (1 - alpha) + np.asarray(color, np.float32) * alpha
    part[..., 3:] = part[..., 3:] * (1 - alpha) + alpha


def _trunk(canvas: Field, top: float, width: float, lean: float = 0.0) -> None:
    for row in range(int(top), _TALL):
        share = (row - top) / (_TALL - top)
        half = width * (0.45 + 0.55 * share) * (1 + 0.6 * max(0.0, share - 0.93) / 0.07)
        middle = _WIDE / 2 + lean * (1 - share)
        left, right = int(middle - half), int(middle + half) + 1
        shade = np.linspace(0.62, 1.25, right - left, dtype=np.float32)[:, None]
        canvas[row, left:right, :3] = np.array(_BARK, np.float32) * shade
        canvas[row, left:right, 3] = 1


def _crown(canvas: Field, rng: np.random.Generator, leaf: Any, count: int = 760) -> None:
    """Draw a round crown of clumps, darker below and inside."""
    clumps = [(96 + rng.normal(0, 30), 92 + rng.normal(0, 30), 26 + rng.random() * 18) for _ in range(11)]
    blobs: list[tuple[float, float, float, float]] = []
    for _ in range(count):
        cx, cy, radius = clumps[int(rng.integers(0, len(clumps)))]
        angle, reach = rng.random() * 2 * np.pi, radius * np.sqrt(rng.random())
        x, y = cx + np.cos(angle) * reach, cy + np.sin(angle) * reach * 0.85
        light = 0.55 + 0.55 * (cy + radius - y) / (2 * radius) + 0.28 * (150 - y) / 120 + 0.10 * (x - 96) / 70
        blobs.append((light, x, y, 3.4 + rng.random() * 4.6))
    blobs.sort()
    for light, x, y, size in blobs:
        _blob(
            canvas,
            x,
            y,
            (size, size * 0.8),
            np.asarray(leaf) * (0.42 + 0.62 * light) * (0.92 + 0.16 * rng.random()),
        )


def _broadleaf(canvas: Field, rng: np.random.Generator, _number: int) -> None:
    _trunk(canvas, 110, 7)
    _crown(canvas, rng, _LEAVES["broadleaf"])


def _autumn(canvas: Field, rng: np.random.Generator, number: int) -> None:
    _trunk(canvas, 110, 7)
    _crown(canvas, rng, _AUTUMN[number % len(_AUTUMN)])


def _needles(canvas: Field, rng: np.random.Generator, leaf: Any, snow: float) -> None:
    """Draw tiers of branches from the ground up, each lit on its upper edge."""
    _trunk(canvas, 30, 5)
    tiers = 15
    for tier in range(tiers):
        share = tier / (tiers - 1)
        y = 232 - share * 214
        wide = (70 + rng.normal(0, 4)) * (1 - share) ** 0.85 + 5
        for _ in range(int(10 + wide * 0.55)):
            side = rng.random() * 2 - 1
            x = 96 + side * wide
            droop = abs(side) * wide * 0.26
            tint = np.asarray(leaf) * (0.62 + 0.5 * share + 0.18 * side + 0.22 * rng.random())
            _blob(canvas, x, y + droop + rng.normal(0, 2.5), (5 + wide * 0.10, 5.0), tint)
            if snow and rng.random() < snow:
                _blob(canvas, x, y + droop - 4, (4 + wide * 0.09, 2.9), (0.92, 0.94, 0.98))


def _conifer(canvas: Field, rng: np.random.Generator, _number: int) -> None:
    _needles(canvas, rng, _LEAVES["conifer"], 0.0)


def _snowy(canvas: Field, rng: np.random.Generator, _number: int) -> None:
    _needles(canvas, rng, _LEAVES["snowy"], 0.62)


def _palm(canvas: Field, rng: np.random.Generator, number: int) -> None:
    lean = (-26, 18, -10, 30)[number % 4]
    _trunk(canvas, 74, 4.5, lean)
    for frond in range(13):
        angle = np.pi * (frond / 12) * 1.16 - 0.25
        length = 68 + rng.random() * 16
        for step in range(22):
            share = step / 21
            x = 96 + lean + np.cos(angle) * length * share
            y = 74 - np.sin(angle) * length * share * 0.62 + 52 * share**2.1
            tint = np.asarray(_LEAVES["palm"]) * (
                0.75 + 0.45 * np.sin(angle).clip(0, 1) + 0.18 * rng.random()
            )
            _blob(canvas, x, y, (5.2 - 3.4 * share, 4.6 - 2.4 * share), tint)


def _cactus(canvas: Field, rng: np.random.Generator, number: int) -> None:
    leaf = np.asarray(_LEAVES["cactus"])
    arms = ((0, 96, 40, 250), (1, 62, 92, 150), (-1, 130, 112, 168))[: 1 + number % 3]
    for side, x, top, low in arms:
        for y in range(top, min(low, _TALL)):
            wide = 13 if not side else 9
            for column in range(int(x - wide), int(x + wide)):
                canvas[y, column, :3] = leaf * (
                    0.72 + 0.4 * (column - x + wide) / (2 * wide) + 0.09 * (column % 5 == 0)
                )
                canvas[y, column, 3] = 1
        _blob(canvas, x, top, (13 if not side else 9, 10), leaf * 1.02)
        if side:
            for step in range(12):
                _blob(canvas, x + side * step * 3, low, (8, 8), leaf * 0.85)


_DRAW_FUNCTIONS: dict[str, Callable[[Field, np.random.Generator, int], None]] = {
    "broadleaf": _broadleaf,
    "autumn": _autumn,
    "conifer": _conifer,
    "snowy": _snowy,
    "palm": _palm,
    "cactus": _cactus,
}
