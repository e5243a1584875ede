"""Color: Lab conversion, palettes from dark to light, and grading."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.styles import textures
from sixfold.engines.image.styles.textures import Array


def parse_hex(code: str) -> Array:
    """Parse `"ff8800"` into three numbers from 0 to 1."""
    return np.array([int(code[at : at + 2], 16) for at in (0, 2, 4)], np.float32) / np.float32(255)


def parse_ramp(codes: str) -> Array:
    """Parse `"001133 aabbcc …"` into an Nx3 array in the same order."""
    return np.stack([parse_hex(code) for code in codes.split()])


def rgb_to_lab(rgb: Array) -> Array:
    """Convert RGB to CIE Lab (L 0 to 100)."""
    return cv2.cvtColor(np.clip(rgb, 0, 1).astype(np.float32), cv2.COLOR_RGB2LAB)


def lab_to_rgb(values: Array) -> Array:
    return np.clip(cv2.cvtColor(values.astype(np.float32), cv2.COLOR_LAB2RGB), 0, 1)


def map_tones(tone: Array, codes: str) -> Array:
    """Color each tone from the ramp, blended in Lab."""
    stops = rgb_to_lab(parse_ramp(codes)[None])[0]
    where = np.linspace(0, 1, 1024)
    table = np.stack(
        [np.interp(where, np.linspace(0, 1, len(stops)), stops[:, channel]) for channel in range(3)], axis=1
    )
    colors = lab_to_rgb(table[None].astype(np.float32))[0]
    return colors[np.clip(tone * 1023, 0, 1023).astype(np.int32)]


def transfer_palette(rgb: Array, codes: str, amount: float = 1.0, chroma: float = 0.5) -> Array:
    """Match the palette's color statistics (Reinhard) and shift each tone towards the palette's color.

    `chroma` is the fraction of the source's hues that is preserved; 0 results in a plain gradient map.
    """
    source = rgb_to_lab(rgb)
    stops = rgb_to_lab(parse_ramp(codes)[None])[0]
    sample = source[::4, ::4].reshape(-1, 3)
    mean, spread = sample.mean(axis=0), sample.std(axis=0) + 1.0
    target_mean, target_spread = stops.mean(axis=0), stops.std(axis=0) + 4.0
    ratio = np.clip(target_spread / spread, 0.4, [1.5, 2.2, 2.2])
    moved = (source - mean) * ratio.astype(np.float32) + target_mean.astype(np.float32)
    painted = rgb_to_lab(map_tones(np.clip(moved[..., 0] / 100, 0, 1), codes))
    painted[..., 0] = moved[..., 0]
    painted[..., 1:] += (moved[..., 1:] - painted[..., 1:]) * np.float32(chroma)
    return lab_to_rgb(source + (painted - source) * np.float32(amount))


def nearest_color(rgb: Array, codes: str) -> Array:
    """Replace each pixel with the palette's nearest color by Lab distance."""
    colors = parse_ramp(codes)
    stops = rgb_to_lab(colors[None])[0]
    lab = rgb_to_lab(rgb)
    best = np.zeros(rgb.shape[:2], np.int32)
    smallest = np.full(rgb.shape[:2], np.inf, np.float32)
    for index, stop in enumerate(stops):
        gap = lab - stop
        distance = np.einsum("ijk,ijk->ij", gap, gap)
        best[distance < smallest] = index
        smallest = np.minimum(smallest, distance)
    return colors[best]


def saturate(rgb: Array, amount: float) -> Array:
    """Multiply the chroma by `amount` without changing the luminance."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None]
    return np.clip(gray + (rgb - gray) * np.float32(amount), 0, 1)


def boost_vibrance(rgb: Array, amount: float) -> Array:
    """Raise the chroma by `amount`, more for low chroma so that saturated colors do not clip."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None]
    chroma = (rgb.max(axis=2) - rgb.min(axis=2))[..., None]
    return np.clip(gray + (rgb - gray) * (1 + np.float32(amount) * (1 - chroma)), 0, 1)


def adjust_contrast(rgb: Array, amount: float) -> Array:
    """Apply an S-curve around the middle; a negative amount flattens the contrast."""
    if amount < 0:
        return rgb * np.float32(1 + amount) + np.float32(-amount * 0.5)
    return textures.mix(rgb, textures.step(0, 1, rgb), min(amount, 1.0))


def gamma(rgb: Array, power: float) -> Array:
    """Raise `rgb` to `power`; a power above 1 darkens the image."""
    return np.power(np.clip(rgb, 0, 1), np.float32(power))


def bloom(rgb: Array, sigma: float, amount: float, floor: float = 0.6) -> Array:
    """Add light that spills from bright parts."""
    bright = np.maximum(rgb - np.float32(floor), 0) / np.float32(1 - floor)
    return 1 - (1 - rgb) * (1 - np.clip(textures.blur(bright, sigma) * np.float32(amount), 0, 1))


def split_tone(rgb: Array, shadows: str, lights: str, amount: float) -> Array:
    """Tint shadows and lights in two colors with approximately unchanged luminance."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    tint = textures.mix(
        np.broadcast_to(parse_hex(shadows), rgb.shape).astype(np.float32),
        np.broadcast_to(parse_hex(lights), rgb.shape).astype(np.float32),
        textures.step(0.15, 0.85, gray),
    )
    weight = np.array([0.299, 0.587, 0.114], np.float32)
    chroma = tint - (tint @ weight)[..., None]
    return np.clip(rgb + chroma * np.float32(amount), 0, 1)


def raise_local_contrast(rgb: Array, sigma: float, amount: float) -> Array:
    """Raise detail against its surroundings with an edge-preserving filter, which avoids halos."""
    lab = rgb_to_lab(rgb)
    light = lab[..., 0] / 100
    base = cv2.ximgproc.guidedFilter(light, light, max(2, int(sigma)), 0.02)
    lab[..., 0] = np.clip(base + (light - base) * np.float32(1 + amount), 0, 1) * 100
    return lab_to_rgb(lab)
