"""Motion within a scene: water, clouds, wind, mist, snow, rain, leaves, petals, sparks, firelight, lightning.

All motion is a function of the seed and the time, so that frames do not depend on earlier frames.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.prompt_parser import ParsedScene
from sixfold.engines.image.scene.words import place_choice
from sixfold.engines.video import parallax, yuv
from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.layers import SourceStill
from sixfold.engines.video.motion import motion_words
from sixfold.engines.video.motion.lightning import Lightning
from sixfold.engines.video.motion.wind import Sway
from sixfold.engines.video.parallax import ParallaxStage, Ripple
from sixfold.engines.video.task_parser import VideoTask
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]

_WET = frozenset({"sea", "lake", "river", "beach", "underwater"})
_SHELTERED = place_choice.WITHOUT_WEATHER | {"cave"}
_FLAMES = re.compile(
    r"\b(?:camp|bon)?fires?\b|\bflam(?:e|es|ing)\b|\bcandles?\b|\btorch(?:es)?\b|\blanterns?\b|\bfireplace\b"
    r"|\bembers?\b|\bhearth\b|\bkerze|\bfeuer|\bflicker"
)
_SPARKS = re.compile(r"\bembers?\b|\bsparks?\b|\bcampfire\b|\bbonfire\b|\bfireflies\b|\bfirefly\b|\blava\b")
_LEAVES = re.compile(r"\b(?:falling |autumn |drifting )?lea(?:f|ves)\b|\bfoliage\b")
_PETALS = re.compile(r"\bpetals?\b|\b(?:cherry )?blossoms?\b|\bsakura\b|\bconfetti\b")
_SKIES = re.compile(r"\bclouds?\b|\bcloudy\b|\bsky\b|\bskies\b|\btime[- ]?lapse\b|\bstorm")
_WATERS = re.compile(
    r"\bwater\b|\bwaves?\b|\bocean\b|\bsea\b|\blake\b|\briver\b|\bpond\b|\bripples?\b|\bstream\b"
)
_DUST = re.compile(
    r"\bdust(?:y)?\b|\bmotes?\b|\bmagic(?:al)?\b|\bsparkl\w*|\bpollen\b|\bsunbeams?\b|\bsun ?rays?\b"
)


# The words that start a motion, by the motion's name.
_WORDS = {
    "water": _WATERS, "sky": _SKIES, "flicker": _FLAMES, "sparks": _SPARKS, "leaves": _LEAVES,
    "petals": _PETALS, "motes": _DUST, "wind": motion_words.WIND, "lightning": motion_words.LIGHTNING,
    "rain": motion_words.RAIN, "snow": motion_words.SNOW, "mist": motion_words.MIST,
}  # fmt: skip


class ParticleFall(msgspec.Struct, frozen=True):
    """One kind of particle; `size` is a range in fractions of the frame height.

    `fall` and `drift` are the speeds of the nearest particles in heights and widths per second; `sway` is a
    fraction of the width.
    """

    name: str
    count: int
    size: tuple[float, float]
    fall: float
    drift: float
    sway: float
    colors: tuple[tuple[int, int, int], ...]
    strength: float
    shape: str = "disc"


PARTICLES = {
    "snow": ParticleFall("snow", 420, (0.0016, 0.0052), 0.13, 0.02, 0.012, ((246, 249, 255),), 0.85),
    "rain": ParticleFall("rain", 300, (0.016, 0.06), 1.5, 0.12, 0.0, ((214, 224, 236),), 0.3, "streak"),
    "leaves": ParticleFall(
        "leaves",
        34,
        (0.006, 0.014),
        0.13,
        0.05,
        0.03,
        ((196, 98, 34), (222, 152, 48), (168, 62, 36)),
        1.0,
        "leaf",
    ),
    "petals": ParticleFall(
        "petals", 46, (0.004, 0.010), 0.10, 0.06, 0.03, ((247, 205, 216), (240, 176, 196)), 0.95, "leaf"
    ),
    "sparks": ParticleFall(
        "sparks", 60, (0.0012, 0.0034), -0.16, 0.02, 0.02, ((255, 178, 74), (255, 214, 130)), 0.9, "glow"
    ),
    "motes": ParticleFall(
        "motes", 54, (0.0012, 0.0040), -0.012, 0.008, 0.02, ((255, 244, 214),), 0.5, "glow"
    ),
}


class _Particle(msgspec.Struct):
    x: float
    y: float
    near: float
    size: float
    phase: float
    color: int
    turn: float


class FallingParticles:
    """The particles of one kind for a video of `size` (width, height)."""

    def __init__(self, fall: ParticleFall, size: tuple[int, int], seed: int) -> None:
        rng = noise.stream(seed, fall.name)
        self._fall, self._size = fall, size
        self._colors = [yuv.color_of(color) for color in fall.colors]
        self._specks = [
            _Particle(
                float(rng.random()),
                float(rng.random()),
                near := float(rng.random()) ** 1.7,
                fall.size[0] + (fall.size[1] - fall.size[0]) * near,
                float(rng.uniform(0, math.tau)),
                int(rng.integers(len(fall.colors))),
                float(rng.uniform(-1, 1)),
            )
            for _ in range(fall.count)
        ]

    def draw(self, planes: YuvPlanes, second: float) -> YuvPlanes:
        """Return the frame with the particles drawn at their positions at `second`."""
        width, height = self._size
        for index, color in enumerate(self._colors):
            mask = np.zeros((height, width), np.uint8)
            for speck in self._specks:
                if speck.color == index:
                    self._draw(mask, speck, second)
            planes = yuv.toward(planes, color, mask)
        return planes

    def _draw(self, mask: Array, speck: _Particle, second: float) -> None:
        width, height = self._size
        fall, pace = self._fall, 0.35 + 0.65 * speck.near
        sway = math.sin(second * (0.9 + 0.6 * speck.turn) + speck.phase) * fall.sway * pace
        x = ((speck.x + fall.drift * pace * second + sway + 0.05) % 1.1 - 0.05) * width
        y = ((speck.y + fall.fall * pace * second + 0.05) % 1.1 - 0.05) * height
        size = speck.size * height
        strength = fall.strength * (0.45 + 0.55 * speck.near)
        if fall.shape == "glow":
            strength *= 0.55 + 0.45 * math.sin(second * (2 + speck.turn) + 2 * speck.phase)
        value = max(1, min(255, round(255 * strength)))
        at = (round(x * 16), round(y * 16))
        if fall.shape == "streak":
            run = size * 0.5
            end = (round((x - run * fall.drift / fall.fall) * 16), round((y - run) * 16))
            cv2.line(mask, at, end, value, max(1, round(height / 720)), cv2.LINE_AA, 4)
        elif fall.shape == "leaf":
            angle = math.degrees(second * speck.turn * 1.8 + speck.phase)
            flat = 0.25 + 0.5 * abs(math.sin(second * (1.1 + 0.5 * speck.turn) + speck.phase))
            axes = (max(16, round(size * 16)), max(8, round(size * flat * 16)))
            cv2.ellipse(mask, at, axes, angle, 0, 360, value, -1, cv2.LINE_AA, 4)
        else:
            cv2.circle(mask, at, max(10, round(size * 16)), value, -1, cv2.LINE_AA, 4)


class AmbientMotion(msgspec.Struct, frozen=True):
    """The motion within the scene of a video; `names` lists its kinds."""

    names: tuple[str, ...]
    size: tuple[int, int]
    water: Array | None = None
    sky: Array | None = None
    sway: Sway | None = None
    wind: float = 0.0
    waves: tuple[tuple[float, float, float, float], ...] = ()
    falling: tuple[FallingParticles, ...] = ()
    mist: Array | None = None
    flicker: tuple[Array, tuple[float, ...]] | None = None
    lightning: Lightning | None = None

    @classmethod
    def of(
        cls, scene: ParsedScene, request: VideoTask, still: SourceStill, size: tuple[int, int]
    ) -> AmbientMotion:
        """Return the motion that the prompt and the still image imply."""
        text = prompt_words.fold(request.prompt)
        grid = parallax.grid(size)
        rng = noise.stream(request.seed, "life")
        water = _water(scene, text, still, grid)
        is_windy = _is_stormy(scene, motion_words.WIND, text, request.negative)
        sky = _sky(scene, text, still, grid, is_windy=is_windy)
        particles = [
            name for name in _particles(scene, text) if not _excluded(name, request.negative.casefold())
        ]
        mist = _mist(scene, still, grid, request.seed)
        flicker = _flicker(text, still, size, rng)
        lightning = None
        if _is_stormy(scene, motion_words.FLASH, text, request.negative):
            lightning = Lightning.of(request.seconds, still, request.seed, rng)
        waves = tuple(
            (
                float(rng.uniform(0.7, 1.4)),
                float(rng.uniform(0, math.tau)),
                float(rng.uniform(-0.5, 0.5)),
                weight,
            )
            for weight in (1.0, 0.7, 0.5)
        )
        wind = 0.004 * (1 if rng.random() < 0.5 else -1) * (2.0 if is_windy else 1.0)
        sway = Sway.of(scene, text, still, grid, rng) if is_windy else None
        effects = (
            ("water", water),
            ("sky", sky),
            ("mist", mist),
            ("flicker", flicker),
            ("lightning", lightning),
            ("wind", (sway if sky is None else sky) if is_windy else None),
        )
        return cls(
            names=(*(name for name, value in effects if value is not None), *particles),
            size=size,
            water=water,
            sky=sky,
            sway=sway,
            wind=wind,
            waves=waves,
            falling=tuple(FallingParticles(PARTICLES[name], size, request.seed) for name in particles),
            mist=mist,
            flicker=flicker,
            lightning=lightning,
        )

    def words(self, prompt: str) -> PromptWords:
        """Return the words of the prompt that name a motion in the scene."""
        return prompt_words.of_patterns(prompt, (_WORDS[name] for name in self.names if name in _WORDS))

    def ripples(self, second: float) -> tuple[Ripple | None, ...]:
        """Return the displacement of each layer, or an empty tuple; only the farthest has water and sky."""
        shimmer = _shimmer(self.water, self.waves, second)
        clouds = _clouds(self.sky, self.wind, second)
        swaying = None if self.sway is None else self.sway.at(second, math.copysign(1.0, self.wind))
        far = _sum(_sum(shimmer, clouds), swaying)
        return () if far is None else (far, swaying, swaying)

    def draw_behind(
        self, planes: YuvPlanes, stage: ParallaxStage, pose: CameraPose, second: float
    ) -> YuvPlanes:
        """Return the frame with what is behind the subjects that move: bolts of lightning."""
        return planes if self.lightning is None else self.lightning.draw(planes, stage, pose, second)

    def apply(self, planes: YuvPlanes, second: float) -> YuvPlanes:
        """Return the frame with firelight, mist, particles and the light of flashes added."""
        if self.flicker is not None:
            planes = _apply_flicker(planes, self.flicker, second)
        if self.mist is not None:
            planes = _apply_mist(planes, self.mist, second, self.wind)
        for falling in self.falling:
            planes = falling.draw(planes, second)
        return planes if self.lightning is None else self.lightning.brighten(planes, second)


def _sum(first: Ripple | None, second: Ripple | None) -> Ripple | None:
    if first is None or second is None:
        return first or second
    return Ripple(first.x + second.x, first.y + second.y)


def _particles(scene: ParsedScene, text: str) -> list[str]:
    particles: list[str] = []
    outside = not _SHELTERED & set(scene.places)
    if outside and scene.weather == "snow":
        particles.append("snow")
    if outside and scene.weather in ("rain", "storm"):
        particles.append("rain")
    checks: tuple[tuple[str, re.Pattern[str]], ...] = (
        ("leaves", _LEAVES),
        ("petals", _PETALS),
        ("sparks", _SPARKS),
        ("motes", _DUST),
    )
    particles += [name for name, words in checks if words.search(text)]
    if "underwater" in scene.places and "motes" not in particles:
        particles.append("motes")
    if (
        outside
        and scene.season == "autumn"
        and "leaves" not in particles
        and {"forest", "garden"} & set(scene.places)
    ):
        particles.append("leaves")
    return particles


def _excluded(name: str, negative: str) -> bool:
    return name.rstrip("s") in negative


def _water(scene: ParsedScene, text: str, still: SourceStill, grid: tuple[int, int]) -> Array | None:
    """Return the water mask, stronger toward the viewer, or None without water.

    The mask is that of the painter, or an estimate for a photo.
    """
    if still.water is not None:
        mask = cv2.resize(still.water.astype(np.float32), grid, interpolation=cv2.INTER_AREA)
    elif _WET & set(scene.places) or _WATERS.search(text):
        mask = _estimate_water(cv2.resize(still.rgb, grid, interpolation=cv2.INTER_AREA))
    else:
        return None
    if mask.mean() < 0.02:
        return None
    rows = np.linspace(0, 1, grid[1], dtype=np.float32)[:, None]
    top = float(np.flatnonzero(mask.max(1) > 0.3)[0]) / grid[1] if (mask.max(1) > 0.3).any() else 0.5
    reach = np.clip((rows - top) / max(1 - top, 0.1), 0, 1)
    return (cv2.GaussianBlur(mask, (0, 0), 1.5) * (0.25 + 0.75 * reach)).astype(np.float32)


def _estimate_water(rgb: Array) -> Array:
    """Estimate water: smooth blue, green or gray regions in the lower part."""
    hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
    hue, saturation = hsv[..., 0].astype(np.int16), hsv[..., 1]
    like = ((hue > 75) & (hue < 132)) | (saturation < 40)
    low = np.linspace(-0.6, 1.4, rgb.shape[0], dtype=np.float32).clip(0, 1)[:, None]
    return cv2.GaussianBlur(like.astype(np.float32) * low, (0, 0), 3)


def _is_stormy(scene: ParsedScene, words: re.Pattern[str], text: str, negative: str) -> bool:
    """Return whether an effect of a storm is shown: outside, if there is a storm or words name it."""
    if _SHELTERED & set(scene.places) or words.search(prompt_words.fold(negative)):
        return False
    if any(words.search(denial[0]) for denial in motion_words.CALM.finditer(text)):
        return False
    return scene.weather == "storm" or words.search(text) is not None


def _sky(
    scene: ParsedScene, text: str, still: SourceStill, grid: tuple[int, int], *, is_windy: bool
) -> Array | None:
    if still.sky is None or scene.time == "night" or _SHELTERED & set(scene.places):
        return None
    painted = still.water is not None or bool(scene.places)
    if not painted and not is_windy and not _SKIES.search(text):
        return None
    mask = cv2.resize(still.sky, grid, interpolation=cv2.INTER_AREA)
    # The motion fades out toward foreground objects; otherwise their edges would move along with the sky.
    calm = cv2.erode(mask, np.ones((5, 5), np.uint8))
    calm = cv2.GaussianBlur(calm, (0, 0), grid[0] * 0.035)
    return calm if calm.mean() > 0.04 else None


def _shimmer(
    water: Array | None, waves: tuple[tuple[float, float, float, float], ...], second: float
) -> Ripple | None:
    if water is None:
        return None
    height, width = water.shape
    rows = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    columns = np.linspace(0, 1, width, dtype=np.float32)[None, :]
    # Distant waves are closer together.
    far = 42 / (0.18 + rows)
    x, y = np.zeros_like(water), np.zeros_like(water)
    for index, (rate, phase, slant, weight) in enumerate(waves):
        angle = (
            far * (0.45 + 0.3 * index) + columns * (9 + 7 * index) * slant * 6 + rate * 2.6 * second + phase
        )
        y += weight * np.sin(angle)
        x += weight * np.cos(0.8 * angle + columns * 13 * slant)
    return Ripple(x * water * np.float32(0.0016), y * water * np.float32(0.0021))


def _clouds(sky: Array | None, wind: float, second: float) -> Ripple | None:
    if sky is None:
        return None
    # A slow oscillation bounds the displacement without depending on the video's length.
    shift = np.float32(wind * 6 * math.sin(second / 6))
    return Ripple(sky * shift, sky * np.float32(0.0))


def _mist(scene: ParsedScene, still: SourceStill, grid: tuple[int, int], seed: int) -> Array | None:
    """Return a wrapping mist texture and the distance map, or None if there is no fog."""
    if scene.weather != "fog":
        return None
    far = 1 - cv2.resize(still.near, grid, interpolation=cv2.INTER_AREA)
    texture = noise.tile(noise.stream(seed, "mist"), 512, 3, 5, 0.5)
    band = cv2.resize(texture, (grid[0] * 2, grid[1]), interpolation=cv2.INTER_LINEAR)
    return np.stack([band, np.hstack([far, far]).astype(np.float32)])


def _apply_mist(planes: YuvPlanes, mist: Array, second: float, wind: float) -> YuvPlanes:
    band, far = mist
    height, width = band.shape[0], band.shape[1] // 2
    shift = (wind * 6 * second) % 1.0 * 2 * width
    matrix = np.array([[1, 0, shift], [0, 1, 0]], np.float32)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    shifted = cv2.warpAffine(band, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_WRAP)
    amount = np.clip((0.18 + 0.3 * shifted) * (0.25 + 0.75 * far[:, :width]), 0, 0.5)
    mask = cv2.resize((amount * 255).astype(np.uint8), planes.size, interpolation=cv2.INTER_LINEAR)
    return yuv.toward(planes, (205, yuv.NEUTRAL, yuv.NEUTRAL), mask)


def _flicker(
    text: str, still: SourceStill, size: tuple[int, int], rng: np.random.Generator
) -> tuple[Array, tuple[float, ...]] | None:
    """Return the mask of warm light and the phases of its flicker, or None if there is no flame."""
    if not _FLAMES.search(text):
        return None
    small = cv2.resize(still.rgb, parallax.grid(size), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    warm = np.clip((small[..., 0] - small[..., 2]) * 1.6, 0, 1) * np.clip(small.max(2) * 1.5 - 0.3, 0, 1)
    glow = cv2.GaussianBlur(warm, (0, 0), size[0] / 60)
    if glow.max() < 0.05:
        return None
    wide = cv2.resize(glow / glow.max(), size, interpolation=cv2.INTER_LINEAR)
    return wide.astype(np.float32), tuple(float(rng.uniform(0, math.tau)) for _ in range(4))


def _apply_flicker(planes: YuvPlanes, flicker: tuple[Array, tuple[float, ...]], second: float) -> YuvPlanes:
    light, phases = flicker
    rates: tuple[Callable[[float], float], ...] = (math.sin, math.sin, math.cos, math.cos)
    beat = sum(
        wave(second * math.tau * rate + phase) * weight
        for wave, rate, phase, weight in zip(
            rates, (1.3, 3.1, 5.7, 9.0), phases, (0.5, 0.3, 0.25, 0.12), strict=True
        )
    )
    gain = light * np.float32(0.11 * beat) + np.float32(1.0)
    return YuvPlanes(cv2.multiply(planes.y, gain, dtype=cv2.CV_8U), planes.uv)
