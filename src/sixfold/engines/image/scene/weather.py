"""What falls or hangs between the viewer and the scene."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.scene import noise, sky
from sixfold.engines.image.scene.canvas import Image, blur, glow, mix, over, rgb
from sixfold.engines.image.scene.stage import SceneStage


def rain(stage: SceneStage) -> None:
    """Slanting streaks in three depths."""
    rng = stage.rng("rain")
    slant = float(rng.uniform(0.10, 0.24)) * (1 if stage.layout.flip else -1)
    for count, length, light in ((900, 3.2, 0.16), (420, 6.5, 0.24), (130, 12.0, 0.30)):
        layer = np.zeros(stage.shape, np.uint8)
        thick = max(1, round(stage.unit * length * 0.018))
        for _ in range(count):
            x, y = float(rng.uniform(-0.2, 1.2)) * stage.width, float(rng.uniform(-0.1, 1)) * stage.height
            run = stage.unit * length * float(rng.uniform(0.6, 1.2))
            end = (round((x + run * slant) * 16), round((y + run) * 16))
            cv2.line(
                layer, (round(x * 16), round(y * 16)), end, int(rng.integers(90, 255)), thick, cv2.LINE_AA, 4
            )
        glow(stage.image, rgb("#dfe9f4"), layer.astype(np.float32) / 255 * np.float32(light))


def snow(stage: SceneStage) -> None:
    """Flakes: a fine fall far off, soft large ones near."""
    rng = stage.rng("snow")
    for count, radius, soft in ((1100, 0.11, 0.0), (420, 0.21, 0.1), (110, 0.42, 0.25), (20, 1.1, 0.7)):
        layer = np.zeros(stage.shape, np.uint8)
        for _ in range(count):
            at = (
                round(float(rng.uniform(0, stage.width)) * 16),
                round(float(rng.uniform(0, stage.height)) * 16),
            )
            size = max(8, round(stage.unit * radius * float(rng.uniform(0.6, 1.3)) * 16))
            cv2.circle(layer, at, size, int(rng.integers(130, 255)), -1, cv2.LINE_AA, 4)
        flakes = layer.astype(np.float32) / 255
        flakes = blur(flakes, stage.unit * soft) if soft else flakes
        over(
            stage.image,
            mix(rgb("#ffffff"), stage.palette.sky[2], 0.12),
            np.clip(flakes, 0, 1) * np.float32(0.85 if soft < 0.5 else 0.5),
        )


def fog(stage: SceneStage) -> None:
    """Banks of mist that hide what is far and drift over what is near."""
    rng = stage.rng("fog")
    banks = noise.fbm(rng, stage.shape, (7, 2.5), 5, 0.55)
    y = np.arange(stage.height, dtype=np.float32)[:, None] / np.float32(stage.height)
    low = np.exp(-((y - np.float32(stage.layout.horizon)) ** 2) * 16)
    amount = np.clip(stage.depth * 0.34 * (0.2 + low) + (0.16 + 0.42 * banks) * low + 0.04, 0, 0.85)
    over(stage.image, mix(stage.palette.haze, stage.palette.sky[3], 0.5), amount)


def splashes(stage: SceneStage, mask: Image) -> None:
    """Rings where rain meets water."""
    rng = stage.rng("splashes")
    layer = np.zeros(stage.shape, np.uint8)
    top = int(stage.horizon)
    for _ in range(150):
        t = float(rng.random()) ** 0.7
        at = (int(rng.integers(0, stage.width)), int(top + (stage.height - top) * t))
        wide = max(1, round(stage.unit * (0.2 + 1.5 * t)))
        cv2.ellipse(
            layer, at, (wide, max(1, wide // 4)), 0, 0, 360, int(rng.integers(60, 200)), 1, cv2.LINE_AA
        )
    glow(stage.image, rgb("#e6eef5"), layer.astype(np.float32) / 255 * mask * np.float32(0.35))


_SHELTERED = ("space", "moon", "mars", "underwater", "interior", "studio")


def veil(stage: SceneStage, *, lightning: bool = True) -> None:
    """What the weather does to the view, before the image gets its look."""
    if stage.place in _SHELTERED:
        return
    if stage.weather == "storm" and lightning:
        sky.lightning(stage)
    if stage.weather in ("rain", "storm"):
        over(stage.image, stage.palette.haze, stage.depth * np.float32(0.26))
        if stage.water is not None:
            splashes(stage, stage.water)
    elif stage.weather == "snow":
        over(stage.image, mix(stage.palette.haze, rgb("#ffffff"), 0.25), stage.depth * np.float32(0.10))
    elif stage.weather == "fog":
        fog(stage)
    stage.step("weather")


def fall(stage: SceneStage) -> None:
    """Drops and flakes in front of it all: brushes and outlines would smear them."""
    if stage.place in _SHELTERED:
        return
    if stage.weather in ("rain", "storm"):
        rain(stage)
    elif stage.weather == "snow":
        snow(stage)


def petals(stage: SceneStage) -> None:
    """Blossom or leaves on the wind, by season."""
    tones = {"spring": ("#f7c9d6", "#f2a7bd"), "autumn": ("#d9772b", "#e0a63a")}.get(stage.scene.season or "")
    if not tones:
        return
    rng = stage.rng("petals")
    for tone in tones:
        layer = np.zeros(stage.shape, np.uint8)
        for _ in range(46):
            at = (
                round(float(rng.uniform(0, stage.width)) * 16),
                round(float(rng.uniform(0, stage.height)) * 16),
            )
            size = stage.unit * float(rng.uniform(0.25, 0.85)) * 16
            axes = (max(8, round(size)), max(5, round(size * 0.5)))
            cv2.ellipse(layer, at, axes, float(rng.uniform(0, 180)), 0, 360, 255, -1, cv2.LINE_AA, 4)
        over(
            stage.image, stage.palette.lit(rgb(tone), 0.75), layer.astype(np.float32) / 255 * np.float32(0.9)
        )
