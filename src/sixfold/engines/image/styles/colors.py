"""Color: Lab statistics, palettes from dark to light, and grading."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.styles import textures
from sixfold.engines.image.styles.textures import Array


def parsed(code: str) -> Array:
    """`"ff8800"` as three numbers from 0 to 1."""
    return np.array([int(code[at : at + 2], 16) for at in (0, 2, 4)], np.float32) / np.float32(255)


def ramp(codes: str) -> Array:
    """`"001133 aabbcc …"` as Nx3, dark to light as written."""
    return np.stack([parsed(code) for code in codes.split()])


def lab(rgb: Array) -> Array:
    """CIE Lab (L 0 to 100)."""
    return cv2.cvtColor(np.clip(rgb, 0, 1).astype(np.float32), cv2.COLOR_RGB2LAB)


def unlab(values: Array) -> Array:
    """RGB of Lab."""
    return np.clip(cv2.cvtColor(values.astype(np.float32), cv2.COLOR_LAB2RGB), 0, 1)


def mapped(tone: Array, codes: str) -> Array:
    """A gradient map: each tone takes its color from the ramp, blended in Lab."""
    stops = lab(ramp(codes)[None])[0]
    where = np.linspace(0, 1, 1024)
    table = np.stack(
        [np.interp(where, np.linspace(0, 1, len(stops)), stops[:, channel]) for channel in range(3)], axis=1
    )
    colors = unlab(table[None].astype(np.float32))[0]
    return colors[np.clip(tone * 1023, 0, 1023).astype(np.int32)]


def transferred(rgb: Array, codes: str, amount: float = 1.0, chroma: float = 0.5) -> Array:
    """Reinhard's transfer to a palette's statistics, drawn towards the palette's color for each tone.

    `chroma` is how far hues of the source survive: 0 is a plain gradient map.
    """
    own = lab(rgb)
    stops = lab(ramp(codes)[None])[0]
    sample = own[::4, ::4].reshape(-1, 3)
    mean, spread = sample.mean(axis=0), sample.std(axis=0) + 1.0
    aim, reach = stops.mean(axis=0), stops.std(axis=0) + 4.0
    ratio = np.clip(reach / spread, 0.4, [1.5, 2.2, 2.2])
    moved = (own - mean) * ratio.astype(np.float32) + aim.astype(np.float32)
    painted = lab(mapped(np.clip(moved[..., 0] / 100, 0, 1), codes))
    painted[..., 0] = moved[..., 0]
    painted[..., 1:] += (moved[..., 1:] - painted[..., 1:]) * np.float32(chroma)
    return unlab(own + (painted - own) * np.float32(amount))


def nearest(rgb: Array, codes: str) -> Array:
    """Each pixel's nearest color of a palette, by Lab distance."""
    colors = ramp(codes)
    stops = lab(colors[None])[0]
    own = lab(rgb)
    best = np.zeros(rgb.shape[:2], np.int32)
    least = np.full(rgb.shape[:2], np.inf, np.float32)
    for index, stop in enumerate(stops):
        gap = own - stop
        distance = np.einsum("ijk,ijk->ij", gap, gap)
        best[distance < least] = index
        least = np.minimum(least, distance)
    return colors[best]


def saturated(rgb: Array, amount: float) -> Array:
    """Chroma multiplied by `amount`, luminance kept."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None]
    return np.clip(gray + (rgb - gray) * np.float32(amount), 0, 1)


def vivid(rgb: Array, amount: float) -> Array:
    """Chroma lifted more where it is weak, so that strong colors do not burst."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None]
    chroma = (rgb.max(axis=2) - rgb.min(axis=2))[..., None]
    return np.clip(gray + (rgb - gray) * (1 + np.float32(amount) * (1 - chroma)), 0, 1)


def contrasted(rgb: Array, amount: float) -> Array:
    """An S-curve about the middle; a negative amount flattens."""
    if amount < 0:
        return rgb * np.float32(1 + amount) + np.float32(-amount * 0.5)
    return textures.mix(rgb, textures.step(0, 1, rgb), min(amount, 1.0))


def gamma(rgb: Array, power: float) -> Array:
    """`rgb` to a power: above 1 darkens."""
    return np.power(np.clip(rgb, 0, 1), np.float32(power))


def bloomed(rgb: Array, sigma: float, amount: float, floor: float = 0.6) -> Array:
    """Light spilling from bright places."""
    bright = np.maximum(rgb - np.float32(floor), 0) / np.float32(1 - floor)
    return 1 - (1 - rgb) * (1 - np.clip(textures.blur(bright, sigma) * np.float32(amount), 0, 1))


def split(rgb: Array, shadows: str, lights: str, amount: float) -> Array:
    """Shadows pulled to one color and lights to another, luminance about kept."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    tint = textures.mix(
        np.broadcast_to(parsed(shadows), rgb.shape).astype(np.float32),
        np.broadcast_to(parsed(lights), rgb.shape).astype(np.float32),
        textures.step(0.15, 0.85, gray),
    )
    weight = np.array([0.299, 0.587, 0.114], np.float32)
    chroma = tint - (tint @ weight)[..., None]
    return np.clip(rgb + chroma * np.float32(amount), 0, 1)


def locally_contrasted(rgb: Array, sigma: float, amount: float) -> Array:
    """Detail lifted against its surroundings, without halos: the surroundings keep their edges."""
    own = lab(rgb)
    light = own[..., 0] / 100
    base = cv2.ximgproc.guidedFilter(light, light, max(2, int(sigma)), 0.02)
    own[..., 0] = np.clip(base + (light - base) * np.float32(1 + amount), 0, 1) * 100
    return unlab(own)
