"""Cities: skylines in layers with lit windows and signs, in front of a wet street or river."""

from __future__ import annotations

import cv2
import msgspec
import numpy as np

from sixfold.engines.image.scene.canvas import Color, Image, blur, glow, mix, over, rgb
from sixfold.engines.image.scene.stage import SceneStage

_WARM = ("#ffd27a", "#ffb65c", "#ffe2a8", "#cfe4ff")
_NEON = ("#ff3d9a", "#24e0ff", "#ffd23d", "#9d5bff", "#35ffb0")
_WALLS = ("#7c8797", "#8d7f74", "#6b7a8c", "#9a8f85", "#5d6b7d", "#a58d7c")


class _CityBlock(msgspec.Struct):
    """One building: its box in pixels and its wall color."""

    left: int
    right: int
    top: int
    wall: Color


def _blocks(stage: SceneStage, rng: np.random.Generator, t: float, base: float) -> list[_CityBlock]:
    """Return a row of buildings; `t` is from 0 (far) to 1 (near)."""
    blocks: list[_CityBlock] = []
    x = -stage.unit * 3
    focus = stage.layout.light[0] * 0.4 + 0.3
    while x < stage.width:
        wide = stage.unit * float(rng.uniform(3.2, 7.5)) * (0.62 + 0.75 * t)
        middle = 1 - abs((x + wide / 2) / stage.width - focus) * 0.9
        tall = base * float(rng.beta(1.7, 2.6)) * (0.95 - 0.28 * t) * middle + base * 0.10
        wall = rgb(_WALLS[int(rng.integers(len(_WALLS)))])
        blocks.append(_CityBlock(int(x), int(x + wide), int(base - tall), wall))
        x += wide * float(rng.uniform(0.82, 1.12))
    return blocks


