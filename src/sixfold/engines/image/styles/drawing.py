"""Drawn styles: pencil, charcoal, ink, chalk, engraving, comic and cel line work."""

from __future__ import annotations

import numpy as np

from sixfold.engines.image.styles import colors, textures
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.textures import Array


def _hatch(canvas: Canvas, purpose: str, degrees: float, cell: float = 1.3, length: float = 26) -> Array:
    """Return pencil strokes in one direction, with mean 0 and deviation about 1."""
    grain = textures.noise(canvas.size, max(1.0, canvas.px(cell)), canvas.rng(purpose))
    marks = textures.directional_blur(grain, degrees, canvas.px(length))
    return marks / np.float32(marks.std() + 1e-6)


def _graphite(canvas: Canvas) -> Array:
    """Return outlines, and tone hatched in up to three directions; paper is 1, graphite 0."""
    unit = canvas.unit
    tone = np.power(textures.stretch(canvas.abstract.mean(axis=2) * 0.6 + canvas.gray * 0.4), 0.85)
    page = np.ones(canvas.size, np.float32)
    for index, (degrees, level) in enumerate(((-48, 0.80), (-20, 0.52), (38, 0.30))):
        marks = _hatch(canvas, f"hatch {index}", degrees)
        dark = np.clip((level - tone) / 0.5, 0, 1)
        page *= 1 - np.clip(dark * (0.52 + 0.42 * marks), 0, 0.85) * np.float32(0.78)
    fine = textures.contours(canvas.gray, 0.9 * unit, 34, 0.006)
    bold = textures.contours(
        textures.blur(canvas.abstract.mean(axis=2), 0.6 * unit), canvas.px(1.9), 30, 0.008
    )
    grain = 0.82 + 0.18 * _hatch(canvas, "pressure", -48, 1.0, 6)
    return page * (1 - (1 - fine) * 0.62 * grain) * (1 - (1 - bold) * 0.72 * grain)


def pencil(canvas: Canvas) -> Array:
    """Render as graphite on white paper."""
    pulp = textures.paper(canvas.size, canvas.unit, canvas.rng("paper"))
    page = np.clip(_graphite(canvas) + 0.05 * pulp, 0, 1)
    return colors.map_tones(page, "26262a 5b5b60 a3a3a5 dcdad6 f8f6f1")


def colored_pencil(canvas: Canvas) -> Array:
    """Render as colored pencils: tone and hue hatched in the same strokes."""
    tone = canvas.tone
    page = np.ones((*canvas.size, 3), np.float32)
    ink = colors.boost_vibrance(colors.gamma(canvas.abstract, 0.9), 0.9)
    ink = ink / np.maximum(ink.max(axis=2, keepdims=True), 0.2) * np.float32(0.93)
    chroma = canvas.abstract.max(axis=2) - canvas.abstract.min(axis=2)
    for index, (degrees, share) in enumerate(((-52, 1.0), (-24, 0.8), (40, 0.6))):
        marks = _hatch(canvas, f"crayon {index}", degrees, 1.4, 22)
        need = np.clip((0.95 - tone) * 1.1 * share + chroma * 0.9, 0, 1)
        laid = np.clip(need * (0.62 + 0.48 * marks), 0, 0.95)
        page *= 1 - laid[..., None] * (1 - ink) * np.float32(0.9)
        page *= 1 - np.clip(laid * np.clip(0.62 - tone, 0, 1), 0, 1)[..., None] * np.float32(0.85)
    line = textures.contours(canvas.gray, canvas.px(1.1), 30, 0.007)
    pulp = textures.paper(canvas.size, canvas.unit, canvas.rng("paper"))
    page *= (1 - (1 - line) * 0.55)[..., None]
    return np.clip(page * colors.parse_hex("fcf9f2") + (0.035 * pulp)[..., None], 0, 1)


def charcoal(canvas: Canvas) -> Array:
    """Render as charcoal: smudged darks, broken up by the paper's texture, and heavy contours."""
    unit = canvas.unit
    rng = canvas.rng("charcoal")
    tone = np.power(textures.stretch(canvas.abstract.mean(axis=2)), 1.15)
    smudge = textures.directional_blur(tone, -40, canvas.px(16))
    tooth = textures.noise(canvas.size, max(1.0, 2.0 * unit), rng, 2)
    drag = _hatch(canvas, "drag", -40, 1.8, 18)
    grain = 0.65 * tooth + 0.6 * drag
    darks = np.clip(0.55 * smudge + 0.45 * tone, 0, 1)
    rubbed = textures.step(-0.16, 0.62, darks + 0.20 * grain * (1 - np.abs(2 * darks - 1) * 0.55))
    contour = textures.contours(textures.blur(canvas.abstract.mean(axis=2), unit), canvas.px(2.4), 26, 0.006)
    broken = np.clip(0.85 + 0.3 * grain, 0.25, 1)
    page = rubbed * (1 - (1 - contour) * 0.92 * broken)
    return colors.map_tones(np.clip(0.05 + 0.95 * page, 0, 1), "141312 35322f 7d766d c3b9aa e9e1d3")


