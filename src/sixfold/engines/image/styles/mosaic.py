"""Styles composed of pieces: mosaic, stained glass, low poly, pixels, stitches, cubist planes."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sixfold.engines.image.styles import colors, strokes, textures
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.textures import Array

Labels = NDArray[np.int32]


def _cells(canvas: Canvas, gap: float, rounds: int, weight: Array) -> tuple[Array, Labels]:
    """Return sites about `gap` pixels apart, relaxed by `weight`, and each pixel's nearest site.

    This is Lloyd's algorithm. Pixels of low weight (edges) do not attract sites, so cell borders move to
    edges. The computation at half size is four times as fast and keeps cells connected.
    """
    height, width = canvas.size
    half = (max(8, width // 2), max(8, height // 2))
    pull = cv2.resize(weight, half, interpolation=cv2.INTER_AREA)
    scale = np.array([half[0] / width, half[1] / height], np.float32)
    sites = strokes.jittered_grid((height, width), gap, canvas.rng("cells")) * scale
    rows, columns = np.mgrid[0 : half[1], 0 : half[0]].astype(np.float32)
    labels = _nearest(sites, half)
    for _ in range(rounds):
        flat = labels.ravel()
        mass = np.bincount(flat, pull.ravel(), len(sites)) + 1e-6
        x = np.bincount(flat, (pull * columns).ravel(), len(sites)) / mass
        y = np.bincount(flat, (pull * rows).ravel(), len(sites)) / mass
        moved = np.stack([x, y], axis=1).astype(np.float32)
        sites = np.where((mass > 1e-3)[:, None], moved, sites)
        labels = _nearest(sites, half)
    return sites / scale, labels


def _regions(canvas: Canvas, gap: float) -> Labels:
    """Return superpixels about `gap` pixels across, at half size; their borders follow the image's edges."""
    height, width = canvas.size
    half = (max(8, width // 2), max(8, height // 2))
    small = cv2.resize(textures.blur(canvas.abstract, 2 * canvas.unit), half, interpolation=cv2.INTER_AREA)
    lab = colors.rgb_to_lab(small)
    # Noise keeps a plain sky from being divided into a regular grid.
    lab += textures.noise((half[1], half[0]), gap * 0.7, canvas.rng("regions"), 2)[..., None] * np.float32(
        3.5
    )
    guide = np.clip(np.rint(lab + np.array([0, 128, 128], np.float32)), 0, 255).astype(np.uint8)
    slic = cv2.ximgproc.createSuperpixelSLIC(guide, cv2.ximgproc.SLIC, max(4, round(gap / 2)), 9.0)
    slic.iterate(6)
    slic.enforceLabelConnectivity(30)
    return np.asarray(slic.getLabels(), np.int32)


def _nearest(sites: Array, size: tuple[int, int]) -> Labels:
    width, height = size
    free = np.full((height, width), 255, np.uint8)
    index = np.zeros((height, width), np.int32)
    at = np.clip(np.rint(sites), 0, [width - 1, height - 1]).astype(np.int32)
    free[at[:, 1], at[:, 0]] = 0
    index[at[:, 1], at[:, 0]] = np.arange(len(sites))
    _, labels = cv2.distanceTransformWithLabels(free, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    table = np.zeros(int(labels.max()) + 1, np.int32)
    zero = free == 0
    owner = np.asarray(labels, np.int32)
    table[owner[zero]] = index[zero]
    return table[owner]


def _means(image: Array, labels: Labels, count: int) -> Array:
    """Return the mean color of each cell; labels may have a smaller size than the image."""
    small = cv2.resize(image, (labels.shape[1], labels.shape[0]), interpolation=cv2.INTER_AREA)
    flat = labels.ravel()
    mass = np.maximum(np.bincount(flat, minlength=count), 1)
    sums = [np.bincount(flat, small[..., channel].ravel(), count) / mass for channel in range(3)]
    return np.stack(sums, axis=1).astype(np.float32)


def _enlarge_labels(labels: Labels, size: tuple[int, int]) -> Labels:
    big = cv2.resize(labels.astype(np.float32), (size[1], size[0]), interpolation=cv2.INTER_NEAREST)
    return big.astype(np.int32)


def _borders(labels: Labels) -> NDArray[np.uint8]:
    """Return 255 inside cells and 0 at their borders."""
    inside = np.full(labels.shape, 255, np.uint8)
    inside[:, 1:][labels[:, 1:] != labels[:, :-1]] = 0
    inside[1:, :][labels[1:, :] != labels[:-1, :]] = 0
    return inside


def mosaic(canvas: Canvas) -> Array:
    """Render as Roman tesserae: small square stones that follow the outlines, set in gray mortar."""
    unit = canvas.unit
    rng = canvas.rng("mosaic")
    gap = max(5.0, canvas.px(11.5))
    sites, labels = _cells(canvas, gap, 8, 1.02 - canvas.edges)
    tints = _means(colors.adjust_contrast(colors.boost_vibrance(canvas.rgb, 0.55), 0.25), labels, len(sites))
    tints = np.clip(
        tints * (1 + rng.normal(0, 0.075, (len(sites), 1))) + rng.normal(0, 0.012, tints.shape), 0, 1
    )
    at = np.clip(sites, 0, [canvas.size[1] - 1, canvas.size[0] - 1]).astype(np.int32)
    along = canvas.flow[at[:, 1], at[:, 0]]
    half = np.float32(gap * 0.455)
    side = np.stack([-along[:, 1], along[:, 0]], axis=1) * half
    front = along * half
    corners = np.stack([front + side, front - side, -front - side, -front + side], axis=1)
    corners = (corners * rng.uniform(0.86, 1.06, (len(sites), 4, 1)) + sites[:, None]) * 8
    sand = textures.noise(canvas.size, max(1.0, 1.5 * unit), rng, 2)
    mortar = colors.parse_hex("4f4a44") * (1 + 0.10 * sand)[..., None]
    board = np.dstack([np.clip(mortar, 0, 1) * 255, np.zeros(canvas.size)]).astype(np.uint8)
    heights = rng.uniform(150, 255, (len(sites), 1))
    inks = np.concatenate([tints * 255, heights], axis=1).tolist()
    for stone, ink in zip(np.rint(corners).astype(np.int32), inks, strict=True):
        cv2.fillConvexPoly(board, stone, ink, cv2.LINE_AA, 3)
    laid = board.astype(np.float32) / 255
    lit = textures.relief(textures.blur(laid[..., 3], 0.9 * unit), 0.30)
    stone_grain = 1 + 0.035 * sand * (laid[..., 3] > 0)
    return np.clip(laid[..., :3] * (lit * stone_grain)[..., None], 0, 1)


def stained_glass(canvas: Canvas) -> Array:
    """Render as leaded glass: glowing, streaked panes cut along the outlines, brighter in the middle."""
    unit = canvas.unit
    rng = canvas.rng("stained glass")
    gap = max(9.0, canvas.px(38))
    aim = colors.boost_vibrance(colors.adjust_contrast(canvas.abstract, 0.5), 1.5)
    small = _regions(canvas, gap)
    count = int(small.max()) + 1
    tints = _means(aim, small, count)
    tints = np.clip(tints * (1 + rng.normal(0, 0.09, (count, 1))), 0, 1).astype(np.float32)
    labels = _enlarge_labels(small, canvas.size)
    panes = tints[labels]
    depth = cv2.distanceTransform(_borders(labels), cv2.DIST_L2, 5)
    glow = 0.70 + 0.55 * textures.step(0, 0.42 * gap, depth)
    streak = textures.directional_blur(
        textures.noise(canvas.size, max(2.0, 5 * unit), rng, 2), 62, canvas.px(48)
    )
    seeds = textures.noise(canvas.size, 16 * unit, rng, 3)
    glass = colors.gamma(panes, 0.82) * (glow * (1 + 0.16 * streak + 0.05 * seeds))[..., None]
    glass = textures.mix(glass, aim, 0.20)
    lead_width = max(1.6, canvas.px(2.6))
    lead = textures.step(lead_width * 0.55, lead_width * 1.15, textures.blur(depth, 0.8 * unit))
    came = textures.relief(textures.blur(np.minimum(depth, lead_width), 0.8 * unit), 0.55)
    metal = colors.parse_hex("1d1c20") * (0.55 + 0.75 * np.clip(came, 0, 2))[..., None]
    window = textures.mix(np.clip(metal, 0, 1), np.clip(glass, 0, 1), lead)
    return np.clip(colors.bloom(window, 14 * unit, 0.28, 0.62), 0, 1)


def low_poly(canvas: Canvas) -> Array:
    """Render as triangles: small along the outlines, large in plain regions."""
    height, width = canvas.size
    rng = canvas.rng("low poly")
    loose = strokes.jittered_grid(canvas.size, canvas.px(58), rng)
    tight = strokes.jittered_grid(canvas.size, canvas.px(13), rng)
    at = tight.astype(np.int32)
    near = cv2.dilate(canvas.edges, np.ones((3, 3), np.uint8))[at[:, 1], at[:, 0]]
    accepted = tight[rng.uniform(0, 1, len(tight)) < np.clip(near * 1.1 - 0.12, 0, 0.85)]
    rim_x, rim_y = np.linspace(0, width - 1, 16), np.linspace(0, height - 1, 16)
    rim = [(x, y) for x in rim_x for y in (0, height - 1)] + [(x, y) for y in rim_y for x in (0, width - 1)]
    subdivision = cv2.Subdiv2D((0, 0, width, height))
    for x, y in np.concatenate([np.array(rim, np.float32), loose, accepted]).tolist():
        subdivision.insert((x, y))
    triangles = np.asarray(subdivision.getTriangleList(), np.float32).reshape(-1, 3, 2)
    middles = np.clip(triangles.mean(axis=1), 0, [width - 1, height - 1]).astype(np.int32)
    aim = textures.blur(
        colors.adjust_contrast(colors.boost_vibrance(canvas.abstract, 0.6), 0.2), 4 * canvas.unit
    )
    tints = aim[middles[:, 1], middles[:, 0]]
    slope = triangles[:, 1] - triangles[:, 0] + 0.6 * (triangles[:, 2] - triangles[:, 0])
    facing = np.cos(np.arctan2(slope[:, 1], slope[:, 0]) - 0.8)
    tints = np.clip(tints * (1 + 0.075 * facing[:, None] + rng.normal(0, 0.02, (len(tints), 1))), 0, 1)
    board = np.rint(aim * 255).astype(np.uint8)
    shapes = np.rint(triangles * 8).astype(np.int32)
    for shape, ink in zip(shapes, (tints * 255).tolist(), strict=True):
        cv2.fillConvexPoly(board, shape, ink, cv2.LINE_8, 3)
    for shape, ink in zip(shapes, (tints * 255).tolist(), strict=True):
        cv2.fillConvexPoly(board, shape, ink, cv2.LINE_AA, 3)
    return board.astype(np.float32) / 255


def _grid(canvas: Canvas, across: int) -> tuple[int, int]:
    """Return the numbers of columns and rows of square cells, with `across` cells on the long side."""
    height, width = canvas.size
    count = max(1, round(across / canvas.rough))
    longest = max(height, width)
    return max(1, round(width * count / longest)), max(1, round(height * count / longest))


def _quantize(rgb: Array, count: int) -> NDArray[np.uint8]:
    image = Image.fromarray(np.rint(np.clip(rgb, 0, 1) * 255).astype(np.uint8))
    palette = image.quantize(count, method=Image.Quantize.MEDIANCUT, kmeans=3)
    return np.asarray(image.quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB"))


_BAYER = np.array(
    [[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]], np.float32
) / 16 - np.float32(0.47)


def pixel_art(canvas: Canvas) -> Array:
    """Render as console sprites: large pixels, 28 colors, ordered dither, outlines one pixel wide."""
    columns, rows = _grid(canvas, 144)
    aim = colors.adjust_contrast(colors.boost_vibrance(canvas.abstract * 0.6 + canvas.rgb * 0.4, 0.8), 0.3)
    small = cv2.resize(aim, (columns, rows), interpolation=cv2.INTER_AREA)
    dark = cv2.erode(small, np.ones((2, 2), np.uint8))
    step = (small - dark).max(axis=2)
    small = np.where((step > 0.30)[..., None], dark * np.float32(0.85), small)
    bayer = np.tile(_BAYER, (rows // 4 + 1, columns // 4 + 1))[:rows, :columns]
    few = _quantize(small + bayer[..., None] * np.float32(0.055), 28)
    big = cv2.resize(few, (canvas.size[1], canvas.size[0]), interpolation=cv2.INTER_NEAREST)
    return big.astype(np.float32) / 255


def cross_stitch(canvas: Canvas) -> Array:
    """Render as counted crosses in 36 thread colors on Aida cloth."""
    columns, rows = _grid(canvas, 120)
    height, width = canvas.size
    small = cv2.resize(
        colors.boost_vibrance(canvas.abstract, 0.75), (columns, rows), interpolation=cv2.INTER_AREA
    )
    threads = cv2.resize(_quantize(small, 36), (width, height), interpolation=cv2.INTER_NEAREST)
    # Position of each pixel within its cell, -1 to 1.
    u = ((np.arange(width, dtype=np.float32) + 0.5) * np.float32(columns / width) % 1 * 2 - 1)[None, :]
    v = ((np.arange(height, dtype=np.float32) + 0.5) * np.float32(rows / height) % 1 * 2 - 1)[:, None]
    over, under = (u + v) / np.float32(1.414), (u - v) / np.float32(1.414)
    reach = np.float32(0.40)
    top = np.sqrt(np.clip(1 - np.square(over / reach), 0, 1)) * (np.abs(under) < 1.28)
    low = np.sqrt(np.clip(1 - np.square(under / reach), 0, 1)) * (np.abs(over) < 1.28)
    plies = 0.08 * np.sin((under + over * 0.5) * 9) * (top > 0) + 0.08 * np.sin((over - under * 0.5) * 9) * (
        top <= 0
    )
    shade = np.where(top > 0.05, 0.50 + 0.56 * top, 0.32 + 0.50 * low) + plies
    cover = np.maximum(textures.step(0.02, 0.30, top), textures.step(0.02, 0.30, low))
    cloth = colors.parse_hex("d8cfbd") * (0.60 + 0.06 * np.cos(u * 6.28) + 0.06 * np.cos(v * 6.28))[..., None]
    lit = threads.astype(np.float32) / 255 * np.float32(1.06) * shade[..., None] + np.float32(0.02)
    fuzz = textures.noise(canvas.size, max(1.0, canvas.unit), canvas.rng("fuzz")) * np.float32(0.022)
    return np.clip(textures.mix(cloth, lit, cover) + fuzz[..., None], 0, 1)


def cubism(canvas: Canvas) -> Array:
    """Render as analytic cubism: planes that show the subject from shifted viewpoints, shaded to one side."""
    unit = canvas.unit
    rng = canvas.rng("cubism")
    height, width = canvas.size
    sites = strokes.jittered_grid(canvas.size, canvas.px(92), rng)
    theta = np.radians(rng.choice([-55.0, 35.0, 0.0, 62.0], len(sites)) + rng.normal(0, 9, len(sites)))
    normal = np.stack([np.cos(theta), np.sin(theta)], axis=1).astype(np.float32)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    # Distorting coordinates before the nearest-site search makes cells long shards instead of a honeycomb.
    bent_x = np.clip(x + textures.noise(canvas.size, 400 * unit, rng) * np.float32(30 * unit), 0, width - 1)
    skew = np.clip(y + (x - width / 2) * np.float32(0.35), 0, height - 1)
    plain = _nearest(sites, (width, height))
    labels = plain[skew.astype(np.int32), bent_x.astype(np.int32)]
    middle = sites[plain][skew.astype(np.int32), bent_x.astype(np.int32)]
    shift = (rng.normal(0, 13 * unit * canvas.rough, (len(sites), 2))).astype(np.float32)[labels]
    zoom = rng.uniform(0.86, 1.16, len(sites)).astype(np.float32)[labels]
    aim = colors.transfer_palette(
        canvas.abstract, "1f1a17 4a3a2c 7c6346 a88c62 8b9a94 d8c7a0 f1e6cb", 0.72, 0.55
    )
    shifted = cv2.remap(
        aim,
        (x - width / 2) * zoom + width / 2 + shift[..., 0],
        (y - height / 2) * zoom + height / 2 + shift[..., 1],
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT,
    )
    away = (x - middle[..., 0]) * normal[labels][..., 0] + (y - middle[..., 1]) * normal[labels][..., 1]
    shade = 1 + 0.26 * np.tanh(away / np.float32(46 * unit * canvas.rough))
    depth = cv2.distanceTransform(_borders(labels), cv2.DIST_L2, 5)
    line = 0.35 + 0.65 * textures.step(0.3 * unit, 2.0 * unit, depth)
    drawn = 0.45 + 0.55 * textures.contours(shifted.mean(axis=2), canvas.px(1.6), 40, 0.008)
    hair = textures.directional_blur(textures.noise(canvas.size, 1.6 * unit, rng), 25, canvas.px(20))
    return np.clip(shifted * (shade * line * drawn * (1 + 0.10 * hair))[..., None], 0, 1)
