"""Styles made with light and film: noir, sepia, neon, vaporwave, HDR, and the dream of a soft lens."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.styles import colors, textures
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.textures import Array


def noir(canvas: Canvas) -> Array:
    """Black and white film: hard key light, crushed shadows, grain."""
    rng = canvas.rng("noir")
    red = canvas.rgb @ np.array([0.52, 0.36, 0.12], np.float32)
    crisp = colors.locally_contrasted(np.repeat(red[..., None], 3, 2), 22 * canvas.unit, 0.9)[..., 0]
    tone = textures.stretched(crisp, 0.03, 0.98)
    hard = textures.step(0.06, 0.92, np.power(tone, 1.25))
    lit = hard * textures.vignette(canvas.size, 0.72, 0.95)
    grain = textures.noise(canvas.size, max(1.0, 1.25 * canvas.unit), rng) * np.float32(0.045)
    glowing = colors.bloomed(np.repeat(lit[..., None], 3, 2), 14 * canvas.unit, 0.35, 0.72)[..., 0]
    return colors.mapped(
        np.clip(glowing + grain * (0.4 + 0.6 * (1 - glowing)), 0, 1), "050507 3b3c40 9b9c9f f7f6f2"
    )


def vintage(canvas: Canvas) -> Array:
    """An old print: sepia, faded blacks, burnt edges, dust and scratches."""
    rng = canvas.rng("vintage")
    unit = canvas.unit
    height, width = canvas.size
    tone = textures.stretched(textures.blur(canvas.gray, 0.8 * unit))
    sepia = colors.mapped(
        0.07 + 0.88 * textures.step(-0.15, 1.1, tone), "22140a 5b3a1e a0713f d8b27a f5e3bd fbf1d8"
    )
    stain = textures.noise(canvas.size, 330 * unit, rng, 3)
    aged = sepia * (textures.vignette(canvas.size, 0.45, 0.95) * (1 + 0.045 * stain))[..., None]
    grain = textures.noise(canvas.size, max(1.0, 1.5 * unit), rng) * np.float32(0.035)
    marks = np.zeros(canvas.size, np.uint8)
    for _ in range(9):
        x = float(rng.uniform(0, width))
        end = (round(x + rng.normal(0, 12 * unit)), height)
        cv2.line(marks, (round(x), 0), end, int(rng.integers(30, 90)), 1, cv2.LINE_AA)
    for _ in range(70):
        at = (int(rng.uniform(0, width)), int(rng.uniform(0, height)))
        cv2.circle(
            marks, at, max(1, int(rng.exponential(1.2) * unit)), int(rng.integers(60, 190)), -1, cv2.LINE_AA
        )
    dust = textures.blur(marks.astype(np.float32) / 255, 0.6 * unit) * np.float32(0.55)
    return np.clip(textures.mix(aged + grain[..., None], np.full_like(aged, 0.96), dust), 0, 1)


def cyberpunk(canvas: Canvas) -> Array:
    """Night in a neon city: teal and magenta light, outlines that burn, haze and scan lines."""
    unit = canvas.unit
    night = colors.gamma(colors.locally_contrasted(canvas.rgb, 24 * unit, 0.8), 1.55) * np.float32(0.85)
    graded = colors.split(colors.saturated(night, 1.25), "0a2a7a", "ff2bb0", 0.55)
    tone = canvas.tone
    tinted = textures.mix(graded, colors.mapped(tone, "05030f 140a3c 3a0f78 b5179e ff4fa0 7df9ff"), 0.42)
    gray = canvas.abstract.mean(axis=2)
    rim = 1 - textures.contours(gray, canvas.px(1.7), 45, 0.008)
    rows = np.linspace(0, 1, canvas.size[0], dtype=np.float32)[:, None]
    columns = np.linspace(0, 1, canvas.size[1], dtype=np.float32)[None, :]
    share = textures.step(
        -0.5, 0.5, textures.noise(canvas.size, 300 * unit, canvas.rng("neon"), 2) + rows - columns
    )
    neon = textures.mix(
        np.broadcast_to(colors.parsed("00f0ff"), tinted.shape).astype(np.float32),
        np.broadcast_to(colors.parsed("ff1f8f"), tinted.shape).astype(np.float32),
        share,
    )
    burning = neon * rim[..., None]
    glow = textures.blur(burning, 3 * unit) * np.float32(0.9) + textures.blur(
        burning, 14 * unit
    ) * np.float32(1.1)
    lit = 1 - (1 - np.clip(tinted, 0, 1)) * (1 - np.clip(glow, 0, 1)) * (1 - np.clip(burning * 0.85, 0, 1))
    line = 0.93 + 0.07 * np.cos(rows * np.float32(2 * np.pi * canvas.size[0] / max(3.0, 4 * unit)))
    return np.clip(colors.contrasted(lit, 0.3) * line[..., None] * _corner(canvas, 0.35), 0, 1)


def _corner(canvas: Canvas, strength: float) -> Array:
    return textures.vignette(canvas.size, strength)[..., None]


def vaporwave(canvas: Canvas) -> Array:
    """Pink and turquoise dusk, soft glow, color fringes, the lines of a tired screen."""
    unit = canvas.unit
    rng = canvas.rng("vaporwave")
    tone = textures.stretched(textures.mix(canvas.abstract, canvas.rgb, 0.5).mean(axis=2))
    dusk = colors.mapped(tone, "1b1464 5b2a9d b84fc0 ff71ce ffa8c5 ffd3b8 c9fbff")
    sea = colors.mapped(tone, "12205c 1f5fa8 01cdfe 6ff2e0 b9ffe9 fdf6ff")
    own = colors.lab(canvas.abstract)
    cool = textures.step(6, -8, textures.blur(own[..., 2], 6 * unit))
    tinted = textures.mix(textures.mix(dusk, sea, cool * 0.75), colors.vivid(canvas.rgb, 0.5), 0.16)
    apart = 3.2 * unit
    fringed = cv2.merge(
        [
            textures.shifted(tinted[..., 0], apart, 0),
            tinted[..., 1],
            textures.shifted(tinted[..., 2], -apart, 0),
        ]
    )
    soft = colors.bloomed(fringed, 20 * unit, 0.5, 0.6)
    rows = np.arange(canvas.size[0], dtype=np.float32)[:, None]
    scan = 0.955 + 0.045 * np.cos(rows * np.float32(2 * np.pi / max(3.0, 4 * unit)))
    grain = textures.noise(canvas.size, max(1.0, 1.4 * unit), rng) * np.float32(0.018)
    return np.clip(soft * scan[..., None] + grain[..., None] + np.float32(0.02), 0, 1)


def hdr(canvas: Canvas) -> Array:
    """Everything at once: every shadow opened, every detail lifted, strong color and weather."""
    unit = canvas.unit
    wide = colors.locally_contrasted(canvas.rgb, 40 * unit, 1.1)
    fine = colors.locally_contrasted(wide, 7 * unit, 0.9)
    rich = colors.vivid(colors.contrasted(fine, 0.35), 0.75)
    graded = colors.split(rich, "10306a", "ffb763", 0.20)
    return np.clip(graded * _corner(canvas, 0.38), 0, 1)


def dream(canvas: Canvas) -> Array:
    """A soft lens at the golden hour: glow, lifted blacks, warm light from one side."""
    unit = canvas.unit
    soft = textures.mix(canvas.rgb, textures.blur(canvas.rgb, 12 * unit), 0.42)
    light = 1 - (1 - soft * np.float32(0.84)) * (1 - textures.blur(canvas.rgb, 26 * unit) * np.float32(0.30))
    warm = colors.split(light, "7a5aa0", "ffc98a", 0.30)
    rows = np.linspace(1, 0, canvas.size[0], dtype=np.float32)[:, None]
    columns = np.linspace(0, 1, canvas.size[1], dtype=np.float32)[None, :]
    leak = textures.step(0.75, 1.9, rows + columns) * np.float32(0.55)
    glowing = 1 - (1 - warm) * (1 - leak[..., None] * colors.parsed("ffb070"))
    return np.clip(glowing * np.float32(0.93) + np.float32(0.055), 0, 1)


def infrared(canvas: Canvas) -> Array:
    """Color infrared film: what is green glows pink and white, skies go deep teal."""
    unit = canvas.unit
    red, green, blue = (canvas.rgb[..., index] for index in range(3))
    leaf = textures.step(-0.02, 0.16, green - np.maximum(red * 0.92, blue))
    sky = textures.step(0.02, 0.20, blue - red)
    swapped = np.stack(
        [0.75 * green + 0.35 * red, 0.55 * blue + 0.25 * red, 0.6 * blue + 0.25 * green], axis=2
    )
    pink = colors.mapped(np.clip(canvas.tone * 1.25 + 0.18, 0, 1), "3a0720 a8124f ff4f86 ffb3c6 fff1f2")
    deep = colors.mapped(canvas.tone, "02161f 0a4a5e 2a8f9f 9fd6d2 f4fffb")
    film = textures.mix(textures.mix(swapped, deep, sky * 0.8), pink, leaf * 0.9)
    return np.clip(colors.bloomed(colors.contrasted(film, 0.3), 12 * unit, 0.45, 0.66), 0, 1)