def chalkboard(canvas: Canvas) -> Array:
    """Render as white and tinted chalk on slate."""
    unit = canvas.unit
    rng = canvas.rng("chalk")
    gray = canvas.abstract.mean(axis=2)
    line = 1 - textures.contours(gray, canvas.px(1.7), 40, 0.006)
    inverse = 1 - textures.contours(1 - gray, canvas.px(1.7), 40, 0.006)
    tooth = textures.noise(canvas.size, max(1.0, 1.8 * unit), rng, 2)
    drag = _hatch(canvas, "chalk side", -35, 1.8, 16)
    fill = np.clip(np.power(canvas.tone, 1.2) * (0.62 + 0.17 * drag + 0.15 * tooth), 0, 0.9)
    chalk = np.clip(np.maximum(line, inverse * 0.8) * np.clip(0.9 + 0.35 * tooth, 0.2, 1.1) + fill, 0, 1)
    tint = textures.mix(
        np.full_like(canvas.rgb, 0.93), colors.boost_vibrance(colors.gamma(canvas.abstract, 0.6), 1.0), 0.45
    )
    cloud = textures.noise(canvas.size, 170 * unit, rng, 4)
    slate = colors.parse_hex("24302c") * (1 + 0.10 * cloud + 0.02 * tooth)[..., None]
    return np.clip(textures.mix(slate, tint, chalk), 0, 1)


def engraving(canvas: Canvas) -> Array:
    """Render as banknote line work: swelling lines that bend with the tone, crossed in the shadows."""
    unit = canvas.unit
    tone = np.power(textures.stretch(textures.blur(canvas.abstract.mean(axis=2), 1.5 * unit)), 0.8)
    detail = textures.stretch(canvas.gray * 0.6 + canvas.abstract.mean(axis=2) * 0.4)
    form = textures.blur(tone, 9 * unit)
    pitch = max(4.0, canvas.px(5.4))
    rows = np.arange(canvas.size[0], dtype=np.float32)[:, None]
    columns = np.arange(canvas.size[1], dtype=np.float32)[None, :]
    page = np.ones(canvas.size, np.float32)
    for degrees, low, high in ((8, 0.0, 0.97), (68, 0.0, 0.50), (-38, 0.0, 0.24)):
        theta = np.radians(degrees)
        across = rows * np.float32(np.cos(theta)) + columns * np.float32(np.sin(theta))
        phase = (across + form * np.float32(34 * unit)) * np.float32(2 * np.pi / pitch)
        dark = np.clip((high - detail) / max(high - low, 0.1), 0, 1)
        width = np.float32(0.02) + dark * np.float32(0.74)
        wave = np.abs(np.sin(phase / 2))
        page = np.minimum(page, textures.step(-0.10, 0.10, wave - width))
    line = textures.contours(canvas.abstract.mean(axis=2), canvas.px(1.1), 70, 0.006)
    return colors.map_tones(np.clip(page * line, 0, 1), "1c2326 3c4444 a09a86 efe7d3 f6f0df")


def _flat(canvas: Canvas, bands: int, lift: float) -> Array:
    """Quantize luminance into bands (cel shading) with unchanged hue and raised chroma."""
    lab = colors.rgb_to_lab(colors.boost_vibrance(canvas.abstract, lift))
    light = lab[..., 0] / 100
    flat = textures.quantize(light, bands, 0.07)
    lab[..., 0] = np.clip(0.82 * flat + 0.18 * light + 0.02, 0, 1) * 100
    return colors.lab_to_rgb(lab)


