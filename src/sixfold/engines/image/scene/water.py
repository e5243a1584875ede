"""Water: what stands above it mirrored and rippled, its own color, glints, surf."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.canvas import Image, glow, mix, over, rgb, saturate
from sixfold.engines.image.scene.stage import SceneStage

# how rough the water is, by place and then by weather
_ROUGH = {"lake": 0.35, "river": 0.55, "sea": 1.0, "beach": 0.9, "city": 0.6}
_WIND = {"storm": 1.9, "rain": 1.25, "fog": 0.6, "snow": 0.8}


def _surface(stage: SceneStage, top: int, rough: float) -> tuple[Image, Image]:
    """Slopes of the water in perspective, from row `top` down: fine far off, broad near."""
    rng = stage.rng("water")
    texture = noise.tile(rng, 512, 9, 6, 0.60)
    rows = stage.height - top
    down = (np.arange(rows, dtype=np.float32) + 1.5) / np.float32(stage.height)
    z = 0.30 / (down + 0.004)
    x = (np.arange(stage.width, dtype=np.float32) / np.float32(stage.width) - np.float32(0.5)) * np.float32(
        stage.width / stage.height
    )
    u = np.ascontiguousarray(x[None, :] * z[:, None] * np.float32(0.16))
    v = np.ascontiguousarray(np.broadcast_to(z[:, None] * np.float32(0.62), u.shape))
    wave = noise.sample(texture, u, v)
    fine = noise.sample(texture, u * 3.7 + 0.3, v * 3.1)
    fade = np.clip(down * 9, 0.12, 1)[:, None]
    return (wave * 0.7 + fine * 0.5) * np.float32(rough) * fade, down[:, None]


def _mirror(stage: SceneStage, top: int, slope: Image, reach: float) -> Image:
    """What the water reflects: the image above row `top`, turned over and shaken."""
    rows = stage.height - top
    y = np.arange(rows, dtype=np.float32)[:, None]
    up = (
        np.float32(top)
        - y * np.float32(min(1.0, top / max(rows, 1)))
        - 1
        - np.abs(slope) * np.float32(reach * 5)
        - slope * y * np.float32(0.20)
    )
    x = np.arange(stage.width, dtype=np.float32)[None, :] + slope * np.float32(reach * 1.4)
    source = cv2.GaussianBlur(np.clip(stage.image[:top], 0, 1), (0, 0), sigmaX=0.8, sigmaY=stage.unit * 0.9)
    return cv2.remap(source, x, np.clip(up, 0, top - 1), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


def _glints(stage: SceneStage, top: int, slope: Image, down: Image) -> Image:
    """Sparkle under the light: a path of bright facets, widening toward the viewer."""
    x = np.arange(stage.width, dtype=np.float32)[None, :] - np.float32(stage.light_at[0])
    spread = stage.width * (0.025 + 0.16 * down)
    path = np.exp(-((x / spread) ** 2))
    facets = noise.smoothstep(0.30, 0.75, slope * 1.3 + path * 0.36)
    return facets * path


def paint(stage: SceneStage) -> None:
    """Turn the stage's water mask into water."""
    plane = stage.water
    if plane is None or not plane.any():
        return
    top = int(np.argmax(plane.max(1) > 0.3))
    top = max(4, min(stage.height - 4, max(top, int(stage.horizon))))
    rough = _ROUGH.get(stage.place, 0.6) * _WIND.get(stage.weather, 1.0)
    slope, down = _surface(stage, top, rough)
    mirror = _mirror(stage, top, slope, stage.unit)
    palette = stage.palette
    tint = rgb("#1d7f8c") if stage.place == "beach" else rgb("#154a63")
    body = palette.lit(saturate(tint, 0.95), 0.45)
    body = mix(body, palette.sky[1], 0.22)
    grazing = np.clip(1.0 - down * 1.9, 0.0, 1) ** 1.5 * 0.55 + 0.36
    facing = np.clip(grazing - slope * 0.42, 0.06, 0.96)
    water = body + (mirror - body) * facing[..., None]
    water *= np.clip(1 - np.maximum(-slope, 0) * 0.35, 0.5, 1)[..., None]
    if stage.weather not in ("rain", "storm", "fog", "snow"):
        strong = {"day": 0.55, "night": 0.75}.get(stage.time, 1.0)
        glow(water, palette.sun, _glints(stage, top, slope, down) * np.float32(strong))
    caps = {"storm": 0.55, "sea": 0.85}.get("storm" if stage.weather == "storm" else stage.place, 9.0)
    if caps < 2:
        foam = noise.smoothstep(caps, caps + 0.35, slope * (0.6 + down * 1.6))
        over(water, palette.lit(rgb("#f2f6f8"), 0.55), foam * np.float32(0.55))
    haze = np.exp(-down * (26.0 if stage.weather != "fog" else 6.0)) * np.float32(0.55)
    over(water, palette.haze, haze)
    over(stage.image[top:], np.clip(water, 0, 1), plane[top:])
    depth = stage.depth[top:]
    depth += (np.clip(0.75 - down * 1.3, 0.05, 1) - depth) * plane[top:]
    stage.step("water")


def shore(stage: SceneStage) -> None:
    """A sandy beach in the foreground, with wet sand and lines of surf."""
    rng = stage.rng("shore")
    height, width = stage.shape
    x = np.linspace(0, 1, width, dtype=np.float32)
    side = 1.0 if stage.layout.flip else -1.0
    line = (
        0.80
        + side * 0.11 * (x - 0.5) * 2
        + 0.018 * np.sin(x * 7 + float(rng.random()) * 6)
        + noise.fbm(rng, (1, width), (1, 5), 4)[0] * 0.010
    )
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    inland = (y - line[None, :]) * np.float32(1 / 0.2)
    grain = noise.fbm(rng, stage.shape, (height / 3, width / 5), 3, 0.7)
    dunes = noise.fbm(rng, stage.shape, (9, 4), 4)
    sand = stage.palette.lit(rgb("#edd6a8"), 0.72) * (0.97 + 0.045 * grain + 0.06 * dunes)[..., None]
    wet = mix(stage.palette.lit(rgb("#a98a5f"), 0.45), stage.palette.sky[2], 0.35)
    paint_sand = sand + (wet - sand) * (1 - noise.smoothstep(0.06, 0.30, inland + dunes * 0.05))[..., None]
    stage.lay(np.clip(paint_sand, 0, 1), noise.smoothstep(-0.015, 0.02, inland), 0.08)
    lace = noise.fbm(rng, stage.shape, (26, 34), 5, 0.6)
    for offset, width_, strength in (
        (-0.02, 0.05, 0.95),
        (-0.23, 0.045, 0.7),
        (-0.42, 0.03, 0.5),
        (-0.58, 0.02, 0.35),
    ):
        shift = noise.fbm(rng, (1, width), (1, 4), 3)[0] * np.float32(0.05)
        band = np.abs(inland - offset - shift[None, :] + lace * 0.03) / np.float32(width_)
        foam = np.clip(1 - band, 0, 1) * np.clip(0.75 + lace, 0.1, 1)
        over(
            stage.image,
            stage.palette.lit(rgb("#ffffff"), 0.68),
            np.clip(foam * np.float32(strength * 1.3), 0, 1),
        )
    if stage.water is not None:
        stage.water = stage.water * (1 - noise.smoothstep(-0.015, 0.02, inland))
