"""Painted styles: oil and similar media, watercolor, gouache, pastel, ink wash, embroidery."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from sixfold.engines.image.styles import colors, strokes, textures
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.strokes import StrokeLayer
from sixfold.engines.image.styles.textures import Array


class Brush(msgspec.Struct, frozen=True):
    """The strokes that build up an image; lengths are for an image of 1024 pixels.

    `layers` are painted in order; `thick` is the relief of the paint, `hair` is the bristles' fraction of
    that relief, `weave` is the strength of the canvas texture; `ground` is the base color (default: a blur
    of the image); `vivid` and `contrast` are applied to the image first.
    """

    layers: tuple[StrokeLayer, ...]
    thick: float = 0.4
    hair: float = 0.5
    weave: float = 0.0
    ground: str = ""
    vivid: float = 0.3
    contrast: float = 0.15
    swirl: float = 0.0
    palette: str = ""
    amount: float = 0.0


BRUSHES: dict[str, Brush] = {
    "oil": Brush(
        (
            StrokeLayer(15, 7, 1.5),
            StrokeLayer(7, 8, 1.7, 0.05),
            StrokeLayer(3.2, 8, 1.9, 0.06),
            StrokeLayer(1.7, 8, 2.2, 0.09, 0.02),
        ),
        thick=0.30,
        hair=0.55,
        weave=0.03,
        vivid=0.30,
        contrast=0.25,
    ),
    "impressionist": Brush(
        (
            StrokeLayer(12, 4, 1.2, 0, 0.05),
            StrokeLayer(6.5, 4.5, 1.5, 0.02, 0.085),
            StrokeLayer(3.6, 5, 1.7, 0.05, 0.07),
        ),
        thick=0.34,
        hair=0.4,
        weave=0.05,
        vivid=0.65,
        contrast=0.05,
    ),
    "pointillism": Brush(
        (
            StrokeLayer(9, 1, 1.1, 0, 0.05, dab=True),
            StrokeLayer(4.6, 1, 1.25, 0, 0.12, dab=True),
            StrokeLayer(3.2, 1, 1.5, 0, 0.13, dab=True),
            StrokeLayer(2.2, 1, 1.5, 0.10, 0.06, dab=True),
        ),
        thick=0.10,
        hair=0.0,
        ground="efe6d2",
        vivid=0.85,
        contrast=0.1,
    ),
    "van gogh": Brush(
        (
            StrokeLayer(10, 9, 1.6, 0, 0.05, 0.3),
            StrokeLayer(4.6, 15, 2.0, 0, 0.085, 0.26),
            StrokeLayer(2.8, 12, 2.2, 0.08, 0.07, 0.2),
        ),
        thick=0.50,
        hair=0.35,
        vivid=0.9,
        contrast=0.3,
        swirl=0.5,
        palette="0b1437 16357a 2f6db5 6fa8c9 c9b458 f2c230 fdf0a6",
        amount=0.42,
    ),
    "palette knife": Brush(
        (
            StrokeLayer(22, 3.2, 0.75, 0, 0.05, 0.3),
            StrokeLayer(11, 3.4, 0.85, 0.05, 0.06, 0.2),
            StrokeLayer(5, 4, 1.0, 0.11, 0.03),
        ),
        thick=0.50,
        hair=0.25,
        vivid=0.55,
        contrast=0.35,
    ),
    "gouache": Brush(
        (
            StrokeLayer(16, 5, 1.4, 0, 0.012),
            StrokeLayer(7, 6, 1.6, 0.05, 0.015),
            StrokeLayer(3, 6, 1.8, 0.06, 0.012),
            StrokeLayer(1.6, 6, 2.1, 0.09, 0.01),
        ),
        thick=0.06,
        hair=0.3,
        weave=0.02,
        vivid=0.35,
        contrast=-0.10,
    ),
}


def brush_painter(name: str) -> Callable[[Canvas], Array]:
    def painter(canvas: Canvas) -> Array:
        return _paint(canvas, BRUSHES[name], canvas.rng(name))

    return painter


def _scale_layers(canvas: Canvas, layers: tuple[StrokeLayer, ...]) -> list[StrokeLayer]:
    return [
        StrokeLayer(
            max(0.5, canvas.px(layer.radius)),
            layer.length,
            layer.spacing,
            layer.error,
            layer.stray,
            layer.hold,
            layer.dab,
            layer.cover,
        )
        for layer in layers
    ]


def _paint(canvas: Canvas, brush: Brush, rng: np.random.Generator) -> Array:
    aim = colors.adjust_contrast(colors.boost_vibrance(canvas.rgb, brush.vivid), brush.contrast)
    if brush.palette:
        aim = colors.transfer_palette(aim, brush.palette, brush.amount, 0.45)
    along = canvas.flow
    if brush.swirl:
        along = textures.flow(canvas.gray, 7 * canvas.unit, rng, brush.swirl)
    base = np.broadcast_to(colors.parse_hex(brush.ground), aim.shape) if brush.ground else canvas.abstract
    painted = strokes.paint(base, aim, along, _scale_layers(canvas, brush.layers), rng)
    height = painted.height * np.float32(1 - brush.hair)
    if brush.hair:
        bristles = textures.noise(canvas.size, max(1.0, 1.6 * canvas.unit), rng)
        height = height + textures.streaks(bristles, along, canvas.px(14), 6) * np.float32(brush.hair * 1.1)
    if brush.weave:
        height = height + textures.weave(canvas.size, max(3.0, 4.2 * canvas.unit), rng) * np.float32(
            brush.weave
        )
    lit = textures.relief(textures.blur(height, 0.7 * canvas.unit), brush.thick)
    return np.clip(painted.rgb * lit[..., None], 0, 1)


def watercolor(canvas: Canvas) -> Array:
    """Render as wet washes: flat pigment that pools at its edges and settles in the paper's grain."""
    rng = canvas.rng("watercolour")
    unit = canvas.unit
    base = textures.kuwahara(canvas.abstract, round(canvas.px(6)))
    base = textures.warp(base, canvas.px(2.4), 26 * unit, rng)
    fine = textures.warp(
        textures.kuwahara(canvas.rgb, max(1, round(2 * unit))), canvas.px(1.2), 18 * unit, rng
    )
    wash = textures.mix(base, fine, 0.45)
    wash = colors.boost_vibrance(wash, 0.55)
    wash = 1 - (1 - colors.gamma(wash, 0.72)) * np.float32(0.90)
    flow = textures.noise(canvas.size, 120 * unit, rng, 4)
    pulp = textures.paper(canvas.size, unit, rng)
    gray = textures.blur(wash.mean(axis=2), 1.2 * unit)
    rim = np.abs(textures.blur(gray, 3.2 * unit) - gray)
    soft = textures.blur(base.mean(axis=2), 1.0 * unit)
    pool = np.clip(textures.blur(soft, 7 * unit) - soft, 0, 1)
    density = 1 + 0.16 * flow + 0.20 * pulp + 5.0 * rim + 1.6 * pool
    pigment = wash - (wash - wash * wash) * (density - 1)[..., None]
    bare = _ragged_border(canvas, rng)
    sheet = np.broadcast_to(colors.parse_hex("fbf8f0"), pigment.shape)
    laid = textures.mix(sheet, pigment * sheet, bare)
    return np.clip(laid * (1 + 0.05 * pulp)[..., None], 0, 1)