def _roof(mask: Image, rng: np.random.Generator, block: _CityBlock, unit: float) -> None:
    """Add a set-back, a spire, a slope or a tank on top of a block."""
    left, right, top = block.left, block.right, block.top
    wide = right - left
    kind = int(rng.integers(0, 6))
    middle = (left + right) // 2
    if kind == 0:
        rise = int(wide * 0.5)
        cv2.rectangle(mask, (left + wide // 5, top - rise), (right - wide // 5, top), 255, -1)
        cv2.rectangle(
            mask, (left + wide * 2 // 5, top - rise * 2), (right - wide * 2 // 5, top - rise), 255, -1
        )
        cv2.line(
            mask,
            (middle, top - rise * 2),
            (middle, top - rise * 3),
            255,
            max(1, int(unit * 0.16)),
            cv2.LINE_AA,
        )
    elif kind == 1:
        cv2.line(
            mask, (middle, top), (middle, top - int(wide * 0.9)), 255, max(1, int(unit * 0.16)), cv2.LINE_AA
        )
    elif kind == 2:
        points = np.array([[left, top], [left, top - wide // 5], [right, top - wide // 2], [right, top]])
        cv2.fillPoly(mask, [points], 255, cv2.LINE_AA)
    elif kind == 3:
        cv2.rectangle(mask, (left + wide // 4, top - max(1, wide // 6)), (left + wide // 2, top), 255, -1)


def _windows(
    stage: SceneStage,
    rng: np.random.Generator,
    block: _CityBlock,
    light: Image,
    colors: tuple[str, ...],
    t: float,
) -> None:
    """Light windows on a grid, with some rows dark."""
    pitch_x = max(2, round(stage.unit * (0.52 + 0.35 * t)))
    pitch_y = max(3, round(stage.unit * (0.78 + 0.5 * t)))
    size_x, size_y = max(1, int(pitch_x * 0.52)), max(1, int(pitch_y * 0.5))
    columns = (block.right - block.left - pitch_x) // pitch_x
    rows = (int(stage.horizon) - block.top - pitch_y) // pitch_y
    if columns < 1 or rows < 1:
        return
    lively = float(rng.uniform(0.18, 0.62))
    lit = rng.random((rows, columns)) < lively * (0.35 + 0.65 * rng.random((rows, 1)))
    tone = rgb(colors[int(rng.integers(len(colors)))])
    strength = rng.uniform(0.6, 1.15, (rows, columns))
    for row, column in zip(*np.nonzero(lit), strict=True):
        y = block.top + pitch_y // 2 + int(row) * pitch_y
        x = block.left + pitch_x // 2 + int(column) * pitch_x
        if y < 0 or x < 0:
            continue
        light[y : y + size_y, x : x + size_x] = tone * np.float32(strength[row, column])


def _signs(stage: SceneStage, rng: np.random.Generator, block: _CityBlock, light: Image) -> None:
    tone = rgb(_NEON[int(rng.integers(len(_NEON)))])
    x = int(rng.integers(block.left, max(block.left + 1, block.right)))
    top = int(rng.uniform(block.top, stage.horizon))
    wide, tall = max(3, int(stage.unit * 1.7)), int(stage.unit * float(rng.uniform(5, 14)))
    if x < 2 or x + wide >= stage.width:
        return
    cv2.rectangle(
        light, (x, top), (x + wide, top + tall), tuple(float(c) for c in tone), max(1, int(stage.unit * 0.18))
    )
    for y in range(top + 3, top + tall - 2, max(3, int(stage.unit * 0.9))):
        if rng.random() < 0.75:
            cv2.line(
                light,
                (x + wide // 4, y),
                (x + wide * 3 // 4, y),
                tuple(float(c) for c in tone),
                max(1, int(stage.unit * 0.2)),
            )


def _layer(stage: SceneStage, t: float, neon: bool) -> None:
    rng = stage.rng(f"blocks{t:.2f}")
    base = stage.horizon
    depth = 0.9 - 0.7 * t
    dark = stage.time in ("night", "dusk")
    blocks = _blocks(stage, rng, t, base)
    walls, light = np.zeros_like(stage.image), np.zeros_like(stage.image)
    mask = np.zeros(stage.shape, np.uint8)
    side = 1 if stage.layout.light[0] > 0.5 else -1
    for block in blocks:
        cv2.rectangle(mask, (block.left, block.top), (block.right, int(base)), 255, -1)
        _roof(mask, rng, block, stage.unit)
        columns = slice(max(0, block.left), max(0, block.right + 1))
        lit = stage.far(stage.palette.lit(block.wall, 0.62), depth)
        shade = stage.far(stage.palette.lit(block.wall, 0.16), depth)
        walls[:, columns] = lit
        split = block.left + int((block.right - block.left) * (0.45 if side > 0 else 0.55))
        walls[
            :, max(0, block.left if side > 0 else split) : max(0, split if side > 0 else block.right + 1)
        ] = shade
        _facade(walls, block, stage, t)
        if dark or stage.time == "sunset":
            _windows(stage, rng, block, light, _NEON[:2] + _WARM if neon else _WARM, t)
        if neon and t > 0.3:
            _signs(stage, rng, block, light)
    alpha = mask.astype(np.float32) / 255
    low = np.clip((np.arange(stage.height, dtype=np.float32)[:, None] - base * 0.45) / (base * 0.55), 0, 1)
    over(walls, stage.palette.haze, np.broadcast_to(low * np.float32(0.62 * depth), stage.shape))
    stage.add_layer(np.clip(walls, 0, 1), alpha, depth)
    if light.any():
        light *= alpha[..., None] * np.float32(0.95 if dark else 0.55)
        stage.image += (1 - np.clip(stage.image, 0, 1)) * light
        stage.image += blur(light, stage.unit * 0.7) * np.float32(0.55 if not neon else 0.9)
        np.clip(stage.image, 0, 1, out=stage.image)


def _facade(walls: Image, block: _CityBlock, stage: SceneStage, t: float) -> None:
    """Draw floors and bays as faint lines."""
    pitch = max(3, round(stage.unit * (0.78 + 0.5 * t)))
    left, right = max(0, block.left), min(stage.width, block.right)
    top = max(0, block.top)
    walls[top : int(stage.horizon) : pitch, left:right] *= np.float32(0.86)
    across = max(3, round(stage.unit * (0.52 + 0.35 * t)))
    walls[top : int(stage.horizon), left:right:across] *= np.float32(0.92)


def skyline(stage: SceneStage) -> None:
    """Paint layers of buildings up to the water's edge."""
    neon = bool({"cyberpunk", "vaporwave"} & set(stage.scene.styles)) or "neon" in stage.scene.colors
    if stage.time in ("night", "dusk"):
        reach = np.abs(np.arange(stage.height, dtype=np.float32)[:, None] - stage.horizon) / np.float32(
            stage.height * 0.28
        )
        tone = rgb("#ff5aa8") if neon else rgb("#ff9d5c")
        glow(stage.image, tone, np.broadcast_to(np.exp(-(reach**2)) * np.float32(0.46), stage.shape))
    for t in (0.0, 0.34, 0.67, 1.0):
        _layer(stage, t, neon)
    quay = np.zeros(stage.shape, np.float32)
    quay[int(stage.horizon - stage.unit * 0.9) : int(stage.horizon + stage.unit * 0.25)] = 1
    stage.add_layer(stage.palette.lit(rgb("#3d434c"), 0.25), quay, 0.2)
    if stage.time in ("night", "dusk", "sunset"):
        _lamps(stage, neon)
    stage.water = (np.arange(stage.height) > stage.horizon).astype(np.float32)[:, None].repeat(stage.width, 1)
    stage.step("city")


def _lamps(stage: SceneStage, neon: bool) -> None:
    rng = stage.rng("lamps")
    spots = np.zeros(stage.shape, np.float32)
    for x in np.arange(0, stage.width, stage.unit * 3.1):
        at = (round(x + float(rng.normal(0, stage.unit * 0.3))), round(stage.horizon - stage.unit * 1.3))
        cv2.circle(spots, at, max(1, int(stage.unit * 0.3)), 1.0, -1, cv2.LINE_AA)
    tone = mix(rgb("#ffdf9a"), rgb("#ff6ac0"), 0.5 if neon else 0.0)
    glow(stage.image, tone, np.clip(spots + blur(spots, stage.unit * 0.8) * 2.5, 0, 1))
