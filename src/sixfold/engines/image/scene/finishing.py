"""The six looks, the model of each look, and the effect of steps and guidance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import cv2
import msgspec
import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.canvas import (
    Color,
    Image,
    blur,
    distance,
    luma,
    mix,
    over,
    ramp,
    rgb,
    saturate,
)
from sixfold.engines.image.scene.stage import SceneStage


def _gray(image: Image) -> Image:
    return cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY)


def vivid(image: Image, amount: float) -> Image:
    """Return `image` with its chroma multiplied by `amount`."""
    gray = _gray(image)[..., None]
    return np.clip(gray + (image - gray) * np.float32(amount), 0, 1)


def bloom(stage: SceneStage, image: Image, threshold: float, spread: float, amount: float) -> Image:
    """Return `image` with bright parts glowing beyond their edges; white parts are unchanged."""
    shine = blur(np.clip(image - np.float32(threshold), 0, 1), stage.unit * spread) * np.float32(amount)
    return image + (1 - np.clip(image, 0, 1)) * np.clip(shine, 0, 1)


def vignette(stage: SceneStage, strength: float) -> None:
    reach = distance(stage.shape, (stage.width / 2, stage.height / 2)) / np.float32(
        np.hypot(*stage.shape) / 2
    )
    if stage.place == "studio":
        strength *= 0.0 if stage.scene.backdrop in ("white", "black") or stage.scene.frame == "icon" else 0.4
    stage.image *= (1 - np.float32(strength) * np.clip(reach - 0.35, 0, 1) ** 1.5)[..., None]


def _flow(image: Image, sigma: float) -> tuple[Image, Image]:
    """Return unit vectors along the image's edges, the direction of strokes."""
    gray = _gray(image)
    dx, dy = cv2.Sobel(gray, cv2.CV_32F, 1, 0), cv2.Sobel(gray, cv2.CV_32F, 0, 1)
    xx, yy, xy = (blur(plane, sigma) for plane in (dx * dx, dy * dy, dx * dy))
    angle = 0.5 * np.arctan2(2 * xy, xx - yy + 1e-7) + np.float32(np.pi / 2)
    return np.cos(angle), np.sin(angle)


