"""Subjects: shapes of the library drawn into the image, with form, rim light, shadow and reflection."""

from __future__ import annotations

import colorsys

import cv2
import msgspec
import numpy as np

from sixfold.engines.image.scene import noise, shapes
from sixfold.engines.image.scene.canvas import Color, Image, blur, fill, glow, luma, mix, over, rgb
from sixfold.engines.image.scene.stage import SceneStage

_COLORS = {
    "red": "#c8302c", "orange": "#e07b28", "yellow": "#eec73a", "gold": "#d9a53a", "green": "#3f8f4e",
    "teal": "#2aa0a0", "blue": "#2f62c4", "purple": "#7a45b8", "pink": "#ea86ae", "brown": "#7c5234",
    "white": "#f2f2ef", "black": "#26262b", "grey": "#8d939b", "pastel": "#f0c9c9", "neon": "#ff3fd0",
}  # fmt: skip
# Combinations that name the usual color of the animal.
_USUAL_COLORS = (("red", "fox"), ("brown", "bear"), ("gold", "dog"), ("grey", "wolf"))
# Hair has special shades of red, gold and gray.
_WORN = {
    ("hair", "red"): "#b5502a", ("hair", "gold"): "#dcb46a", ("hair", "yellow"): "#e3c172",
    ("hair", "orange"): "#c8672c", ("hair", "grey"): "#b9bcc0", ("hair", "black"): "#1d1a1e",
    ("hair", "brown"): "#5a3a24", ("beard", "red"): "#a84c28", ("beard", "brown"): "#4f3320",
}  # fmt: skip


class SubjectSpot(msgspec.Struct, frozen=True):
    """The position of a shape: its foot and height in pixels, its mirroring and its depth.

    Nothing is visible below `cut`, a row of the image.
    """

    x: float
    foot: float
    height: float
    flip: bool = False
    depth: float = 0.1
    cut: float | None = None


class _SubjectSet(msgspec.Struct, frozen=True):
    """A shape rasterized in a window: its color and masks, and the window's position.

    `shine` covers lamps and windows, `flames` what glows in its own color.
    """

    color: Image
    mask: Image
    shine: Image
    flames: Image
    top: int
    left: int


def _window(
    stage: SceneStage, shape: shapes.SceneShape, spot: SubjectSpot
) -> tuple[int, int, int, int, float]:
    points = np.concatenate([part.outline for part in shape.parts])
    scale = spot.height / 100
    low, high = points.min(0), points.max(0)
    wide = (max(abs(low[0] - 50), abs(high[0] - 50)) + 4) * scale
    left, right = int(spot.x - wide), int(spot.x + wide) + 2
    top, bottom = int(spot.foot + (low[1] - 104) * scale), int(spot.foot + (high[1] - 96) * scale) + 2
    return max(0, top), min(stage.height, bottom), max(0, left), min(stage.width, right), scale


_BODY = ("coat", "body", "fur", "robe", "dress")


def _hue(color: Color) -> tuple[float, float]:
    """Return the hue of a color in turns, and its saturation."""
    hue, _, saturation = colorsys.rgb_to_hsv(*(float(v) for v in color))
    return hue, saturation


def _kin(color: Color, main: Color) -> bool:
    """Return whether a tone is a shade of the main color, and so changes with it."""
    (hue, strong), (other, strength) = _hue(color), _hue(main)
    if min(strong, strength) < 0.16:
        return max(strong, strength) < 0.28 and luma(main) > 0.6
    return min(abs(hue - other), 1 - abs(hue - other)) < 0.075


def _tints(stage: SceneStage, shape: shapes.SceneShape, color: str | None, dressed: bool) -> dict[str, Color]:
    """Return the colors that the prompt gives to roles of this shape, including worn parts."""
    tints: dict[str, Color] = {}
    if color in _COLORS and (color, shape.name) not in _USUAL_COLORS:
        tint = rgb(_COLORS[color])
        tints = dict.fromkeys(shape.colored, tint)
        main = next((p.role for p in shape.parts if p.role in ("body", "coat", "fur")), shape.parts[0].role)
        base_color = rgb(shape.tones.get(main, "#9fb6c8"))
        for role, tone in () if tints else shape.tones.items():
            shade = role in ("dark", "shade", "light") or role.endswith("2")
            if role == main or role in _BODY or (shade and _kin(rgb(tone), base_color)):
                tints[role] = tint
    if dressed:
        for role, name in stage.scene.worn:
            if name in _COLORS:
                tints[role] = tints[role + "2"] = rgb(_WORN.get((role, name), _COLORS[name]))
    return tints


