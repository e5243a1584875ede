"""Printed styles: pop art, risograph, woodblock, linocut, cut paper."""

from __future__ import annotations

import numpy as np

from sixfold.engines.image.styles import colors, textures
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.textures import Array


def pop_art(canvas: Canvas) -> Array:
    """Render as silkscreen: flat saturated colors by tone, coarse dots, and a misregistered black plate."""
    unit = canvas.unit
    tone = textures.stretch(textures.blur(canvas.abstract.mean(axis=2), 1.5 * unit))
    lab = colors.rgb_to_lab(canvas.abstract)
    warm = textures.blur(lab[..., 1] + lab[..., 2], 10 * unit)
    warm = textures.step(-6, 6, warm - np.float32(np.median(warm[::4, ::4])))
    flat = textures.quantize(np.clip(tone, 0, 0.999), 5, 0.03)
    hot = colors.map_tones(flat, "2b1055 e4007c ff3b30 ffb400 fff04d fff8c9")
    cool = colors.map_tones(flat, "1a1147 3a2fbf 0091d5 16c5b5 a8ec6a f6ffd8")
    plate = textures.mix(cool, hot, warm)
    screen = textures.dots(np.clip(tone * 1.1 + 0.06, 0, 1), max(5.0, canvas.px(11)), 22)
    middle = textures.step(0.20, 0.34, tone) * (1 - textures.step(0.74, 0.84, tone))
    plate = plate * (1 - (1 - screen) * middle * 0.55)[..., None]
    black = textures.step(0.13, 0.17, tone)
    line = textures.contours(canvas.abstract.mean(axis=2), canvas.px(2.2), 70, 0.010)
    key = textures.shift(black * line, 2.5 * unit, -2 * unit)
    return np.clip(textures.mix(np.broadcast_to(colors.parse_hex("16101f"), plate.shape), plate, key), 0, 1)


# Ink, screen angle and shift of the plate (x, y); each ink absorbs its complementary color.
_RISO = (("ffd400", 5, 1.5, 0.5), ("ff3f7f", 38, -2.2, 1.6), ("0068c9", 72, 1.0, -2.0))


def risograph(canvas: Canvas) -> Array:
    """Render as three spot inks in grainy halftone screens, slightly misregistered, on uncoated paper."""
    unit = canvas.unit
    rng = canvas.rng("risograph")
    aim = colors.adjust_contrast(colors.boost_vibrance(canvas.abstract * 0.7 + canvas.rgb * 0.3, 1.3), 0.6)
    page = np.broadcast_to(colors.parse_hex("f6f0e2"), aim.shape).astype(np.float32)
    pulp = textures.paper(canvas.size, unit, rng)
    pitch = max(4.0, canvas.px(6.4))
    for index, (code, degrees, dx, dy) in enumerate(_RISO):
        plate = aim[..., (2, 1, 0)[index]]
        plate = textures.shift(plate, dx * unit, dy * unit)
        grain = textures.noise(canvas.size, max(1.0, 1.3 * unit), rng) * np.float32(0.07)
        cover = 1 - textures.dots(np.clip(plate * 0.98 + 0.02 + grain, 0, 1), pitch, degrees, 0.16)
        uneven = 0.93 + 0.025 * textures.noise(canvas.size, 150 * unit, rng, 3) + 0.08 * pulp
        page = page * (1 - np.clip(cover * uneven, 0, 1)[..., None] * (1 - colors.parse_hex(code)))
    return np.clip(page, 0, 1)


_WOODBLOCK = (
    "1b2440 27406b 3f6d96 7fa6b5 b9cfc9 e9dfc4 f4ecd8 d9b779 c08a4a b5523b 8d3a31 "
    "5a4a3c 7d8a62 4e6651 a89a82 2b2b2e d7c7a8"
)


