"""Renderer of a terrain: ground, reflecting water, trees, haze, and rain or snow.

The ground is sampled at about two hundred depths for all columns at once. The running maximum of the
projected heights determines the depth of each pixel, which a histogram finds without a loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene import noise
from sixfold.engines.live.world import sky as skies
from sixfold.engines.live.world import trees
from sixfold.engines.live.world.terrain import SIZE, WorldTerrain

Field = NDArray[Any]
_NEAR, _FAR, _DEPTHS = 0.7, 900.0, 224
_FIELD = math.radians(74)
_HORIZON = 0.43  # fraction of the image height, from the top
_TREE_FAR, _MAX_TREES = 330.0, 180


class CameraEye(msgspec.Struct, frozen=True):
    """The camera: position in meters, yaw in radians (0 is +z, growing to the left), and time in seconds."""

    x: float
    y: float
    z: float
    yaw: float
    seconds: float


@dataclass(slots=True, eq=False)
class RenderedView:
    """Renders a terrain at a fixed size."""

    land: WorldTerrain
    width: int
    height: int
    sky: skies.Sky = field(init=False)
    _sprites: list[list[Field]] = field(init=False)
    _detail: Field = field(init=False)
    _precipitation: tuple[Field, ...] = field(init=False)

    def __post_init__(self) -> None:
        land, place = self.land, self.land.place
        self.sky = skies.build(place, land.sun)
        self._sprites = trees.draw(place)
        fine = noise.tile(noise.stream("live", "detail"), 256, 64, 3, 0.9)
        self._detail = (float(place.land.get("grain", 0.24)) * fine).astype(np.float32)
        self._precipitation = _precipitation(str(place.weather.get("falling", "")), self.width, self.height)
        self._depths = np.geomspace(_NEAR, _FAR, _DEPTHS).astype(np.float32)[:, None]
        self._focal = self.width / 2 / math.tan(_FIELD / 2)
        self._across = (np.arange(self.width, dtype=np.float32) - self.width / 2 + 0.5) / self._focal
        self._horizon = self.height * _HORIZON
        self._rows = np.arange(self.height, dtype=np.float32)
        self._ground, self._color = land.height, land.color

    _depths: Field = field(init=False)
    _focal: float = field(init=False)
    _across: Field = field(init=False)
    _horizon: float = field(init=False)
    _rows: Field = field(init=False)
    _ground: Field = field(init=False)
    _color: Field = field(init=False)

    def draw(self, eye: CameraEye) -> NDArray[np.uint8]:
        forward = math.sin(eye.yaw), math.cos(eye.yaw)
        right = -math.cos(eye.yaw), math.sin(eye.yaw)
        index, ramp = self._visible_depths(eye, forward, right)
        depth = self._depth(index, ramp)
        wet, image = self._paint(eye, forward, right, depth)
        columns, rows = self._sky_coordinates(eye)
        air = self.sky.render(columns, rows, eye.seconds)
        image = self._apply_haze(image, depth, air, rows)
        self._draw_trees(image, depth, wet, eye, air)
        if wet.any():
            self._draw_water(image, wet, depth, eye, air)
        image = self._draw_precipitation(image, eye)
        return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)

    # -- depth of each pixel -----------------------------------------------------------------------

    def _visible_depths(
        self, eye: CameraEye, forward: tuple[float, float], right: tuple[float, float]
    ) -> tuple[Field, Field]:
        """Return the index of the first depth that covers each pixel, and the outline of every depth."""
        depths = self._depths
        xs = np.float32(eye.x) + depths * (np.float32(forward[0]) + np.float32(right[0]) * self._across)
        zs = np.float32(eye.z) + depths * (np.float32(forward[1]) + np.float32(right[1]) * self._across)
        ground = cv2.remap(self._ground, xs, zs, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        level = np.maximum(ground, np.float32(self.land.water))
        outline = np.float32(self._horizon) + (np.float32(eye.y) - level) * (np.float32(self._focal) / depths)
        ramp = np.minimum.accumulate(outline, axis=0)
        first = np.clip(np.ceil(ramp), 0, self.height).astype(np.int32)
        flat = first * self.width + np.arange(self.width, dtype=np.int32)
        counts = np.bincount(flat.ravel(), minlength=(self.height + 1) * self.width)
        below = np.cumsum(counts.reshape(self.height + 1, self.width)[: self.height], axis=0)
        return _DEPTHS - below, ramp

    def _depth(self, index: Field, ramp: Field) -> Field:
        """Return the distance of each pixel in meters; infinite for the sky."""
        columns = np.arange(self.width)
        here = np.minimum(index, _DEPTHS - 1)
        before = np.maximum(here - 1, 0)
        high, low = ramp[here, columns], ramp[before, columns]
        share = np.clip((low - self._rows[:, None]) / np.maximum(low - high, 1e-3), 0, 1)
        flat = self._depths[:, 0]
        depth = flat[before] + share * (flat[here] - flat[before])
        return np.where(index >= _DEPTHS, np.float32(np.inf), depth).astype(np.float32)

    # -- the ground --------------------------------------------------------------------------------

    def _paint(
        self, eye: CameraEye, forward: tuple[float, float], right: tuple[float, float], depth: Field
    ) -> tuple[Field, Field]:
        """Return the water mask and the color of the ground; the sky is black."""
        solid = np.isfinite(depth)
        far = np.where(solid, depth, np.float32(1.0))
        xs = np.float32(eye.x) + far * (np.float32(forward[0]) + np.float32(right[0]) * self._across)
        zs = np.float32(eye.z) + far * (np.float32(forward[1]) + np.float32(right[1]) * self._across)
        color = cv2.remap(self._color, xs, zs, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        close = np.clip(1.1 - far / 70, 0, 1)
        rough = 1 + self._grain(xs, zs, 26) * np.clip(1.1 - far / 18, 0, 1)
        rough += self._grain(xs, zs, 4) * close * np.float32(0.8)
        rough *= solid
        cv2.multiply(color, cv2.merge((rough, rough, rough)), color)
        if self.land.place.land["water"] <= 0:
            return np.zeros_like(far), color
        ground = cv2.remap(self._ground, xs, zs, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        return np.clip((np.float32(self.land.water) - ground) * 6, 0, 1) * solid, color

    def _grain(self, xs: Field, zs: Field, fine: int) -> Field:
        """Return the tiling grain of the ground around 0, at `fine` points per meter."""
        return cv2.remap(self._detail, xs * fine, zs * fine, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)

    # -- the air -----------------------------------------------------------------------------------

    def _sky_coordinates(self, eye: CameraEye) -> tuple[Field, Field]:
        """Return the coordinates in the sky's band for the screen's columns and rows."""
        around = (eye.yaw - np.arctan(self._across)) / (2 * math.pi) % 1.0 * skies.ROUND
        rise = np.arctan((self._horizon - self._rows) / self._focal)
        rows = skies.TALL * (1 - np.clip(rise / 1.1, 0, 0.999)) - 1
        return around[::-1].astype(np.float32), rows.astype(np.float32)

    def _apply_haze(self, image: Field, depth: Field, air: Field, rows: Field) -> Field:
        """Add the sky behind the ground, and haze by distance."""
        edge = min(int(self._horizon), self.height - 1)
        haze = cv2.GaussianBlur(air[max(0, edge - 3)][None], (31, 1), 0)
        sight = float(self.land.place.weather["sight"])
        # 1 for the sky.
        veil = 1 - np.exp(depth * np.float32(-1 / sight))
        # Fog covers the sky as well.
        thick = np.float32(min(1.0, 160 / sight))
        behind = air + (haze - air) * thick
        behind = np.where(np.isfinite(depth)[..., None], haze, behind)
        return image + (behind - image) * veil[..., None]

    # -- trees -------------------------------------------------------------------------------------

    def _draw_trees(self, image: Field, depth: Field, wet: Field, eye: CameraEye, air: Field) -> None:
        """Draw trees from the farthest to the nearest, hidden by nearer ground."""
        positions = self.land.trees
        if not len(positions):
            return
        forward, right = (math.sin(eye.yaw), math.cos(eye.yaw)), (-math.cos(eye.yaw), math.sin(eye.yaw))
        dx = (positions[:, 0] - eye.x + SIZE / 2) % SIZE - SIZE / 2
        dz = (positions[:, 1] - eye.z + SIZE / 2) % SIZE - SIZE / 2
        ahead = dx * forward[0] + dz * forward[1]
        aside = dx * right[0] + dz * right[1]
        visible = np.flatnonzero((ahead > 0.9) & (ahead < _TREE_FAR) & (np.abs(aside) < ahead * 0.80 + 6))
        visible = visible[np.argsort(ahead[visible])][:_MAX_TREES]
        haze = air[min(int(self._horizon), self.height - 1) - 3].mean(0)
        sight = float(self.land.place.weather["sight"])
        for number in visible[::-1]:
            x, z, size, kind, light = positions[number]
            ground = float(self.land.height[int(z) % SIZE, int(x) % SIZE])
            near = float(ahead[number])
            foot = self._horizon + (eye.y - ground + 0.15) * self._focal / near
            height = float(size) * self._focal / near
            middle = self.width / 2 + float(aside[number]) * self._focal / near
            veil = 1 - math.exp(-near / sight)
            # Trees fade in at the far limit.
            edge = max(0.0, (near - 0.75 * _TREE_FAR) / (0.25 * _TREE_FAR))
            stamp = self._stamp((image, depth, wet), (middle, foot, height), near, int(kind))
            if stamp is not None:
                _blend(*stamp, (haze, veil, 1 - edge, float(light)))

    def _stamp(
        self, onto: tuple[Field, Field, Field], at: tuple[float, float, float], near: float, kind: int
    ) -> tuple[Field, Field, Field] | None:
        """Return the parts of the image and of the water mask behind a tree, and its scaled sprite.

        Returns None for a tree outside of the image.
        """
        image, depth, wet = onto
        middle, foot, tall = at
        wide = tall * 0.75
        left, top = round(middle - wide / 2), round(foot - tall)
        right, low = max(left + 1, round(middle + wide / 2)), max(top + 1, round(foot))
        x0, x1, y0, y1 = max(0, left), min(self.width, right), max(0, top), min(self.height, low)
        if x0 >= x1 or y0 >= y1:
            return None
        levels = self._sprites[kind % len(self._sprites)]
        level = min(len(levels) - 1, max(0, int(math.log2(max(1.0, 256 / max(tall, 1.0))))))
        sprite = levels[level]
        scale_y, scale_x = sprite.shape[0] / (low - top), sprite.shape[1] / (right - left)
        matrix = np.array(
            [[scale_x, 0, (x0 - left + 0.5) * scale_x - 0.5], [0, scale_y, (y0 - top + 0.5) * scale_y - 0.5]]
        )
        sprite_part = cv2.warpAffine(
            sprite, matrix, (x1 - x0, y1 - y0), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        )
        sprite_part *= (depth[y0:y1, x0:x1] > near - 0.6)[..., None]
        return image[y0:y1, x0:x1], wet[y0:y1, x0:x1], sprite_part

    # -- water -------------------------------------------------------------------------------------

    def _draw_water(self, image: Field, wet: Field, depth: Field, eye: CameraEye, air: Field) -> None:
        """Draw the water: a rippled reflection, stronger at grazing angles."""
        top = max(int(np.argmax(wet.any(1))), int(self._horizon))
        low, mid = slice(top, self.height), np.float32(self._horizon)
        rows = self._rows[low, None]
        below, far = np.maximum(rows - mid, np.float32(0.5)), np.minimum(depth[low], np.float32(999))
        wave = eye.seconds * 1.6
        ripple = np.sin(far * np.float32(1.9) + np.float32(wave * 1.7)) * np.float32(0.5)
        ripple += np.sin(far * (self._across * 2.1 + 0.9).astype(np.float32) - np.float32(wave)) * np.float32(
            0.5
        )
        strength = np.clip(below * np.float32(0.035), 0.15, 3.2)
        source = np.clip(2 * mid - rows - ripple * strength - below * np.float32(0.06), 0, self.height - 1)
        columns = np.arange(self.width, dtype=np.float32) + ripple * (strength * np.float32(0.8))
        reflected = image[: int(self._horizon) + 1].copy()
        under_water = wet[: len(reflected)] > 0
        reflected[under_water] = air[: len(reflected)][under_water]
        mirror = cv2.remap(reflected, columns, source, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        grazing = np.clip(1 - below / (self.height * 0.62), 0.05, 1)
        share = (0.20 + 0.68 * grazing**1.6).astype(np.float32)[..., None]
        glitter = np.clip(ripple - 0.55, 0, 1) * (grazing * float(self.land.place.weather["sun"]) * 0.22)
        part = image[low]
        water = part * (1 - share) + mirror * (share * np.float32(0.96))
        water += glitter.astype(np.float32)[..., None] * self.land.place.color("glow")
        part += (water - part) * wet[low, :, None]

    # -- precipitation -----------------------------------------------------------------------------

    def _draw_precipitation(self, image: Field, eye: CameraEye) -> Field:
        """Draw rain or snow: each layer is a window that slides over a tiling texture."""
        if not self._precipitation:
            return image
        place = self.land.place
        light = place.color("horizon") * 0.35 + 0.55 * max(0.35, float(place.color("light").mean()))
        speed, drift = (1500, 60) if place.weather["falling"] == "rain" else (52, 16)
        flakes = np.zeros((self.height, self.width), np.float32)
        for number, layer in enumerate(self._precipitation):
            scale = self.height / 270 * (1 + 0.55 * number)
            turn = eye.yaw * self._focal * 0.9 + math.sin(eye.seconds * 0.7 + number) * 9
            down = int(-eye.seconds * speed * scale) % self.height
            across = int(-turn - eye.seconds * drift * scale) % self.width
            np.maximum(flakes, layer[down : down + self.height, across : across + self.width], out=flakes)
        return image + (light - image) * flakes[..., None]


def _blend(part: Field, wet: Field, sprite: Field, air: tuple[Field, float, float, float]) -> None:
    """Blend a tree with haze over the image, and remove it from the water mask."""
    haze, veil, opacity, light = air
    alpha = sprite[..., 3:] * np.float32(opacity)
    part *= 1 - alpha
    part += sprite[..., :3] * np.float32((1 - veil) * opacity * light) + haze * (alpha * np.float32(veil))
    wet *= 1 - alpha[..., 0]


def _precipitation(kind: str, width: int, height: int) -> tuple[Field, ...]:
    """Return tiling layers of flakes or streaks, from the farthest, repeated twice in both directions."""
    if not kind:
        return ()
    layers: list[Field] = []
    for number in range(3):
        rng = noise.stream("live", kind, number)
        scale = height / 270 * (1 + 0.6 * number)
        layer = np.zeros((height, width), np.float32)
        for _ in range(int(150 / (1 + number))):
            x, y = rng.random() * width, rng.random() * height
            strength = 0.35 + 0.5 * rng.random()
            if kind == "snow":
                cv2.circle(layer, (int(x), int(y)), max(1, round(scale * 0.9)), strength, -1, cv2.LINE_AA)
            else:
                length = scale * (9 + 9 * rng.random())
                end = int(x + length * 0.12), int(y + length)
                cv2.line(layer, (int(x), int(y)), end, strength * 0.38, 1, cv2.LINE_AA)
        layers.append(np.tile(cv2.GaussianBlur(layer, (3, 3), 0.4 + 0.25 * number), (2, 2)))
    return tuple(layers)