def comic(canvas: Canvas) -> Array:
    """Render as an inked page: flat colors, Ben-Day dots in the midtones, black shadows and contours."""
    unit = canvas.unit
    flat = _flat(canvas, 5, 1.0)
    tone = textures.stretch(canvas.abstract.mean(axis=2))
    screen = textures.dots(np.clip(tone * 1.35 + 0.10, 0, 1), max(4.0, canvas.px(7.0)), 30)
    middle = textures.step(0.14, 0.24, tone) * (1 - textures.step(0.60, 0.72, tone))
    inked = flat * (1 - (1 - screen) * middle * 0.42)[..., None]
    lit = textures.mix(inked, np.ones_like(inked), textures.step(0.93, 0.985, tone) * 0.7)
    line = textures.contours(
        textures.blur(canvas.abstract.mean(axis=2), 0.8 * unit), canvas.px(1.7), 90, 0.008
    )
    blacks = textures.step(0.035, 0.075, textures.blur(tone, 1.2 * unit))
    page = lit * colors.parse_hex("fffbf0")
    return np.clip(page * (line * blacks)[..., None], 0, 1)


def manga(canvas: Canvas) -> Array:
    """Render as black, white and one screen tone."""
    unit = canvas.unit
    tone = textures.stretch(canvas.abstract.mean(axis=2) * 0.8 + canvas.gray * 0.2)
    screen = textures.dots(np.clip(tone * 0.95 + 0.12, 0, 1), max(4.0, canvas.px(5.2)), 45)
    light = textures.step(0.60, 0.64, tone)
    black = textures.step(0.16, 0.19, textures.blur(tone, 1.0 * unit))
    line = textures.contours(
        canvas.gray * 0.5 + canvas.abstract.mean(axis=2) * 0.5, canvas.px(1.3), 80, 0.007
    )
    page = np.maximum(screen, light) * black * line
    return colors.map_tones(np.clip(page, 0, 1), "101014 8d8d92 fdfdfb")


def anime(canvas: Canvas) -> Array:
    """Render as a cel frame: clean bands of bright color, cool shadows, thin tinted lines, bloom."""
    unit = canvas.unit
    smooth = textures.kuwahara(canvas.abstract, round(canvas.px(3)))
    light = colors.gamma(colors.boost_vibrance(smooth, 0.75), 0.86)
    lab = colors.rgb_to_lab(light)
    level = lab[..., 0] / 100
    lab[..., 0] = np.clip(0.70 * textures.quantize(level, 6, 0.10) + 0.30 * level + 0.015, 0, 1) * 100
    cel = colors.split_tone(colors.lab_to_rgb(lab), "38469c", "fff0cf", 0.16)
    line = textures.contours(textures.blur(smooth.mean(axis=2), 0.5 * unit), canvas.px(1.15), 70, 0.007)
    drawn = cel * textures.mix(cel * np.float32(0.35), np.ones_like(cel), line)
    return np.clip(colors.bloom(drawn, 16 * unit, 0.32, 0.72), 0, 1)


def blueprint(canvas: Canvas) -> Array:
    """Render as white construction lines and light hatching on Prussian blue, over a ruled grid."""
    unit = canvas.unit
    rng = canvas.rng("blueprint")
    gray = canvas.abstract.mean(axis=2)
    dark = 1 - textures.contours(gray, canvas.px(1.25), 60, 0.005)
    bright = 1 - textures.contours(1 - gray, canvas.px(1.25), 60, 0.005)
    rows = np.arange(canvas.size[0], dtype=np.float32)[:, None]
    columns = np.arange(canvas.size[1], dtype=np.float32)[None, :]
    pitch = np.float32(2 * np.pi / max(5.0, canvas.px(8)))
    hatch = textures.step(0.35, 0.95, np.sin((rows + columns) * pitch))
    shade = hatch * textures.step(0.50, 0.15, canvas.tone) * np.float32(0.30)
    grid = np.zeros(canvas.size, np.float32)
    for cell, weight in ((32.0, 0.10), (160.0, 0.22)):
        for axis in (rows, columns):
            off = np.abs((axis / np.float32(cell * unit) + 0.5) % 1 - 0.5) * np.float32(cell * unit)
            grid = np.maximum(grid, (1 - np.clip(off / max(1.0, unit), 0, 1)) * np.float32(weight))
    chalk = np.clip(np.maximum(dark, bright * 0.75) + shade + 0.42 * np.power(canvas.tone, 1.6), 0, 1)
    cloud = textures.noise(canvas.size, 220 * unit, rng, 4) + 0.4 * textures.paper(canvas.size, unit, rng)
    sheet = colors.parse_hex("123f7c") * (1 + 0.07 * cloud)[..., None]
    return np.clip(
        textures.mix(
            sheet, np.broadcast_to(colors.parse_hex("eaf3ff"), sheet.shape), np.maximum(chalk, grid)
        ),
        0,
        1,
    )
