"""Streets: two rows of houses in perspective, a road between them, lamps and signs."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene import noise, sky
from sixfold.engines.image.scene.canvas import Color, Image, blur, fill, glow, mix, over, rgb
from sixfold.engines.image.scene.stage import SceneStage

_OLD = ("#d8c4a0", "#c98f6c", "#b9a98f", "#d9b38a", "#9fa9a8", "#c7a6a0", "#e0d3bb")
_NEW = ("#7c8797", "#8d7f74", "#6b7a8c", "#9a8f85", "#5d6b7d", "#a58d7c")
_NEON = ("#ff3d9a", "#24e0ff", "#ffd23d", "#9d5bff", "#35ffb0")
_WARM = ("#ffd27a", "#ffb65c", "#ffe2a8")
_AWNINGS = ("#b8433a", "#3f7a5c", "#d9a441", "#3f6f9a", "#8a4f6f")
_TALL_WORDS = (
    "new york", "manhattan", "tokyo", "shanghai", "hong kong", "downtown", "skyscraper", "times square",
    "cyberpunk", "futuristic", "metropolis", "megacity",
)  # fmt: skip
# Half of the street's width, the eye's height, and half of the road's width.
_HALF, _EYE, _ROAD = 1.55, 0.62, 0.95
_FAR = 16.0


class _View(msgspec.Struct, frozen=True):
    """The vanishing point of the street, and the size of a unit at a distance of one unit."""

    x: float
    y: float
    scale: float
    # True if lamps and windows are lit.
    lively: bool
    neon: bool


def paint(stage: SceneStage) -> None:
    """Paint a street: sky, both rows of houses, the ground, and lights."""
    sky.paint(stage)
    text = stage.scene.prompt.casefold()
    neon = "cyberpunk" in stage.scene.styles or "neon" in text
    view = _View(
        stage.width * (0.5 + (0.06 if stage.layout.flip else -0.06)),
        stage.height * 0.56,
        max(stage.width * 0.40, stage.height * 0.52),
        stage.palette.dark or stage.time == "dusk" or stage.weather in ("rain", "storm"),
        neon,
    )
    tall = neon or any(word in text for word in _TALL_WORDS)
    _end(stage, view)
    for side in (-1, 1):
        _row(stage, view, side, tall)
    _ground(stage, view)
    _lamps(stage, view)
    if neon:
        _signs(stage, view)
    stage.ground = 0.93
    stage.step("street")


def _end(stage: SceneStage, view: _View) -> None:
    """Add haze at the vanishing point, where the rows of houses meet."""
    x = np.abs(np.arange(stage.width, dtype=np.float32) - np.float32(view.x))[None, :] / stage.width
    y = np.abs(np.arange(stage.height, dtype=np.float32) - np.float32(view.y))[:, None] / stage.height
    over(stage.image, stage.palette.haze, np.exp(-(x**2) * 60 - (y**2) * 30) * np.float32(0.6))
    if view.neon:
        glow(stage.image, rgb("#e0409c"), np.exp(-(x**2) * 22 - (y**2) * 14) * np.float32(0.6))


def _row(stage: SceneStage, view: _View, side: int, tall: bool) -> None:
    """Paint the houses of one side, with distance and height on the wall computed per pixel."""
    rng = stage.rng(f"row{side}")
    columns = np.arange(stage.width, dtype=np.float32)
    away = (columns - np.float32(view.x)) * side
    visible = np.flatnonzero(away > view.scale * _HALF / _FAR)
    if not visible.size:
        return
    left, right = int(visible[0]), int(visible[-1]) + 1
    far = (np.float32(view.scale * _HALF) / away[left:right])[None, :]
    up = (np.float32(view.y) - np.arange(stage.height, dtype=np.float32))[:, None] * far / np.float32(
        view.scale
    ) + np.float32(_EYE)
    edges = np.cumsum(rng.uniform(0.55, 1.15, 40)).astype(np.float32) + np.float32(0.25)
    which = np.searchsorted(edges, far[0])
    low, high = (2.6, 6.4) if tall else (1.9, 2.9)
    roofs = rng.uniform(low, high, 42).astype(np.float32)[which][None, :]
    start = np.concatenate([[0.0], edges]).astype(np.float32)[which]
    mask = noise.smoothstep(0.0, 0.02, roofs - up) * (up > -0.02)
    tones = [rgb(t) for t in (_NEW if tall else _OLD)]
    walls = np.stack([tones[int(i)] for i in rng.integers(0, len(tones), 42)])[which][None, :]
    # The side opposite the light is lit.
    facing = 0.62 if (stage.light_at[0] - view.x) * side > 0 else 0.28
    light = stage.palette.ambient * np.float32(1.7 if view.neon else 1.15) + stage.palette.light * np.float32(
        0.9 - facing
    )
    paint = np.broadcast_to(walls * light, (stage.height, right - left, 3)).copy()
    field = (far, up, start[None, :], roofs)
    _dress(stage, view, paint, field, which, rng)
    air = np.clip((far - 1.2) / np.float32(_FAR * 0.62), 0, 0.86) ** 0.8
    over(paint, stage.palette.haze, np.broadcast_to(air, mask.shape))
    part = stage.image[:, left:right]
    over(part, np.clip(paint, 0, 1), mask)
    plane = stage.depth[:, left:right]
    plane += (np.clip(0.10 + far / _FAR * 0.8, 0, 0.95) - plane) * mask


def _cell(along: NDArray[Any], center: float, half: float, soft: Image) -> Image:
    """Return 1 within `half` of `center` of each cell, with edges one pixel soft."""
    return np.clip((half - np.abs(along - np.floor(along) - center)) / soft + 0.5, 0, 1)


def _dress(
    stage: SceneStage,
    view: _View,
    paint: Image,
    field: tuple[Image, Image, Image, Image],
    which: NDArray[Any],
    rng: np.random.Generator,
) -> None:
    """Add windows on each floor, shops below with a ledge above them, and a cornice under the roof."""
    far, up, start, roofs = field
    footprint = far / np.float32(view.scale)
    column = (far - start) / np.float32(0.19)
    floor = (up - np.float32(0.62)) / np.float32(0.34)
    across = np.clip(footprint * far / np.float32(0.19 * _HALF), 0.05, 2.5)
    down = np.clip(footprint / np.float32(0.34), 0.04, 2.5)
    pane = (
        _cell(column, 0.5, 0.26, across) * _cell(floor, 0.46, 0.30, down) * (up > 0.62) * (up < roofs - 0.14)
    )
    trim = (
        _cell(column, 0.5, 0.33, across) * _cell(floor, 0.45, 0.37, down) * (up > 0.62) * (up < roofs - 0.14)
    )
    over(paint, np.clip(paint * np.float32(1.18), 0, 1), trim)
    key = np.floor(column) * 12.9 + np.floor(floor) * 78.2 + which[None, :] * 37.7
    chance = np.abs(np.sin(key) * 43758.5) % 1.0
    glass = mix(stage.palette.sky[2], rgb("#27323f"), 0.62)
    over(paint, glass * np.float32(0.55 if view.lively else 1.0), pane * np.float32(0.9))
    if view.lively:
        colors = _NEON if view.neon else _WARM
        for index, text in enumerate(colors):
            share = 0.46 / len(colors)
            lit = (chance >= index * share) & (chance < (index + 1) * share)
            over(paint, rgb(text), pane * lit * np.float32(0.75 if view.neon else 0.9))
    ledge = np.clip((0.018 - np.abs(up - 0.60)) / footprint + 0.5, 0, 1)
    cornice = np.clip((0.03 - np.abs(roofs - up - 0.03)) / footprint + 0.5, 0, 1)
    over(paint, np.clip(paint * np.float32(1.22), 0, 1), np.maximum(ledge, cornice))
    shop = (far - start) / np.float32(0.46)
    wide = np.clip(footprint * far / np.float32(0.46 * _HALF), 0.03, 2.5)
    front = _cell(shop, 0.5, 0.40, wide) * np.clip((0.17 - np.abs(up - 0.22)) / footprint + 0.5, 0, 1)
    inside = rgb("#ffcf86") if view.lively else mix(stage.palette.sky[2], rgb("#2c343c"), 0.6)
    goods = 0.62 + 0.38 * np.abs(np.sin(np.floor(shop * 7) * 5.3 + np.floor(up * 16) * 2.7 + which[None, :]))
    over(paint, inside * goods[..., None], front * np.float32(0.92))
    bars = 1 - _cell(shop * 4, 0.5, 0.455, wide * 4)
    over(paint, rgb("#2b2624"), front * bars * np.float32(0.8))
    tones = np.stack([rgb(t) for t in (_NEON if view.neon else _AWNINGS)])
    picks = tones[(np.floor(shop).astype(np.int64) + which * 3) % len(tones)]
    stripes = np.where(np.floor(shop * 9) % 2 > 0, np.float32(1.0), np.float32(0.78))[..., None]
    awning = _cell(shop, 0.5, 0.44, wide) * np.clip((0.045 - np.abs(up - 0.445)) / footprint + 0.5, 0, 1)
    light = np.float32(1.0) if view.neon else stage.palette.ambient + stage.palette.light * np.float32(0.5)
    over(paint, np.broadcast_to(np.clip(picks * stripes * light, 0, 1), paint.shape), awning)


def _ground(stage: SceneStage, view: _View) -> None:
    """Paint the road, curbs and pavements; wet surfaces mirror the houses."""
    top = int(view.y) + 1
    rows = stage.height - top
    down = np.arange(1, rows + 1, dtype=np.float32)[:, None]
    far = np.float32(view.scale * _EYE) / down
    side = (
        (np.arange(stage.width, dtype=np.float32)[None, :] - np.float32(view.x))
        * far
        / np.float32(view.scale)
    )
    soft = far / np.float32(view.scale) * 1.2
    within = np.clip((_HALF - np.abs(side)) / soft + 0.5, 0, 1)
    light = stage.palette.ambient * np.float32(1.1) + stage.palette.light * np.float32(0.42)
    wintry = stage.is_wintry
    grain = noise.fbm(stage.rng("road"), (rows, stage.width), (rows / 3, stage.width / 5), 3, 0.6)
    road = np.clip((_ROAD - np.abs(side)) / soft + 0.5, 0, 1)
    slabs = np.abs(far * 3.2 - np.round(far * 3.2)) < np.clip(soft * far * 2.4, 0.02, 0.2)
    paving = rgb("#dfe6ee" if wintry else "#a8a298") * light
    paint = paving * (0.95 + 0.06 * grain - 0.10 * slabs * (far < 5))[..., None]
    over(paint, rgb("#b9c2cc" if wintry else "#4d5056") * light * (1 + 0.10 * grain)[..., None], road)
    kerb = np.clip((0.03 - np.abs(np.abs(side) - _ROAD)) / soft + 0.5, 0, 1)
    over(paint, rgb("#c9c4ba") * light, kerb * np.float32(0.8))
    dash = np.clip((0.022 - np.abs(side)) / soft + 0.5, 0, 1) * ((far * 0.9) % 1.0 < 0.5)
    over(paint, np.clip(rgb("#e9e4d4") * light, 0, 1), dash * np.float32(0.0 if wintry else 0.8))
    wet = (
        0.5
        if stage.weather in ("rain", "storm")
        else 0.3
        if view.neon
        else 0.16
        if stage.palette.dark
        else 0.0
    )
    if wet:
        mirror = stage.image[max(0, top - rows) : top][::-1]
        mirror = np.concatenate([mirror, np.repeat(mirror[-1:], rows - mirror.shape[0], 0)])
        streak = np.roll(blur(mirror, stage.unit * 0.5), round(stage.unit), 0)
        over(paint, streak, np.clip(wet * (1 + 0.5 * grain), 0, 0.8).astype(np.float32))
    over(paint, stage.palette.haze, np.broadcast_to(np.clip((far - 2) / _FAR, 0, 0.8), grain.shape))
    part = stage.image[top:]
    over(part, np.clip(paint, 0, 1), within)
    stage.depth[top:] = np.clip(0.06 + far / _FAR * 0.7, 0, 0.9) + np.zeros_like(grain)


def _at(view: _View, side: float, up: float, far: float) -> tuple[float, float]:
    return view.x + side / far * view.scale, view.y - (up - _EYE) / far * view.scale


def _lamps(stage: SceneStage, view: _View) -> None:
    """Add street lamps on both sides, larger nearby."""
    posts, heads = [], []
    for far in (9.0, 6.2, 4.2, 2.9, 2.0):
        for side in (-1.12, 1.12):
            foot, top = _at(view, side, 0.0, far), _at(view, side, 1.12, far)
            arm = _at(view, side * 0.86, 1.16, far)
            thin = max(0.6, 0.012 / far * view.scale)
            posts += [_bar(foot, top, thin), _bar(top, arm, thin * 0.8)]
            heads.append((arm, max(1.0, 0.035 / far * view.scale)))
    tone = stage.palette.lit(rgb("#33383f"), 0.3)
    stage.add_layer(tone, fill(stage.shape, posts), 0.3)
    discs = [_round(at, size) for at, size in heads]
    mask = fill(stage.shape, discs)
    if not view.lively:
        over(stage.image, rgb("#e8e4d8"), mask * np.float32(0.8))
        return
    warm = rgb("#ffd9a0")
    glow(stage.image, warm, np.clip(blur(mask, stage.unit * 3.0) * np.float32(3.0), 0, 0.7))
    over(stage.image, rgb("#fff3d6"), mask)


def _bar(a: tuple[float, float], b: tuple[float, float], half: float) -> NDArray[Any]:
    run = np.array([b[0] - a[0], b[1] - a[1]], np.float32)
    normal = np.array([-run[1], run[0]], np.float32) / np.float32(max(float(np.hypot(*run)), 1e-3) / half)
    first, last = np.array(a, np.float32), np.array(b, np.float32)
    return np.stack([first + normal, last + normal, last - normal, first - normal])


def _round(at: tuple[float, float], size: float) -> NDArray[Any]:
    angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    return np.stack([at[0] + np.cos(angle) * size, at[1] + np.sin(angle) * size], 1).astype(np.float32)


def _signs(stage: SceneStage, view: _View) -> None:
    """Add upright signs that project from the walls, with their light."""
    rng = stage.rng("signs")
    lights = np.zeros(stage.image.shape, np.float32)
    for far in (7.0, 5.2, 3.9, 3.0, 2.3, 1.8):
        for side in (-1, 1):
            tone: Color = rgb(_NEON[int(rng.integers(len(_NEON)))])
            low, high = float(rng.uniform(0.75, 1.1)), float(rng.uniform(0.5, 1.1))
            inner, outer = side * float(rng.uniform(1.12, 1.3)), side * (_HALF - 0.04)
            corners = [
                _at(view, x, up, far)
                for x, up in ((inner, low), (outer, low), (outer, low + high), (inner, low + high))
            ]
            box = np.array(corners, np.float32)
            middle = box.mean(0)
            over(stage.image, rgb("#120a1e"), fill(stage.shape, [box]))
            tubes = [((box - middle) * np.float32(s) + middle) for s in (0.92, 0.80)]
            frame = np.clip(fill(stage.shape, tubes[:1]) - fill(stage.shape, tubes[1:]), 0, 1)
            marks = int(rng.integers(3, 6))
            strokes = []
            for at in range(marks):
                y = box[3, 1] + (box[0, 1] - box[3, 1]) * (at + 0.5) / marks
                reach = abs(box[1, 0] - box[0, 0]) * float(rng.uniform(0.14, 0.28))
                thick = abs(box[0, 1] - box[3, 1]) / marks * 0.16
                strokes.append(_bar((middle[0] - reach, y), (middle[0] + reach, y), max(0.5, thick)))
            shine = np.clip(frame + fill(stage.shape, strokes), 0, 1)
            over(stage.image, tone, shine)
            np.maximum(lights, tone * shine[..., None], out=lights)
    stage.image += (1 - np.clip(stage.image, 0, 1)) * np.clip(
        blur(lights, stage.unit * 2.4) * np.float32(1.8), 0, 0.8
    )