def _strokes(stage: SceneStage, length: float, bristle: float, jitter: float) -> None:
    """Smear paint along the flow and add bristle marks."""
    image = np.clip(stage.image, 0, 1)
    height, width = stage.shape
    half = (max(2, width // 2), max(2, height // 2))
    small = cv2.resize(image, half, interpolation=cv2.INTER_AREA)
    fx, fy = (cv2.resize(plane, (width, height)) for plane in _flow(small, stage.unit * 0.8))
    rng = stage.rng("strokes")
    patch = noise.octave(rng, height, width, (height / (stage.unit * 1.1), width / (stage.unit * 1.1)))
    patch2 = noise.octave(rng, height, width, (height / (stage.unit * 1.1), width / (stage.unit * 1.1)))
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    fine = max(2.2, stage.unit * 0.30)
    grain = noise.octave(rng, height, width, (height / fine, width / fine))
    total, ridges = image.copy(), grain.copy()
    for step in (-1.0, -0.5, 0.5, 1.0):
        reach = np.float32(step * length * stage.unit)
        mx = x + fx * reach + patch * np.float32(jitter * stage.unit)
        my = y + fy * reach + patch2 * np.float32(jitter * stage.unit)
        total += cv2.remap(image, mx, my, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        ridges += cv2.remap(
            grain, x + fx * reach, y + fy * reach, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
        )
    painted = total / 5
    ridges = cv2.GaussianBlur(ridges, (0, 0), 0.8)
    relief = ridges - cv2.warpAffine(
        ridges,
        np.array([[1, 0, 1.2], [0, 1, 1.2]], np.float32),
        (width, height),
        borderMode=cv2.BORDER_REPLICATE,
    )
    stage.image = np.clip(
        painted * (1 + ridges * np.float32(bristle * 0.35))[..., None]
        + (relief * np.float32(bristle * 0.25))[..., None],
        0,
        1,
    )


def painterly(stage: SceneStage) -> None:
    """Apply the look of `ra1`: digital painting, visible brushwork, glowing light."""
    _strokes(stage, 0.45 if stage.palette.dark else 0.85, 0.05, 0.10)
    stage.image = vivid(bloom(stage, stage.image, 0.62, 2.2, 1.0), 1.14)
    stage.image = np.clip(
        stage.image + (stage.image - blur(stage.image, stage.unit * 3)) * np.float32(0.22), 0, 1
    )
    vignette(stage, 0.32)


def cel(stage: SceneStage) -> None:
    """Apply the look of `anime`: clean colors in soft bands, ink outlines, bright saturated skies."""
    image = np.clip(stage.image, 0, 1)
    eight = np.round(image * 255).astype(np.uint8)
    height, width = stage.shape
    half = cv2.resize(eight, (max(2, width // 2), max(2, height // 2)), interpolation=cv2.INTER_AREA)
    for _ in range(2):
        half = cv2.bilateralFilter(half, 7, 34, 7)
    flat = cv2.resize(half, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.float32) / 255
    gray = _gray(flat)
    levels = 9.0
    stepped = gray * levels
    whole = np.floor(stepped)
    banded = (whole + noise.smoothstep(0.36, 0.64, stepped - whole)) / np.float32(levels)
    flat = np.clip(flat * (banded / np.maximum(gray, 0.02))[..., None], 0, 1)
    flat = vivid(np.clip(flat * 1.06 + 0.02, 0, 1), 1.42)
    lines = _ink(stage, image)
    over(flat, rgb("#1b1730"), lines)
    stage.image = np.clip(flat, 0, 1)


def _ink(stage: SceneStage, image: Image) -> Image:
    """Return outlines where depth or tone changes sharply (difference of Gaussians)."""
    plane = _gray(image) * np.float32(0.8) + stage.depth * np.float32(0.7)
    sigma = max(0.6, stage.unit * 0.10)
    fine = cv2.GaussianBlur(plane, (0, 0), sigma)
    wide = cv2.GaussianBlur(plane, (0, 0), sigma * 1.7)
    return noise.smoothstep(0.014, 0.045, wide - fine) * np.float32(0.85)


def photographic(stage: SceneStage) -> None:
    """Apply the look of `photoreal`: lens blur by depth, fine texture, bloom, tone curve, grain, vignette."""
    image = np.clip(stage.image, 0, 1)
    rng = stage.rng("lens")
    near = (
        noise.smoothstep(0.10, 0.0, stage.depth)
        if stage.scene.subjects or stage.place != "abstract"
        else None
    )
    if near is not None and stage.place not in ("space", "interior"):
        over(image, blur(image, stage.unit * 0.35), np.clip(1 - stage.depth * 12, 0, 1) * np.float32(0.9))
    if stage.scene.subjects:
        over(
            image,
            blur(image, stage.unit * 0.32),
            noise.smoothstep(0.35, 0.75, stage.depth) * np.float32(0.85),
        )
    texture = noise.fbm(rng, stage.shape, (stage.height / 6, stage.width / 6), 3, 0.75)
    solid = 1 - noise.smoothstep(0.80, 0.98, stage.depth)
    image *= (1 + texture * np.float32(0.026) * solid)[..., None]
    image = vivid(np.clip(bloom(stage, image, 0.70, 3.0, 1.0), 0, 1), 0.84)
    curve = image * image * (3 - 2 * image)
    image = image * np.float32(0.55) + curve * np.float32(0.45)
    image = image * np.array([1.02, 1.0, 0.975], np.float32) + np.array([0.012, 0.016, 0.026], np.float32)
    sharp = image + (image - cv2.GaussianBlur(image, (0, 0), 1.1)) * np.float32(0.55)
    grain = rng.standard_normal(stage.shape, dtype=np.float32)
    grain = cv2.GaussianBlur(grain, (0, 0), 0.6) * np.float32(0.022)
    stage.image = np.clip(sharp + grain[..., None], 0, 1)
    vignette(stage, 0.50)


def gouache(stage: SceneStage) -> None:
    """Apply the look of `create_image`: opaque gouache on textured paper."""
    _strokes(stage, 0.6, 0.03, 0.25)
    tooth = noise.fbm(stage.rng("tooth"), stage.shape, (stage.height / 3, stage.width / 3), 2, 0.7)
    stage.image = vivid(stage.image, 1.06) * (0.985 + tooth * np.float32(0.045))[..., None]
    stage.image = np.clip(stage.image * np.float32(0.93) + np.array([0.060, 0.052, 0.040], np.float32), 0, 1)


def cinematic(stage: SceneStage) -> None:
    """Apply the look of `ra2`: teal shadows, amber lights, deep contrast."""
    gray = _gray(np.clip(stage.image, 0, 1))[..., None]
    image = np.clip(stage.image, 0, 1)
    image = image * image * (3 - 2 * image) * np.float32(0.6) + image * np.float32(0.4)
    image += (1 - gray) ** 2 * np.array([-0.03, 0.012, 0.035], np.float32) + gray**2 * np.array(
        [0.05, 0.015, -0.05], np.float32
    )
    stage.image = np.clip(bloom(stage, image, 0.66, 3.0, 1.0), 0, 1)
    _strokes(stage, 0.4, 0.02, 0.12)
    vignette(stage, 0.55)


def _inks(stage: SceneStage) -> list[Color]:
    """Return four inks from the colors of the image, dark to light, and the paper color."""
    tiny = cv2.resize(np.clip(stage.image, 0, 1), (24, 24), interpolation=cv2.INTER_AREA).reshape(-1, 3)
    order = np.argsort(tiny @ np.array([0.299, 0.587, 0.114], np.float32))
    picks = [tiny[order[int(share * 575)]] for share in (0.06, 0.30, 0.58, 0.84)]
    targets = (0.16, 0.38, 0.60, 0.80)
    inks = []
    for pick, target in zip(picks, targets, strict=True):
        tone = saturate(pick.astype(np.float32), 1.9)
        tone = np.clip(tone * np.float32(target / max(luma(tone), 0.03)), 0, 1).astype(np.float32)
        inks.append(saturate(tone, 1.25))
    return [*inks, rgb("#f7f0e0")]


def riso(stage: SceneStage) -> None:
    """Apply the look of `klein`: five flat inks with halftone edges, slightly misregistered, on cream paper.

    If the prompt names colors, all colors of the image are kept and only the tones are printed.
    """
    image = cv2.GaussianBlur(np.clip(stage.image, 0, 1), (0, 0), max(0.5, stage.unit * 0.22))
    gray = _gray(image)
    low, high = (float(v) for v in np.percentile(gray[::4, ::4], (3, 97)))
    tone = np.clip((gray - low) / max(high - low, 0.05), 0, 1)
    height, width = stage.shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    pitch = max(3.2, stage.unit * 0.62)
    dots = (
        np.sin((x * 0.866 + y * 0.5) * (2 * np.pi / pitch))
        * np.sin((y * 0.866 - x * 0.5) * (2 * np.pi / pitch))
    ) * np.float32(0.5)
    level = tone * np.float32(4.0) + dots * np.float32(0.62)
    if stage.scene.names_colors:
        printed = np.float32(low) + np.clip(np.round(level), 0, 4) * np.float32((high - low) / 4)
        gain = np.clip(printed / np.maximum(gray, np.float32(0.03)), 0.75, 1.3)
        stage.image = np.clip(image * gain[..., None], 0, 1)
        return
    inks = _inks(stage)
    result = np.broadcast_to(inks[-1], stage.image.shape).copy()
    rng = stage.rng("register")
    for index in (3, 2, 1, 0):
        cover = np.clip((np.float32(index + 0.5) - level) * np.float32(3.0) + 0.5, 0, 1)
        shift = rng.uniform(-0.22, 0.22, 2) * stage.unit
        move = np.array([[1, 0, shift[0]], [0, 1, shift[1]]], np.float64)
        cover = cv2.warpAffine(cover, move, (width, height), borderMode=cv2.BORDER_REPLICATE)
        over(result, inks[index], cover)
    speck = noise.fbm(rng, stage.shape, (height / 2.5, width / 2.5), 2, 0.8)
    over(result, inks[-1], noise.smoothstep(0.75, 1.2, speck) * np.float32(0.4))
    stage.image = np.clip(result * (1 + speck * np.float32(0.025))[..., None], 0, 1)
    _border(stage, inks[-1])


def _border(stage: SceneStage, paper: Color) -> None:
    edge = max(2, round(stage.unit * 3.0))
    for side in (np.s_[:edge], np.s_[-edge:], np.s_[:, :edge], np.s_[:, -edge:]):
        stage.image[side] = paper


LOOKS: dict[str, Callable[[SceneStage], None]] = {
    "ra1": painterly,
    "ra2": cinematic,
    "anime": cel,
    "photoreal": photographic,
    "create_image": gouache,
    "create_image_klein": riso,
    "anime-image": cel,
    "fast-image-space": cinematic,
    "fast-image-native": photographic,
}


def finish(stage: SceneStage) -> None:
    """Apply the stage's look, except to icons."""
    if stage.scene.frame == "icon":
        return
    LOOKS.get(stage.look, painterly)(stage)


__all__ = ["LOOKS", "finish", "mix", "ramp", "vignette", "vivid"]


# Values of steps and guidance that leave the image unchanged.
_MIDDLE = 4.0
# Gain of fine detail per doubling of the steps, and its limits.
_FINISH, _FINEST, _SOFTEST = 0.12, 0.6, -0.3
# Gain of chroma and contrast per doubling of the guidance.
_COLOR, _CONTRAST = 0.10, 0.04
# Guidance below this has no further effect.
_MIN_GUIDANCE = 0.5
# Size of fine detail, in hundredths of the short side.
_FINE = 0.14


class RenderQuality(msgspec.Struct, frozen=True):
    """The `steps` and `guidance` of a request, None if absent.

    The scene engine does not sample, so a value of 4 for either leaves the image unchanged. Each doubling of
    the steps sharpens fine detail, each halving softens it; each doubling of the guidance raises color and
    contrast, each halving lowers them.
    """

    steps: float | None = None
    guidance: float | None = None

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> RenderQuality:
        """Return the quality that validated inputs of an image model or of a video model request."""
        return cls(
            _number(inputs, "steps", "num_inference_steps"), _number(inputs, "guidance", "guidance_scale")
        )

    def apply(self, image: Image) -> Image:
        """Return a painted image (float RGB, 0 to 1) with the detail and color adjusted."""
        if self.steps is not None and self.steps != _MIDDLE:
            share = float(np.clip(_FINISH * math.log2(max(1.0, self.steps) / _MIDDLE), _SOFTEST, _FINEST))
            fine = image - blur(image, max(0.8, _FINE * min(image.shape[:2]) / 100))
            image = np.clip(image + fine * np.float32(share), 0, 1)
        if self.guidance is not None and self.guidance != _MIDDLE:
            doublings = math.log2(max(_MIN_GUIDANCE, self.guidance) / _MIDDLE)
            image = vivid(image, 1 + _COLOR * doublings)
            image = np.clip((image - 0.5) * np.float32(1 + _CONTRAST * doublings) + np.float32(0.5), 0, 1)
        return image


AS_IT_IS = RenderQuality()


def _number(inputs: Mapping[str, Any], *names: str) -> float | None:
    value = next((inputs[name] for name in names if inputs.get(name) is not None), None)
    return None if value is None else float(value)