def _tone(stage: SceneStage, shape: shapes.SceneShape, role: str, tints: dict[str, Color]) -> Color:
    color = rgb(shape.tones.get(role, "#ffd98a" if role == "glow" else "#9fb6c8"))
    if role.startswith("roof") and stage.is_wintry:
        return mix(color, rgb("#f4f7fc"), 0.85)
    tint = tints.get(role)
    if tint is None:
        return color
    return np.clip(tint * np.float32(0.35 + luma(color) * 0.3 + 0.45), 0, 1).astype(np.float32)


def _rasterize(
    stage: SceneStage, shape: shapes.SceneShape, spot: SubjectSpot, tints: dict[str, Color], dressed: bool
) -> _SubjectSet | None:
    top, bottom, left, right, scale = _window(stage, shape, spot)
    if bottom - top < 3 or right - left < 3:
        return None
    size = (bottom - top, right - left)
    color = np.zeros((*size, 3), np.float32)
    mask, shine, flames = (np.zeros(size, np.float32) for _ in range(3))
    worn = stage.scene.worn if dressed else ()
    named, bare = {role for role, color in worn if color != "none"}, {r for r, c in worn if c == "none"}
    center = np.array([50, 100], np.float32)
    move = np.array([spot.x - left, spot.foot - top], np.float32)
    sense = np.array([-scale if spot.flip else scale, scale], np.float32)
    for part in shape.parts:
        role = part.role.rstrip("2")
        if role in bare or (part.optional and role not in named):
            continue
        alpha = fill(size, [(part.outline - center) * sense + move])
        if part.cut:
            mask *= 1 - alpha
            continue
        over(color, _tone(stage, shape, part.role, tints), alpha)
        np.maximum(mask, alpha, out=mask)
        shine = np.maximum(shine * (1 - alpha), alpha if part.role == "glow" else 0)
        flames = np.maximum(flames * (1 - alpha), alpha if part.role.startswith("flame") else 0)
    if spot.cut is not None:
        mask[max(0, int(spot.cut) - top) :] = 0
    solid = np.maximum(mask, np.float32(1e-3))[..., None]
    return _SubjectSet(
        np.where(mask[..., None] > 0.02, color / np.minimum(solid * 1.0 + 0.0, 1), 0),
        mask,
        shine,
        flames,
        top,
        left,
    )


def _form(stage: SceneStage, cast: _SubjectSet, spot: SubjectSpot) -> tuple[Image, Image]:
    """Return the shading of the inflated silhouette (0 to 1), and its rim towards the light."""
    sigma = max(0.8, spot.height * 0.035)
    pad = int(sigma * 2) + 1
    padded = cv2.copyMakeBorder(cast.mask, pad, pad, pad, pad, cv2.BORDER_CONSTANT)
    puff = cv2.GaussianBlur(padded, (0, 0), sigma)[pad:-pad, pad:-pad]
    tone = cv2.cvtColor(np.ascontiguousarray(cast.color), cv2.COLOR_RGB2GRAY)
    puff = puff + cv2.GaussianBlur(tone, (0, 0), sigma * 0.6) * np.float32(0.18)
    dx = cv2.Sobel(puff, cv2.CV_32F, 1, 0, scale=sigma / 4)
    dy = cv2.Sobel(puff, cv2.CV_32F, 0, 1, scale=sigma / 4)
    aim = np.array([stage.light_at[0] - spot.x, stage.light_at[1] - (spot.foot - spot.height * 0.6)])
    aim = aim / max(float(np.linalg.norm(aim)), 1e-3)
    facing = -(dx * np.float32(aim[0]) + dy * np.float32(min(aim[1], -0.25)))
    thin = max(0.7, spot.height * 0.009)
    move = np.array([[1, 0, -aim[0] * thin * 2.2], [0, 1, -min(aim[1], -0.3) * thin * 2.2]], np.float64)
    shifted = cv2.warpAffine(
        cast.mask, move, (cast.mask.shape[1], cast.mask.shape[0]), flags=cv2.INTER_LINEAR
    )
    rim = np.clip(cast.mask - shifted, 0, 1)
    return np.clip(0.5 + facing * 1.1, 0, 1), cv2.GaussianBlur(rim, (0, 0), thin * 0.5) * cast.mask


