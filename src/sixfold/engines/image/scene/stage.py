"""The state of an image while it is painted: layout, palette and planes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.engines.image.scene.canvas import Color, Image, luma, mix, over, rgb, saturate
from sixfold.engines.image.scene.noise import stream
from sixfold.engines.image.scene.prompt_parser import ParsedScene


class StageLayout(msgspec.Struct, frozen=True):
    """Positions as fractions of the width and height."""

    horizon: float
    light: tuple[float, float]
    subject_x: float
    flip: bool


# Colors of land and water that the prompt names.
_GROUNDS = {
    "red": "#b8352a", "orange": "#d9782c", "yellow": "#e3c040", "gold": "#d6a53c", "green": "#4f9440",
    "teal": "#2a9c98", "blue": "#3566bd", "purple": "#7d50b4", "pink": "#de86aa", "brown": "#7c5636",
    "white": "#eeeeea", "black": "#2b2b30", "grey": "#868b92",
}  # fmt: skip


class SceneStage(msgspec.Struct):
    """An image in progress: `image` is float RGB, `depth` 0 near to 1 far."""

    scene: ParsedScene
    look: str
    time: str
    weather: str
    place: str
    palette: Palette
    layout: StageLayout
    image: Image
    depth: Image
    seed: int
    step: Callable[[str], None]
    water: Image | None = None
    ground: float = 0.92
    notes: dict[str, float] = {}

    @property
    def height(self) -> int:
        """Number of rows."""
        return int(self.image.shape[0])

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.image.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    @property
    def unit(self) -> float:
        """A hundredth of the short side, in pixels."""
        return min(self.shape) / 100

    @property
    def horizon(self) -> float:
        """The row of the horizon, counted from the top."""
        return self.layout.horizon * self.height

    @property
    def light_at(self) -> tuple[float, float]:
        """Position of the sun or moon in pixels (x, y)."""
        return self.layout.light[0] * self.width, self.layout.light[1] * self.height

    @property
    def is_wintry(self) -> bool:
        """Whether plants, roofs and ground are covered with snow."""
        return self.scene.season == "winter" or self.weather == "snow" or self.place == "snowfield"

    def tinted(self, color: Color, amount: float) -> Color:
        """Return a color of the land or water, mixed with the color that the prompt gives to this place."""
        tint = _GROUNDS.get(self.scene.ground or "")
        return color if tint is None else mix(color, rgb(tint), amount)

    def rng(self, name: str) -> np.random.Generator:
        """Return a random generator for one layer, independent of the others."""
        return stream(self.seed, name)

    def add_layer(self, paint: Image | Color, alpha: Image, depth: float, top: int = 0) -> None:
        """Paint a layer at `depth` from row `top` downwards, and record its depth."""
        rows = slice(top, top + alpha.shape[0])
        over(self.image[rows], paint, alpha)
        plane = self.depth[rows]
        plane += (np.float32(depth) - plane) * alpha

    def far(self, color: Color, depth: float) -> Color:
        """Return `color` seen through haze at `depth`."""
        amount = np.float32(min(0.94, depth * depth * 0.62 + depth * 0.26))
        return (color + (self.palette.haze - color) * amount).astype(np.float32)


class Palette(msgspec.Struct, frozen=True):
    """Colors of a light: `sky` from zenith to horizon; `light` and `ambient` are multipliers."""

    sky: tuple[Color, ...]
    sun: Color
    light: Color
    ambient: Color
    haze: Color
    cloud_lit: Color
    cloud_shade: Color

    @property
    def dark(self) -> bool:
        """Whether the sky is dark, as at night."""
        return luma(self.sky[1]) < 0.25

    def lit(self, albedo: Color, amount: float) -> Color:
        """Return the color of a surface under `amount` (0 to 1) of the direct light."""
        return np.clip(albedo * (self.ambient + self.light * np.float32(amount)), 0, 1).astype(np.float32)


@cache
def _scripts() -> dict[str, list[dict[str, Any]]]:
    text = resources.files("sixfold.engines.image.scene").joinpath("palettes.toml").read_text("utf-8")
    return tomllib.loads(text)


def _build(script: dict[str, Any]) -> Palette:
    lit, shade = script["cloud"]
    return Palette(
        sky=tuple(rgb(text) for text in script["sky"]),
        sun=rgb(script["sun"]),
        light=np.array(script["light"], np.float32),
        ambient=np.array(script["ambient"], np.float32),
        haze=rgb(script["haze"]),
        cloud_lit=rgb(lit),
        cloud_shade=rgb(shade),
    )


# By weather: grayness of the sky, its lightness by day, fraction of direct light, gain of ambient light.
_WEATHER = {
    "cloudy": (0.45, 0.70, 0.62, 1.12),
    "rain": (0.74, 0.50, 0.34, 1.05),
    "storm": (0.80, 0.34, 0.34, 0.95),
    "snow": (0.62, 0.80, 0.50, 1.25),
    "fog": (0.70, 0.82, 0.40, 1.22),
}


def _overcast(palette: Palette, weather: str) -> Palette:
    gray, target, direct, ambient = _WEATHER[weather]
    brightness = luma(palette.sky[3]) * 1.08
    level = max(0.19, target * min(1.0, brightness + 0.12))
    tone = saturate(mix(palette.haze, palette.sky[1], 0.45), 0.55)
    tone = np.clip(tone * np.float32(level / max(luma(tone), 0.02)), 0, 1).astype(np.float32)
    shades = (0.78, 0.90, 1.03, 1.16)
    sky = tuple(
        np.clip(mix(c, tone * np.float32(s), gray), 0, 1).astype(np.float32)
        for c, s in zip(palette.sky, shades, strict=True)
    )
    return replace(
        palette,
        sky=sky,
        light=saturate(palette.light / 1.5, 0.6) * np.float32(1.5 * direct),
        ambient=palette.ambient * np.float32(ambient),
        haze=mix(palette.haze, tone * np.float32(1.05), gray),
        cloud_lit=mix(palette.cloud_lit, tone * np.float32(1.12), gray),
        cloud_shade=mix(palette.cloud_shade, tone * np.float32(0.62), gray),
    )


def choose_palette(time: str, weather: str, seed: int, airless: bool = False) -> Palette:
    """Return the palette for a time of day (`day`, `dawn`, `sunset`, `dusk`, `night`) and weather.

    An `airless` world has a dark sky in full sunlight.
    """
    variants = _scripts()[time]
    palette = _build(variants[int(stream(seed, "palette").integers(len(variants)))])
    if airless:
        return replace(
            palette, light=rgb("#fff6e6") * np.float32(1.05), ambient=rgb("#3c4258") * np.float32(1.1)
        )
    return _overcast(palette, weather) if weather in _WEATHER else palette


def indoor_palette() -> Palette:
    """Return the palette of a studio with neutral white light."""
    white, gray = rgb("#ffffff"), rgb("#d9dbde")
    light, ambient = np.array([0.80, 0.79, 0.77], np.float32), np.array([0.54, 0.55, 0.57], np.float32)
    return Palette((gray, gray, white, white), white, light, ambient, white, white, gray)