def _ragged_border(canvas: Canvas, rng: np.random.Generator) -> Array:
    height, width = canvas.size
    rows = np.arange(height, dtype=np.float32)[:, None]
    columns = np.arange(width, dtype=np.float32)[None, :]
    inset = np.minimum(np.minimum(rows, height - 1 - rows), np.minimum(columns, width - 1 - columns))
    inset = inset + textures.noise(canvas.size, 40 * canvas.unit, rng, 4) * np.float32(5 * canvas.unit)
    return textures.step(9 * canvas.unit, 14 * canvas.unit, inset)


def ink_wash(canvas: Canvas) -> Array:
    """Render as Sumi-e: five tones of ink bleeding on warm paper, with brushed outlines."""
    rng = canvas.rng("ink wash")
    unit = canvas.unit
    gray = textures.stretch(textures.kuwahara(canvas.abstract, round(canvas.px(5))).mean(axis=2))
    bleeding = textures.warp(gray, canvas.px(4), 34 * unit, rng)
    tones = textures.quantize(textures.blur(bleeding, 2 * unit), 5, 0.42)
    cloud = textures.noise(canvas.size, 90 * unit, rng, 4)
    wash = np.clip(0.22 + 0.86 * np.power(tones, 0.75) + 0.05 * cloud, 0, 1)
    rim = np.clip(np.abs(textures.blur(wash, 4 * unit) - wash) * 0.9, 0, 0.2)
    outline = textures.warp(textures.contours(gray, canvas.px(1.7), 34, 0.008), 1.4 * unit, 20 * unit, rng)
    dry = textures.step(-0.3, 0.75, textures.noise(canvas.size, 2.0 * unit, rng) + 1.1)
    ink = np.clip(wash - rim, 0, 1) * (1 - (1 - outline) * 0.9 * dry)
    pulp = textures.paper(canvas.size, unit, rng, 1.3)
    page = colors.map_tones(np.clip(ink, 0, 1), "14161a 3a3d40 77776f b7b2a2 e6dfcb f4eedd")
    return np.clip(page * (1 + 0.045 * pulp)[..., None], 0, 1)


