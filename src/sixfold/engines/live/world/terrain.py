"""The terrain of a world: heights, lit colors, and positions of trees.

A terrain is a repeating square of `SIZE` meters with one point per meter.
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene import noise
from sixfold.engines.live.world.prompt_parser import WorldSpec

Field = NDArray[Any]
SIZE = 1024
_CELL = 7  # meters between the possible positions of trees
_SHADOW_STEPS = 48


class WorldTerrain(msgspec.Struct, frozen=True, eq=False):
    """Maps of `height` in meters, lit `color` from 0 to 1, and slope `steep`.

    `trees` contains rows of x, z, size, kind and light; `sun` is the unit vector toward the sun (x, up, z).
    """

    place: WorldSpec
    height: Field
    color: Field
    steep: Field
    water: float
    trees: Field
    sun: Field


def build(place: WorldSpec) -> WorldTerrain:
    height = _heights(place)
    water = (
        float(np.quantile(height, place.land["water"]))
        if place.land["water"] > 0
        else float(height.min()) - 9
    )
    slope_z, slope_x = _slopes(height)
    steep = np.hypot(slope_x, slope_z)
    sun = _sun(place)
    trees = _trees(place, height, steep, water)
    color = _ground_color(place, height, steep, water)
    light = _light(place, height, (slope_x, slope_z), sun)
    shaded = cv2.multiply(color, light)
    _shade_below(shaded, trees, place)
    # Tone mapping keeps the colors of bright ground.
    exposed = 1 - np.exp(-1.4 * shaded)
    return WorldTerrain(
        place, height, exposed.astype(np.float32), steep, water, _with_light(trees, light, place), sun
    )


def _tile(place: WorldSpec, name: str, cells: int, octaves: int, gain: float = 0.5) -> Field:
    """Return tiling noise of about -1 to 1; `cells` must be a power of two to avoid ripples."""
    rng = noise.stream("live", place.seed, name)
    total, reach, strength = np.zeros((SIZE, SIZE), np.float32), 0.0, 1.0
    for octave in range(octaves):
        count = min(cells << octave, SIZE)
        lattice = np.pad(rng.random((count, count), np.float32) * 2 - 1, 2, mode="wrap")
        step = SIZE // count
        wide = cv2.resize(lattice, None, fx=step, fy=step, interpolation=cv2.INTER_CUBIC)
        total += wide[2 * step : 2 * step + SIZE, 2 * step : 2 * step + SIZE] * np.float32(strength)
        reach += strength * strength
        strength *= gain
    return total / np.float32(np.sqrt(reach) * 0.62)


def _heights(place: WorldSpec) -> Field:
    land = place.land
    rolling = _tile(place, "rolling", 4, 7, 0.40)
    rolling = (rolling - rolling.min()) / max(float(np.ptp(rolling)), 1e-6)
    crests = 1 - np.abs(_tile(place, "crests", 4, 7, 0.42)) * 0.9
    crests = np.clip((crests - 0.2) / 0.8, 0, 1) ** 1.9 * np.clip(rolling * 1.6 - 0.25, 0, 1)
    height = rolling * (1 - land["ridges"]) ** 0.5 + crests * land["ridges"]
    if land.get("dunes"):
        across = np.arange(SIZE, dtype=np.float32)[None, :] * (2 * np.pi * 14 / SIZE)
        wave = (1 + np.sin(across + 5.5 * _tile(place, "dunes", 4, 4))) / 2
        height = height * (1 - land["dunes"] * 0.6) + wave**1.7 * land["dunes"] * 0.42
    height = (height - height.min()) / max(float(np.ptp(height)), 1e-6)
    if land.get("terraces"):
        steps = height * land["terraces"]
        whole = np.floor(steps)
        height = (whole + np.clip((steps - whole) * 3.2 - 1.6, 0, 1)) / land["terraces"] * 0.9 + height * 0.1
    height = cv2.GaussianBlur(np.pad(height, 8, mode="wrap"), (0, 0), 1.6)[8:-8, 8:-8]
    return np.ascontiguousarray(height * np.float32(land["relief"]), dtype=np.float32)


def _slopes(height: Field) -> tuple[Field, Field]:
    """Return the slopes toward +z (down the rows) and +x."""
    return (
        (np.roll(height, -2, 0) - np.roll(height, 2, 0)) / 4,
        (np.roll(height, -2, 1) - np.roll(height, 2, 1)) / 4,
    )


def _sun(place: WorldSpec) -> Field:
    azimuth, rise = (float(value) for value in place.hour["sun"])
    angle = 2 * np.pi * azimuth
    flat = np.cos(rise * np.pi / 2)
    return np.array([np.sin(angle) * flat, np.sin(rise * np.pi / 2), np.cos(angle) * flat], np.float32)


def _ground_color(place: WorldSpec, height: Field, steep: Field, water: float) -> Field:
    """Return the color of the ground without light."""
    land = place.land
    span = max(float(height.max()) - max(water, 0.0), 1.0)
    share = np.clip((height - max(water, 0.0)) / span, 0, 1)
    patch = np.clip(0.5 + 0.55 * _tile(place, "patches", 16, 6), 0, 1)
    ground = _mix(place.color("low"), place.color("high"), np.clip(share * 1.3 + (patch - 0.5) * 0.9, 0, 1))
    ground *= (0.86 + 0.28 * patch)[..., None]
    rock = place.color("rock") * (0.8 + 0.4 * _strata(place, height))[..., None]
    ground = _over(ground, rock, np.clip((steep - 0.62) / 0.35 + (patch - 0.5) * 0.5, 0, 1))
    if land["water"] > 0:
        shore = np.clip(1 - (height - water) / (0.9 + 1.4 * patch), 0, 1) * (steep < 0.9)
        ground = _over(ground, np.broadcast_to(place.color("shore"), ground.shape), shore)
        deep = np.clip((water - height) / 4.5, 0, 1)
        ground = _over(ground, np.broadcast_to(place.color("sea"), ground.shape), deep)
    if "snowline" in land:
        snow = np.clip(
            (share - land["snowline"]) / 0.10 + (patch - 0.5) * 1.3 + (0.25 if land["snowline"] == 0 else 0),
            0,
            1,
        )
        snow *= np.clip(1.35 - steep * (0.75 if land["snowline"] == 0 else 0.95), 0, 1) * (height > water)
        ground = _over(ground, np.broadcast_to(np.array([0.93, 0.95, 0.98], np.float32), ground.shape), snow)
    return ground.astype(np.float32)


def _strata(place: WorldSpec, height: Field) -> Field:
    bend = _tile(place, "layers", 8, 3) * 5
    return (0.5 + 0.5 * np.sin(height * 0.9 + bend) * np.cos(height * 0.37 + bend)).astype(np.float32)


def _light(place: WorldSpec, height: Field, slopes: tuple[Field, Field], sun: Field) -> Field:
    """Return the light on the ground: sun with shadows, and sky light with ambient occlusion."""
    slope_x, slope_z = slopes
    length = np.sqrt(1 + slope_x**2 + slope_z**2)
    facing = np.clip((sun[1] - sun[0] * slope_x - sun[2] * slope_z) / length, 0, 1)
    open_sky = np.clip(
        1 + (height - cv2.blur(height, (31, 31), borderType=cv2.BORDER_REFLECT)) / 26, 0.55, 1.15
    )
    lit = facing * _sun_visibility(height, sun) * np.float32(place.weather["sun"])
    boost = 1.0 / max(float(sun[1]), 0.42) ** 0.55
    direct = place.color("light")[None, None] * (lit * boost)[..., None]
    return (direct * 1.12 + place.color("shade")[None, None] * (0.74 * open_sky)[..., None]).astype(
        np.float32
    )


def _sun_visibility(height: Field, sun: Field) -> Field:
    """Return 1 where the sun reaches the ground, 0 in shadow."""
    flat = float(np.hypot(sun[0], sun[2]))
    small = cv2.resize(height, (SIZE // 2, SIZE // 2), interpolation=cv2.INTER_AREA)
    free = np.ones_like(small)
    climb = float(sun[1]) / max(flat, 1e-3)
    for step in range(1, _SHADOW_STEPS):
        far = 2.0 * step**1.25
        dx, dz = round(sun[0] / flat * far / 2), round(sun[2] / flat * far / 2)
        higher = np.roll(small, (-dz, -dx), (0, 1)) - small - far * climb
        free = np.minimum(free, np.clip(1 - higher / (1.2 + far * 0.05), 0, 1))
    return cv2.resize(cv2.GaussianBlur(free, (5, 5), 0), (SIZE, SIZE), interpolation=cv2.INTER_LINEAR)


def _mix(low: Field, high: Field, share: Field) -> Field:
    return low[None, None] * (1 - share[..., None]) + high[None, None] * share[..., None]


def _over(ground: Field, layer: Field, share: Field) -> Field:
    part = share[..., None].astype(np.float32)
    return ground * (1 - part) + layer * part


def _trees(place: WorldSpec, height: Field, steep: Field, water: float) -> Field:
    """Return the trees as rows of x, z, size in meters and kind."""
    rng = noise.stream("live", place.seed, "trees")
    count = SIZE // _CELL
    grid = np.stack(np.meshgrid(np.arange(count), np.arange(count)), -1).reshape(-1, 2).astype(np.float32)
    spots = (grid + rng.random(grid.shape, np.float32) * 0.9) * _CELL
    column, row = (spots % SIZE).astype(np.int32).T
    groves = 0.5 + 0.8 * _tile(place, "groves", 8, 4)[row, column]
    land = place.land
    top = water + (float(height.max()) - max(water, 0.0)) * land["treeline"]
    heights = height[row, column]
    grows = (heights > water + 1.2) & (heights < top) & (steep[row, column] < 0.62)
    grows &= rng.random(len(spots), np.float32) < np.clip(
        land["trees"] * (groves * 1.5 if land["trees"] < 0.9 else 0.6 + groves), 0, 0.9
    )
    size = 5.5 + 4.5 * rng.random(len(spots), np.float32) + 2.5 * groves
    kinds = rng.integers(0, 4, len(spots)).astype(np.float32)
    return np.stack([spots[:, 0], spots[:, 1], size, kinds], 1)[grows].astype(np.float32)


def _with_light(trees: Field, light: Field, place: WorldSpec) -> Field:
    """Add the light at each tree as the fifth column, 1 in full light."""
    rows, columns = trees[:, 1].astype(np.int32) % SIZE, trees[:, 0].astype(np.int32) % SIZE
    full = float((place.color("light") * 1.12 * place.weather["sun"] + place.color("shade") * 0.8).mean())
    share = np.clip(light[rows, columns].mean(-1) / max(full, 1e-3), 0.45, 1.1)
    return np.concatenate([trees, share[:, None]], 1).astype(np.float32)


def _shade_below(color: Field, trees: Field, place: WorldSpec) -> None:
    """Darken the ground around the foot of each tree and in forests."""
    crowns = np.zeros((SIZE, SIZE), np.float32)
    np.add.at(crowns, ((trees[:, 1].astype(np.int32)) % SIZE, trees[:, 0].astype(np.int32) % SIZE), 1.0)
    near = cv2.GaussianBlur(crowns, (0, 0), 1.6) * 16
    wide = cv2.GaussianBlur(crowns, (0, 0), 7) * 26
    dark = np.clip(near * 0.5 + wide * 0.25, 0, 0.55) * np.float32(0.5 + 0.5 * place.weather["sun"])
    color *= (1 - dark)[..., None]