def _light(stage: SceneStage, cast: _SubjectSet, spot: SubjectSpot) -> Image:
    palette = stage.palette
    if stage.scene.frame == "icon":
        return np.clip(cast.color, 0, 1)
    form, rim = _form(stage, cast, spot)
    back = {"day": 0.86, "dawn": 0.62, "sunset": 0.50, "dusk": 0.55, "night": 0.70}[stage.time]
    rows = np.linspace(1.06, 0.86, cast.mask.shape[0], dtype=np.float32)[:, None]
    light = palette.ambient * np.float32(1.05) + palette.light * (form * np.float32(back))[..., None]
    paint = cast.color * light * rows[..., None]
    if palette.dark:
        paint = paint * np.float32(1.15) + palette.sky[2] * np.float32(0.10)
    strength = {"day": 0.35, "night": 0.55}.get(stage.time, 0.95)
    if stage.weather in ("rain", "storm", "fog", "snow"):
        strength *= 0.45
    warm = np.clip(palette.sun * 0.6 + palette.light * np.float32(0.4 / 1.3), 0, 1)
    over(paint, warm.astype(np.float32), np.clip(rim * np.float32(strength), 0, 0.9))
    paint = stage.far(paint, spot.depth)
    over(paint, cast.color, cast.flames)
    over(paint, rgb("#fff0c0"), cast.shine)
    return np.clip(paint, 0, 1)