def pastel(canvas: Canvas) -> Array:
    """Render as soft chalk strokes on tinted paper, which stays visible in the valleys of its texture."""
    rng = canvas.rng("pastel")
    unit = canvas.unit
    aim = colors.gamma(colors.boost_vibrance(canvas.rgb, 0.6), 0.86) * np.float32(0.93) + np.float32(0.055)
    layers = [StrokeLayer(canvas.px(10), 5, 1.4, 0, 0.03), StrokeLayer(canvas.px(4.5), 6, 1.8, 0.02, 0.05)]
    layers.append(StrokeLayer(canvas.px(2.2), 7, 2.1, 0.06, 0.04))
    painted = strokes.paint(canvas.abstract, aim, canvas.flow, layers, rng)
    tooth = textures.noise(canvas.size, max(1.0, 1.8 * unit), rng, 2)
    rub = textures.streaks(tooth, canvas.flow, canvas.px(6), 3) * np.float32(1.4) + tooth * np.float32(0.55)
    cover = textures.step(-1.5, 0.1, rub + 0.25 * (painted.height - 0.5))
    sheet = textures.mix(np.broadcast_to(colors.parse_hex("b9a58e"), aim.shape), canvas.abstract, 0.35)
    chalk = painted.rgb * (1 + 0.05 * tooth)[..., None]
    return np.clip(textures.mix(sheet, chalk, 0.30 + 0.70 * cover), 0, 1)


def embroidery(canvas: Canvas) -> Array:
    """Render as satin stitches along the contours, each round and shiny, on linen."""
    rng = canvas.rng("embroidery")
    unit = canvas.unit
    aim = colors.boost_vibrance(canvas.rgb, 0.5)
    layers = [
        StrokeLayer(canvas.px(2.8), 11, 2.6, 0, 0.045, 0.2),
        StrokeLayer(canvas.px(2.2), 12, 3.2, 0, 0.06, 0.14),
        StrokeLayer(canvas.px(1.6), 12, 3.4, 0.06, 0.05, 0.12),
    ]
    painted = strokes.paint(canvas.abstract, aim, canvas.flow, layers, rng)
    twist = textures.streaks(
        textures.noise(canvas.size, max(1.0, 1.5 * unit), rng), canvas.flow, canvas.px(8), 5
    )
    height = painted.height * np.float32(0.75) + twist * np.float32(0.55)
    lit = textures.relief(textures.blur(height, 0.6 * unit), 0.50)
    sheen = textures.step(0.9, 1.6, lit) * np.float32(0.18)
    return np.clip(painted.rgb * lit[..., None] * np.float32(1.02) + sheen[..., None], 0, 1)