def ukiyo_e(canvas: Canvas) -> Array:
    """Render as a woodblock print: few mineral colors, graded by wiping, dark blue key lines, wood grain."""
    unit = canvas.unit
    rng = canvas.rng("ukiyo-e")
    smooth = textures.kuwahara(canvas.abstract, round(canvas.px(5)))
    lab = colors.rgb_to_lab(colors.boost_vibrance(smooth, 0.55))
    light = textures.stretch(lab[..., 0] / 100)
    lab[..., 0] = (0.12 + 0.83 * textures.quantize(light, 6, 0.25)) * 100
    flat = colors.nearest_color(colors.lab_to_rgb(lab), _WOODBLOCK)
    flat = textures.mix(textures.blur(flat, 1.2 * unit), colors.lab_to_rgb(lab), 0.30)
    rows = np.linspace(0, 1, canvas.size[0], dtype=np.float32)[:, None]
    wipe = textures.step(0.22, 0.0, rows + np.zeros(canvas.size, np.float32)) * np.float32(0.55)
    flat = textures.mix(flat, flat * (colors.parse_hex("3d5f96") + np.float32(0.12)), wipe)
    plank = np.sin(
        textures.noise(canvas.size, 300 * unit, rng, 2) * 9 + rows * np.float32(canvas.size[0] / (16 * unit))
    )
    fiber = textures.directional_blur(
        textures.noise(canvas.size, max(1.0, 1.4 * unit), rng), 3, canvas.px(40)
    )
    inked = flat * (1 + 0.025 * plank + 0.16 * fiber)[..., None]
    gray = textures.blur(smooth.mean(axis=2), 0.8 * unit)
    line = textures.contours(gray, canvas.px(1.6), 60, 0.006)
    key = textures.mix(np.broadcast_to(colors.parse_hex("1d2238"), flat.shape), inked, line)
    pulp = textures.paper(canvas.size, unit, rng, 1.2)
    return np.clip(key * colors.parse_hex("fdf6e6") * (1 + 0.03 * pulp)[..., None], 0, 1)


def linocut(canvas: Canvas) -> Array:
    """Render as one dark ink: tone cut as gouge marks that follow the contours, with incomplete coverage."""
    unit = canvas.unit
    rng = canvas.rng("linocut")
    tone = textures.stretch(textures.blur(canvas.abstract.mean(axis=2), 2 * unit), 0.03, 0.97)
    form = textures.blur(tone, 2.5 * unit)
    marks = textures.streaks(
        textures.noise(canvas.size, max(2.0, canvas.px(4.2)), rng), canvas.flow, canvas.px(22), 8
    )
    marks = marks / np.float32(marks.std() + 1e-6)
    cut = textures.step(-0.22, 0.22, (form - 0.48) * 4.6 + marks * 0.85)
    cut = textures.step(0.40, 0.60, textures.blur(cut, 1.1 * unit))
    line = textures.contours(canvas.abstract.mean(axis=2), canvas.px(2.0), 60, 0.010)
    white = 1 - textures.contours(1 - canvas.abstract.mean(axis=2), canvas.px(1.8), 60, 0.010)
    printed = np.clip(np.maximum(cut * line, white * 0.95), 0, 1)
    salt = textures.step(1.9, 2.5, textures.noise(canvas.size, 1.6 * unit, rng, 2) + 0.25 * marks)
    printed = np.clip(printed + (1 - printed) * salt * 0.5, 0, 1)
    pulp = textures.paper(canvas.size, unit, rng)
    page = colors.map_tones(printed, "1f2a33 27333c f0e8d6 f4eddc")
    return np.clip(page * (1 + 0.03 * pulp)[..., None], 0, 1)


def paper_cut(canvas: Canvas) -> Array:
    """Render as stacked sheets of colored card, lighter with depth, each casting a shadow."""
    unit = canvas.unit
    rng = canvas.rng("paper cut")
    smooth = textures.blur(textures.kuwahara(canvas.abstract, round(canvas.px(6))), 1.8 * unit)
    tone = textures.stretch(smooth.mean(axis=2))
    levels = 7
    vivid = colors.boost_vibrance(smooth, 0.8)
    page = np.ones((*canvas.size, 3), np.float32)
    for level in range(levels, 0, -1):
        # A sheet covers the tones darker than its level; the last one, on top, is the darkest.
        top = level / levels
        sheet = textures.step(top + 0.006, top - 0.006, tone) if level < levels else np.ones_like(tone)
        inside = (tone <= top) & (tone > top - 1 / levels)
        hue = vivid[inside].mean(axis=0) if inside.any() else np.full(3, top, np.float32)
        local = textures.mix(
            np.broadcast_to(hue.astype(np.float32), page.shape), textures.blur(vivid, 7 * unit), 0.7
        )
        local = colors.saturate(np.clip(local, 0, 1), 1.25)
        local = (
            local
            * np.float32((top - 0.5 / levels) * 0.85 + 0.12)
            / np.maximum(local.mean(axis=2, keepdims=True), 0.12)
        )
        fiber = 1 + 0.035 * textures.paper(canvas.size, unit, rng)
        shadow = textures.shift(textures.blur(sheet, 5 * unit), 4 * unit, 6 * unit)
        page = page * (1 - np.clip(shadow, 0, 1) * 0.55 * (level < levels))[..., None]
        lip = np.clip(sheet - textures.shift(sheet, 1.5 * unit, 1.5 * unit), 0, 1) * np.float32(0.14)
        card = np.clip(local, 0, 1) * fiber[..., None] + lip[..., None]
        page = textures.mix(page, np.clip(card, 0, 1), sheet)
    return np.clip(page, 0, 1)