def _shadow(stage: SceneStage, cast: _SubjectSet, spot: SubjectSpot) -> None:
    """Paint a contact shadow, and a cast shadow away from the light."""
    lean = float(np.clip((spot.x - stage.light_at[0]) / stage.width, -0.8, 0.8)) * 1.3
    length = {"day": 0.22, "night": 0.3}.get(stage.time, 0.42)
    strength = 0.5 if stage.weather in ("clear", "fair") else 0.22
    height, width = cast.mask.shape
    foot = spot.foot - cast.top
    source = np.array([[0, foot], [width, foot], [0, foot - spot.height]], np.float32)
    x, y = cast.left, spot.foot
    drop = spot.height * length
    target = np.array([[x, y], [x + width, y], [x + lean * spot.height, y + drop]], np.float32)
    matrix = cv2.getAffineTransform(source, target)
    shade = cv2.warpAffine(cast.mask, matrix, (stage.width, stage.height), flags=cv2.INTER_LINEAR)
    shade[: max(0, int(spot.foot - 2))] = 0
    fade = np.clip(1.15 - (np.arange(stage.height, dtype=np.float32) - y) / np.float32(drop + 1), 0, 1)[
        :, None
    ]
    shade = blur(shade, max(0.8, spot.height * 0.012)) * fade * np.float32(strength)
    wide = float(cast.mask[-max(2, height // 8) :].max(0).sum()) * 0.6
    ellipse = np.zeros(stage.shape, np.uint8)
    cv2.ellipse(
        ellipse,
        (round(spot.x), round(y)),
        (max(2, round(wide)), max(1, round(spot.height * 0.03))),
        0,
        0,
        360,
        255,
        -1,
    )
    contact = blur(ellipse.astype(np.float32) / 255, max(0.8, spot.height * 0.02)) * np.float32(0.5)
    over(
        stage.image,
        mix(stage.palette.ambient * np.float32(0.3), rgb("#101020"), 0.4),
        np.maximum(shade, contact),
    )


def _reflection(stage: SceneStage, cast: _SubjectSet, paint: Image, spot: SubjectSpot) -> None:
    height, width = cast.mask.shape
    foot = round(spot.foot)
    rows = min(stage.height - foot, height)
    if rows < 3:
        return
    ripple = noise.fbm(stage.rng("ripple"), (rows, width), (rows / max(1.0, stage.unit * 1.3), 3), 3)
    y = np.arange(rows, dtype=np.float32)[:, None] + ripple * np.float32(stage.unit * 0.5)
    x = np.arange(width, dtype=np.float32)[None, :] + ripple * np.float32(
        stage.unit * (0.6 + 1.4 * np.linspace(0, 1, rows, dtype=np.float32)[:, None])
    )
    at = np.clip(np.float32(spot.foot - cast.top) - y, 0, height - 1)
    x = np.broadcast_to(x, at.shape).astype(np.float32)
    alpha = (
        cv2.remap(cast.mask, x, at, cv2.INTER_LINEAR)
        * np.linspace(0.72, 0.10, rows, dtype=np.float32)[:, None]
    )
    image = cv2.remap(paint, x, at, cv2.INTER_LINEAR) * np.float32(0.72)
    over(stage.image[foot : foot + rows, cast.left : cast.left + width], image, alpha)


def _separate(stage: SceneStage, cast: _SubjectSet, paint: Image, spot: SubjectSpot) -> None:
    """Separate a subject from a background of similar tone with a halo."""
    rows = slice(cast.top, cast.top + cast.mask.shape[0])
    columns = slice(cast.left, cast.left + cast.mask.shape[1])
    behind = stage.image[rows, columns]
    weight = cast.mask[..., None] / np.float32(max(float(cast.mask.sum()), 1.0))
    own, ground = luma((paint * weight).sum((0, 1))), luma((behind * weight).sum((0, 1)))
    close = max(0.0, 1 - abs(own - ground) / 0.22)
    if close == 0.0:
        return
    spread = spot.height * 0.11
    pad = int(spread * 2)
    halo = np.zeros(stage.shape, np.float32)
    halo[rows, columns] = cast.mask
    top, left = max(0, cast.top - pad), max(0, cast.left - pad)
    box = slice(top, rows.stop + pad), slice(left, columns.stop + pad)
    air = (
        mix(mix(stage.palette.haze, stage.palette.sky[3], 0.5), stage.palette.sun, 0.3)
        if own < 0.5
        else stage.palette.cloud_shade
    )
    over(stage.image[box], air, np.clip(blur(halo[box], spread) * np.float32(0.75 * close), 0, 0.7))


def draw(
    stage: SceneStage,
    name: str,
    spot: SubjectSpot,
    color: str | None = None,
    grounded: bool = True,
    dressed: bool = False,
) -> Image | None:
    """Draw library shape `name` at `spot`, and return its mask, or None if it is too small to draw.

    `grounded` shapes cast a shadow or, on water, a reflection; a `dressed` shape wears the clothes in the
    prompt.
    """
    shape = shapes.library()[name]
    cast = _rasterize(stage, shape, spot, _tints(stage, shape, color, dressed), dressed)
    if cast is None:
        return None
    paint = _light(stage, cast, spot)
    wet = stage.water is not None and _wet(stage, spot)
    if grounded and not wet:
        _shadow(stage, cast, spot)
    rows, columns = (
        slice(cast.top, cast.top + cast.mask.shape[0]),
        slice(cast.left, cast.left + cast.mask.shape[1]),
    )
    if grounded and wet:
        _reflection(stage, cast, paint, spot)
    if stage.place not in ("studio", "interior"):
        _separate(stage, cast, paint, spot)
    over(stage.image[rows, columns], paint, cast.mask)
    depth = stage.depth[rows, columns]
    depth += (np.float32(spot.depth) - depth) * cast.mask
    if cast.shine.any():
        halo = np.zeros(stage.shape, np.float32)
        halo[rows, columns] = np.maximum(cast.shine, cast.flames)
        glow(stage.image, rgb("#ffc46a"), np.clip(blur(halo, spot.height * 0.09) * 2.2, 0, 0.8))
    mask = np.zeros(stage.shape, np.float32)
    mask[rows, columns] = cast.mask
    return mask


def _wet(stage: SceneStage, spot: SubjectSpot) -> bool:
    y, x = int(min(stage.height - 1, spot.foot)), int(np.clip(spot.x, 0, stage.width - 1))
    return stage.water is not None and bool(stage.water[y, x] > 0.5)
