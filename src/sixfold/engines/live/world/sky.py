"""The sky as a panoramic band: colors, sun or moon, stars, and drifting clouds."""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene import noise
from sixfold.engines.live.world.prompt_parser import WorldSpec

Field = NDArray[Any]
ROUND, TALL = 1536, 384  # pixels of 360 degrees, and from the horizon to the zenith
# Pixels of the band that are repeated at its end, so that no view has a seam.
_PAD = 640
_DRIFT = 2.2  # pixels per second


class Sky(msgspec.Struct, frozen=True, eq=False):
    """The sky's `band`, RGB from 0 to 1 with the zenith in row 0, and premultiplied RGBA `clouds`."""

    band: Field
    clouds: Field

    def render(self, columns: Field, rows: Field, seconds: float) -> Field:
        """Return the sky at the band coordinates of the screen's columns and rows."""
        xs = np.broadcast_to(columns[None, :] % ROUND, (len(rows), len(columns))).astype(np.float32)
        ys = np.broadcast_to(rows[:, None], xs.shape).astype(np.float32)
        start = float(xs[0, 0])
        # Keep the columns ascending across the seam.
        xs = np.where(xs < start - 1, xs + ROUND, xs)
        background = cv2.remap(self.band, xs, ys, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        drifted = (xs - start) + np.float32((start + seconds * _DRIFT) % ROUND)
        clouds = cv2.remap(self.clouds, drifted, ys, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return background * (1 - clouds[..., 3:]) + clouds[..., :3]


def build(place: WorldSpec, sun: Field) -> Sky:
    rise = np.linspace(1, 0, TALL, dtype=np.float32)
    middle, low = place.color("middle"), place.color("horizon")
    upper = np.clip((rise - 0.28) / 0.72, 0, 1)[:, None] ** 0.8
    lower = np.clip(rise / 0.28, 0, 1)[:, None] ** 0.62
    column = np.where(
        rise[:, None] > 0.28,
        middle * (1 - upper) + place.color("zenith") * upper,
        low * (1 - lower) + middle * lower,
    )
    band = np.repeat(column[:, None], ROUND, 1).astype(np.float32)
    _stars(place, band)
    near = _glow(place, band, sun)
    clouds = _clouds(place, near)
    return Sky(_pad(np.clip(band, 0, 1)), _pad(clouds))


def _pad(band: Field) -> Field:
    return np.ascontiguousarray(np.concatenate([band, band, band[:, :_PAD]], 1), dtype=np.float32)


def _stars(place: WorldSpec, band: Field) -> None:
    strength = (
        place.hour.get("stars", 0.0) * (1 - place.weather["clouds"]) * (1 - place.weather.get("grey", 0.0))
    )
    if strength <= 0:
        return
    rng = noise.stream("live", place.seed, "stars")
    count = 900
    rows, columns = (rng.random(count) ** 1.2 * TALL * 0.95).astype(int), rng.integers(0, ROUND, count)
    light = (rng.random(count) ** 3 * 1.2 + 0.15) * strength
    spots = np.zeros((TALL, ROUND), np.float32)
    spots[rows, columns] = light
    soft = spots + cv2.GaussianBlur(spots, (3, 3), 0.6) * 1.2
    band += soft[..., None] * np.array([1.0, 0.98, 0.92], np.float32)


def _glow(place: WorldSpec, band: Field, sun: Field) -> Field:
    """Draw the sun or moon with its glow; return the proximity of each point to it, 0 to 1."""
    column = (np.arctan2(sun[0], sun[2]) / (2 * np.pi) % 1.0) * ROUND
    row = TALL * (1 - min(0.98, float(np.arctan2(sun[1], np.hypot(sun[0], sun[2]))) / 1.1))
    xs = np.abs(np.arange(ROUND, dtype=np.float32) - column)
    xs = np.minimum(xs, ROUND - xs)[None, :]
    ys = np.arange(TALL, dtype=np.float32)[:, None] - row
    away = np.sqrt(xs**2 + ys**2 * 1.15)
    clear = float(place.weather["sun"])
    moon = bool(place.hour.get("stars"))
    glow = place.color("glow")
    wide = np.exp(-away / (120 if not moon else 70)) * (0.55 if not moon else 0.28) * clear
    disc = np.clip(9.0 - away, 0, 1) * clear * (clear > 0.4)
    band += wide[..., None] * (glow - band * 0.4)
    band[:] = band * (1 - disc[..., None]) + disc[..., None] * np.clip(glow * 1.15, 0, 1)
    return np.exp(-away / 260).astype(np.float32) * clear


def _clouds(place: WorldSpec, near: Field) -> Field:
    """Return clouds, lit from the sun's side, thinner and flatter toward the horizon."""
    cover = float(place.weather["clouds"])
    rng = noise.stream("live", place.seed, "clouds")
    tile = noise.tile(rng, 1024, 5, 7, 0.53)
    rise = np.linspace(1, 0.0, TALL, dtype=np.float32)[:, None]
    # The perspective of a flat cloud layer seen from below.
    depth = 1 / (rise * 0.95 + 0.09)
    across = np.arange(ROUND, dtype=np.float32)[None, :] * (1024 * 2 / ROUND)
    xs = np.broadcast_to(across, (TALL, ROUND)).astype(np.float32) % 1024
    ys = np.broadcast_to(depth * 88, (TALL, ROUND)).astype(np.float32) % 1024
    wrapped = np.pad(tile, ((0, 2), (0, 2)), mode="wrap")
    body = cv2.remap(wrapped, xs, ys, cv2.INTER_LINEAR)
    above = cv2.remap(wrapped, xs, (ys + 16) % 1024, cv2.INTER_LINEAR)
    edge = 0.62 - 1.15 * cover
    thick = np.clip((body - edge) / 0.5, 0, 1)
    alpha = thick * thick * (3 - 2 * thick) * (0.42 + 0.58 * min(1.0, cover + 0.25)) * np.clip(rise * 9, 0, 1)
    lit = np.clip(0.62 + (body - above) * 0.9 + near * 0.5, 0.25, 1.2)
    bright = place.color("light") * 0.55 + place.color("horizon") * 0.5
    dark = place.color("shade") * 0.75 + place.color("middle") * 0.25
    color = dark * (1 - lit[..., None]) + bright * lit[..., None]
    color = np.clip(color + near[..., None] * place.color("glow") * 0.22, 0, 1)
    return np.concatenate([color * alpha[..., None], alpha[..., None]], 2).astype(np.float32)
