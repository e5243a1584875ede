"""Styles of light and film stock: noir, sepia, neon, vaporwave, HDR and soft focus."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.styles import colors, textures
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.textures import Array


def noir(canvas: Canvas) -> Array:
    """Render as black and white: hard key light, crushed shadows, grain."""
    rng = canvas.rng("noir")
    red = canvas.rgb @ np.array([0.52, 0.36, 0.12], np.float32)
    crisp = colors.raise_local_contrast(np.repeat(red[..., None], 3, 2), 22 * canvas.unit, 0.9)[..., 0]
    tone = textures.stretch(crisp, 0.03, 0.98)
    hard = textures.step(0.06, 0.92, np.power(tone, 1.25))
    lit = hard * textures.vignette(canvas.size, 0.72, 0.95)
    grain = textures.noise(canvas.size, max(1.0, 1.25 * canvas.unit), rng) * np.float32(0.045)
    glowing = colors.bloom(np.repeat(lit[..., None], 3, 2), 14 * canvas.unit, 0.35, 0.72)[..., 0]
    return colors.map_tones(
        np.clip(glowing + grain * (0.4 + 0.6 * (1 - glowing)), 0, 1), "050507 3b3c40 9b9c9f f7f6f2"
    )


def vintage(canvas: Canvas) -> Array:
    """Render as an old print: sepia, faded blacks, burnt edges, dust and scratches."""
    rng = canvas.rng("vintage")
    unit = canvas.unit
    height, width = canvas.size
    tone = textures.stretch(textures.blur(canvas.gray, 0.8 * unit))
    sepia = colors.map_tones(
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
    """Render as a neon city at night: teal and magenta light, glowing outlines, haze and scan lines."""
    unit = canvas.unit
    night = colors.gamma(colors.raise_local_contrast(canvas.rgb, 24 * unit, 0.8), 1.55) * np.float32(0.85)
    graded = colors.split_tone(colors.saturate(night, 1.25), "0a2a7a", "ff2bb0", 0.55)
    tone = canvas.tone
    tinted = textures.mix(graded, colors.map_tones(tone, "05030f 140a3c 3a0f78 b5179e ff4fa0 7df9ff"), 0.42)
    gray = canvas.abstract.mean(axis=2)
    rim = 1 - textures.contours(gray, canvas.px(1.7), 45, 0.008)
    rows = np.linspace(0, 1, canvas.size[0], dtype=np.float32)[:, None]
    columns = np.linspace(0, 1, canvas.size[1], dtype=np.float32)[None, :]
    share = textures.step(
        -0.5, 0.5, textures.noise(canvas.size, 300 * unit, canvas.rng("neon"), 2) + rows - columns
    )
    neon = textures.mix(
        np.broadcast_to(colors.parse_hex("00f0ff"), tinted.shape).astype(np.float32),
        np.broadcast_to(colors.parse_hex("ff1f8f"), tinted.shape).astype(np.float32),
        share,
    )
    burning = neon * rim[..., None]
    glow = textures.blur(burning, 3 * unit) * np.float32(0.9) + textures.blur(
        burning, 14 * unit
    ) * np.float32(1.1)
    lit = 1 - (1 - np.clip(tinted, 0, 1)) * (1 - np.clip(glow, 0, 1)) * (1 - np.clip(burning * 0.85, 0, 1))
    line = 0.93 + 0.07 * np.cos(rows * np.float32(2 * np.pi * canvas.size[0] / max(3.0, 4 * unit)))
    return np.clip(colors.adjust_contrast(lit, 0.3) * line[..., None] * _corner(canvas, 0.35), 0, 1)


def _corner(canvas: Canvas, strength: float) -> Array:
    return textures.vignette(canvas.size, strength)[..., None]


def vaporwave(canvas: Canvas) -> Array:
    """Render as a pink and turquoise dusk with soft glow, color fringes and scan lines."""
    unit = canvas.unit
    rng = canvas.rng("vaporwave")
    tone = textures.stretch(textures.mix(canvas.abstract, canvas.rgb, 0.5).mean(axis=2))
    dusk = colors.map_tones(tone, "1b1464 5b2a9d b84fc0 ff71ce ffa8c5 ffd3b8 c9fbff")
    sea = colors.map_tones(tone, "12205c 1f5fa8 01cdfe 6ff2e0 b9ffe9 fdf6ff")
    lab = colors.rgb_to_lab(canvas.abstract)
    coolness = textures.step(6, -8, textures.blur(lab[..., 2], 6 * unit))
    tinted = textures.mix(
        textures.mix(dusk, sea, coolness * 0.75), colors.boost_vibrance(canvas.rgb, 0.5), 0.16
    )
    offset = 3.2 * unit
    fringed = cv2.merge(
        [
            textures.shift(tinted[..., 0], offset, 0),
            tinted[..., 1],
            textures.shift(tinted[..., 2], -offset, 0),
        ]
    )
    soft = colors.bloom(fringed, 20 * unit, 0.5, 0.6)
    rows = np.arange(canvas.size[0], dtype=np.float32)[:, None]
    scan = 0.955 + 0.045 * np.cos(rows * np.float32(2 * np.pi / max(3.0, 4 * unit)))
    grain = textures.noise(canvas.size, max(1.0, 1.4 * unit), rng) * np.float32(0.018)
    return np.clip(soft * scan[..., None] + grain[..., None] + np.float32(0.02), 0, 1)


def hdr(canvas: Canvas) -> Array:
    """Render as high dynamic range: open shadows, raised detail, strong color."""
    unit = canvas.unit
    wide = colors.raise_local_contrast(canvas.rgb, 40 * unit, 1.1)
    fine = colors.raise_local_contrast(wide, 7 * unit, 0.9)
    rich = colors.boost_vibrance(colors.adjust_contrast(fine, 0.35), 0.75)
    graded = colors.split_tone(rich, "10306a", "ffb763", 0.20)
    return np.clip(graded * _corner(canvas, 0.38), 0, 1)


def dream(canvas: Canvas) -> Array:
    """Render as soft focus at golden hour: glow, lifted blacks, warm light from one side."""
    unit = canvas.unit
    soft = textures.mix(canvas.rgb, textures.blur(canvas.rgb, 12 * unit), 0.42)
    light = 1 - (1 - soft * np.float32(0.84)) * (1 - textures.blur(canvas.rgb, 26 * unit) * np.float32(0.30))
    warm = colors.split_tone(light, "7a5aa0", "ffc98a", 0.30)
    rows = np.linspace(1, 0, canvas.size[0], dtype=np.float32)[:, None]
    columns = np.linspace(0, 1, canvas.size[1], dtype=np.float32)[None, :]
    leak = textures.step(0.75, 1.9, rows + columns) * np.float32(0.55)
    glowing = 1 - (1 - warm) * (1 - leak[..., None] * colors.parse_hex("ffb070"))
    return np.clip(glowing * np.float32(0.93) + np.float32(0.055), 0, 1)


def infrared(canvas: Canvas) -> Array:
    """Render as color infrared: greens turn pink and white, skies deep teal."""
    unit = canvas.unit
    red, green, blue = (canvas.rgb[..., index] for index in range(3))
    leaf = textures.step(-0.02, 0.16, green - np.maximum(red * 0.92, blue))
    sky = textures.step(0.02, 0.20, blue - red)
    swapped = np.stack(
        [0.75 * green + 0.35 * red, 0.55 * blue + 0.25 * red, 0.6 * blue + 0.25 * green], axis=2
    )
    pink = colors.map_tones(np.clip(canvas.tone * 1.25 + 0.18, 0, 1), "3a0720 a8124f ff4f86 ffb3c6 fff1f2")
    deep = colors.map_tones(canvas.tone, "02161f 0a4a5e 2a8f9f 9fd6d2 f4fffb")
    developed = textures.mix(textures.mix(swapped, deep, sky * 0.8), pink, leaf * 0.9)
    return np.clip(colors.bloom(colors.adjust_contrast(developed, 0.3), 12 * unit, 0.45, 0.66), 0, 1)
