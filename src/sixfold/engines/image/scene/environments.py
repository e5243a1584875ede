"""Places without an ordinary horizon: space, underwater, rooms, caves, volcanoes."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.scene import noise, sky, terrain
from sixfold.engines.image.scene.canvas import (
    Color,
    Image,
    blur,
    disc,
    distance,
    fill,
    glow,
    mix,
    over,
    ramp,
    rgb,
    saturate,
)
from sixfold.engines.image.scene.stage import SceneStage

_NEBULAE = (
    ("#1a0b3a", "#7a2a8c", "#f0708a", "#ffd9a0"),
    ("#04142e", "#1c5a8c", "#4fd0d0", "#f4f0d0"),
    ("#12061f", "#4a2a9a", "#3f9ae0", "#f6c0e0"),
    ("#100a14", "#8c3a2a", "#f0a04a", "#fff0c0"),
)


def space(stage: SceneStage) -> None:
    """Paint stars, a nebula and planets."""
    rng = stage.rng("nebula")
    height, width = stage.shape
    tones = [rgb(text) for text in _NEBULAE[int(rng.integers(len(_NEBULAE)))]]
    cells = (4 * height / max(stage.shape), 4 * width / max(stage.shape))
    warp_x, warp_y = (noise.fbm(rng, stage.shape, cells, 4) for _ in range(2))
    base = noise.fbm(rng, stage.shape, cells, 7, 0.58)
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    bend = np.float32(stage.unit * 13)
    cloud = cv2.remap(
        base, x + warp_x * bend, y + warp_y * bend, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
    )
    tilt = float(rng.uniform(-0.9, 0.9))
    band = np.abs(
        (x - width * stage.layout.light[0]) * np.float32(np.sin(tilt))
        + (y - height * 0.45) * np.float32(np.cos(tilt))
    ) / np.float32(max(stage.shape))
    density = np.clip(0.52 + cloud * 0.55 - band * 1.5, 0, 1)
    stage.image[:] = ramp(
        [
            (0, rgb("#03040c")),
            (0.22, tones[0]),
            (0.55, mix(tones[0], tones[1], 0.85)),
            (0.82, tones[2]),
            (1.0, tones[3]),
        ],
        density,
    )
    dust = noise.smoothstep(0.1, 0.8, np.roll(cloud, 61, 1) - warp_x * 0.4)
    stage.image *= (1 - 0.6 * dust)[..., None]
    stage.depth[:] = 1
    _star_field(stage, rng)
    _planets(stage, rng, tones)
    stage.step("space")


def _star_field(stage: SceneStage, rng: np.random.Generator) -> None:
    height, width = stage.shape
    count = height * width // 700
    stars = np.zeros(stage.shape, np.float32)
    stars[rng.integers(0, height, count), rng.integers(0, width, count)] = (
        rng.random(count, dtype=np.float32) ** 5 + 0.1
    )
    glow(stage.image, rgb("#f2f5ff"), np.clip(stars + blur(stars, max(0.6, stage.unit * 0.1)) * 2, 0, 1))
    big = np.zeros(stage.shape, np.float32)
    for _ in range(26):
        at = (int(rng.integers(0, width)), int(rng.integers(0, height)))
        arm = int(stage.unit * float(rng.uniform(0.4, 1.7)))
        cv2.line(
            big, (at[0] - arm, at[1]), (at[0] + arm, at[1]), float(rng.uniform(0.2, 0.6)), 1, cv2.LINE_AA
        )
        cv2.line(
            big, (at[0], at[1] - arm), (at[0], at[1] + arm), float(rng.uniform(0.2, 0.6)), 1, cv2.LINE_AA
        )
        cv2.circle(big, at, max(1, arm // 6), 1.0, -1, cv2.LINE_AA)
    glow(stage.image, rgb("#ffffff"), np.clip(big + blur(big, stage.unit * 0.5) * 1.6, 0, 1))


def _planets(stage: SceneStage, rng: np.random.Generator, tones: list[Color]) -> None:
    side = 1 - stage.layout.subject_x
    radius = min(stage.shape) * float(rng.uniform(0.20, 0.30))
    at = (
        stage.width * (side + (0.10 if side > 0.5 else -0.10)),
        stage.height * float(rng.uniform(0.26, 0.42)),
    )
    planet(
        stage,
        at,
        radius,
        (mix(tones[2], rgb("#ffffff"), 0.15), tones[1]),
        bool(rng.random() < 0.6 or "saturn" in stage.scene.prompt.casefold()),
    )
    small = (
        stage.width * stage.layout.subject_x + stage.unit * 12,
        stage.height * float(rng.uniform(0.10, 0.2)),
    )
    planet(stage, small, radius * 0.2, (rgb("#d8d2c8"), rgb("#8a8490")), False)


def planet(
    stage: SceneStage, at: tuple[float, float], radius: float, tones: tuple[Color, Color], ring: bool
) -> None:
    """Paint a lit sphere with cloud bands, an atmosphere, and optionally rings."""
    rng = stage.rng(f"planet{radius:.1f}")
    face = disc(stage.shape, at, radius)
    x = (np.arange(stage.width, dtype=np.float32)[None, :] - np.float32(at[0])) / np.float32(radius)
    y = (np.arange(stage.height, dtype=np.float32)[:, None] - np.float32(at[1])) / np.float32(radius)
    inside = np.sqrt(np.clip(1 - x * x - y * y, 0, 1))
    lx = 0.62 if stage.layout.light[0] > 0.5 else -0.62
    light = np.clip(x * np.float32(lx) - y * np.float32(0.45) + inside * np.float32(0.62), 0, 1) ** 0.8
    wave = noise.fbm(rng, stage.shape, (stage.height / radius * 1.2, stage.width / radius * 1.2), 5)
    bands = np.sin((y + x * 0.22) * 9 + wave * 1.6) * 0.5 + 0.5 + wave * 0.25
    paint = ramp([(0, tones[1]), (0.5, mix(tones[0], tones[1], 0.4)), (1, tones[0])], np.clip(bands, 0, 1))
    paint *= (0.05 + 1.1 * light)[..., None]
    near = distance(stage.shape, at) / np.float32(radius)
    air = np.exp(-np.maximum(near - 1, 0) * 9) * np.clip(
        x * np.float32(lx) - y * np.float32(0.45) + 0.35, 0, 1
    )
    glow(stage.image, mix(tones[0], rgb("#ffffff"), 0.3), air * np.float32(0.55))
    if ring:
        _ring(stage, at, radius, tones[0], front=False)
    over(stage.image, np.clip(paint, 0, 1), face)
    if ring:
        _ring(stage, at, radius, tones[0], front=True)


def _ring(stage: SceneStage, at: tuple[float, float], radius: float, tone: Color, front: bool) -> None:
    turn = np.deg2rad(-18)
    x = np.arange(stage.width, dtype=np.float32)[None, :] - np.float32(at[0])
    y = np.arange(stage.height, dtype=np.float32)[:, None] - np.float32(at[1])
    u = (x * np.float32(np.cos(turn)) + y * np.float32(np.sin(turn))) / np.float32(radius)
    v = (-x * np.float32(np.sin(turn)) + y * np.float32(np.cos(turn))) / np.float32(radius * 0.26)
    r = np.sqrt(u * u + v * v)
    band = noise.smoothstep(1.35, 1.42, r) * (1 - noise.smoothstep(2.05, 2.2, r))
    grooves = 0.62 + 0.38 * np.sin(r * 34) * np.cos(r * 13)
    half = (v > 0) if front else (v <= 0)
    over(stage.image, mix(tone, rgb("#fff4dc"), 0.5), np.clip(band * grooves, 0, 1) * half * np.float32(0.8))


def underwater(stage: SceneStage) -> None:
    """Paint blue depth, light from above, reef ridges, seaweed and bubbles."""
    rng = stage.rng("deep")
    height, width = stage.shape
    dark = stage.time in ("night", "dusk")
    top, middle, low = ("#1c6f8c", "#0d3a66", "#061634") if dark else ("#8fe6e0", "#1f9ac0", "#0a3a78")
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    x = np.linspace(0, 1, width, dtype=np.float32)[None, :]
    spread = np.abs(x - np.float32(stage.layout.light[0]))
    stage.image[:] = ramp(
        [(0, rgb(top)), (0.45, rgb(middle)), (1, rgb(low))], np.clip(y * 0.9 + spread * 0.35, 0, 1)
    )
    stage.depth[:] = 1
    _sunbeams(stage, rng)
    haze = rgb(middle)
    for layer, (line, tone) in enumerate((("0.74", "#2a6f92"), ("0.80", "#1f5a80"), ("0.87", "#254a63"))):
        ridge = float(line) + noise.fbm(rng, (1, width), (1, 4 + layer * 2), 5, 0.55)[0] * 0.055
        mask = noise.smoothstep(-0.004, 0.004, y - ridge[None, :])
        rough = noise.fbm(rng, stage.shape, (14, 14), 5, 0.6)
        paint = mix(rgb(tone), haze, 0.6 - 0.25 * layer) * (0.9 + 0.25 * rough)[..., None]
        stage.add_layer(np.clip(paint, 0, 1), mask, 0.8 - 0.25 * layer)
    sand = noise.smoothstep(-0.01, 0.02, y - 0.93 - noise.fbm(rng, (1, width), (1, 3), 4)[0] * 0.02)
    _caustics(stage, rng, sand)
    _reef(stage, rng)
    _bubbles(stage, rng)
    stage.step("sea bed")


def _sunbeams(stage: SceneStage, rng: np.random.Generator) -> None:
    beams = np.zeros(stage.shape, np.float32)
    origin = np.array([stage.light_at[0], -stage.height * 0.5])
    for _ in range(14):
        angle, wide = float(rng.normal(0, 0.42)), float(rng.uniform(0.008, 0.035))
        ends = [
            origin + stage.height * 1.8 * np.array([np.sin(angle + s * wide), np.cos(angle + s * wide)])
            for s in (-1, 1)
        ]
        beams += fill(stage.shape, [np.array([origin, *ends], np.float32)]) * np.float32(rng.uniform(0.25, 1))
    fade = np.clip(
        1 - np.arange(stage.height, dtype=np.float32)[:, None] / np.float32(stage.height * 0.85), 0, 1
    )
    glow(
        stage.image, rgb("#d4fff2"), np.clip(blur(beams, stage.unit * 1.1) * fade * np.float32(0.26), 0, 0.7)
    )
    x = distance(stage.shape, (stage.light_at[0], 0), 1.6) / np.float32(max(stage.shape))
    glow(stage.image, rgb("#eafff6"), np.exp(-x * 6) * np.float32(0.7))


def _caustics(stage: SceneStage, rng: np.random.Generator, mask: Image) -> None:
    a, b = (noise.fbm(rng, stage.shape, (34, 17), 2, 0.4) for _ in range(2))
    net = np.clip(1 - (np.abs(a) + np.abs(b)) * 2.2, 0, 1) ** 2
    paint = rgb("#5f93a0") + net[..., None] * rgb("#a8f0e0") * np.float32(0.5)
    stage.add_layer(np.clip(paint, 0, 1), mask, 0.2)


def _reef(stage: SceneStage, rng: np.random.Generator) -> None:
    """Add corals, fans and seaweed at the bottom and the sides."""
    tones = ("#e8617a", "#f0a04f", "#b45ad0", "#f2d06a", "#3fb58f", "#ff8aa0")
    for _ in range(15):
        x = float(rng.beta(0.7, 0.7)) * stage.width
        foot = stage.height * float(rng.uniform(0.94, 1.03))
        tall = stage.unit * float(rng.uniform(8, 21))
        tone = mix(rgb(tones[int(rng.integers(len(tones)))]), rgb("#0f4a78"), 0.30)
        _coral(stage, rng, (x, foot, tall), tone)
    weed = np.zeros(stage.shape, np.uint8)
    for _ in range(22):
        x = float(rng.beta(0.5, 0.5)) * stage.width
        t = np.linspace(0, 1, 16)
        tall = stage.unit * float(rng.uniform(18, 46))
        px = x + np.sin(t * 6 + float(rng.random()) * 6) * stage.unit * 1.8 * t
        py = stage.height * 1.02 - t * tall
        wide = stage.unit * 0.9 * (1 - t) ** 0.7 + 0.6
        blade = np.concatenate([np.stack([px - wide, py], 1), np.stack([px + wide, py], 1)[::-1]])
        cv2.fillPoly(weed, [np.round(blade * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
    stage.add_layer(rgb("#0f5a52"), weed.astype(np.float32) / 255 * np.float32(0.92), 0.06)


def _coral(stage: SceneStage, rng: np.random.Generator, at: tuple[float, float, float], tone: Color) -> None:
    x, foot, tall = at
    mask = np.zeros(stage.shape, np.uint8)
    stack = [(x, foot, -np.pi / 2, tall * 0.34, max(1.0, tall * 0.07))]
    while stack:
        px, py, angle, length, thick = stack.pop()
        qx, qy = px + np.cos(angle) * length, py + np.sin(angle) * length
        cv2.line(
            mask, (round(px), round(py)), (round(qx), round(qy)), 255, max(1, round(thick * 2)), cv2.LINE_AA
        )
        if length > tall * 0.09:
            for turn in (-0.45, 0.4):
                stack.append(
                    (
                        qx,
                        qy,
                        angle + turn * float(rng.uniform(0.6, 1.3)),
                        length * float(rng.uniform(0.66, 0.84)),
                        thick * 0.78,
                    )
                )
    alpha = mask.astype(np.float32) / 255
    light = np.clip((foot - np.arange(stage.height, dtype=np.float32)[:, None]) / np.float32(tall), 0, 1)
    stage.add_layer(np.clip(tone * (0.55 + 0.65 * light)[..., None], 0, 1), alpha, 0.1)


def _bubbles(stage: SceneStage, rng: np.random.Generator) -> None:
    layer = np.zeros(stage.shape, np.float32)
    for _ in range(60):
        at = (int(rng.integers(0, stage.width)), int(rng.integers(0, stage.height)))
        radius = max(1, int(stage.unit * float(rng.uniform(0.1, 0.75))))
        cv2.circle(layer, at, radius, float(rng.uniform(0.25, 0.7)), max(1, radius // 4), cv2.LINE_AA)
    glow(stage.image, rgb("#dffcff"), layer * np.float32(0.75))


_PAINTS = {
    "red": "#9c4038", "orange": "#c07a44", "yellow": "#d6b65c", "green": "#5f8a62", "teal": "#4a8a8c",
    "blue": "#4f74a8", "purple": "#74609c", "pink": "#cf8fa2", "brown": "#7c5e48", "white": "#dcdad4",
    "black": "#2e2d31", "grey": "#8c8f94",
}  # fmt: skip


def interior(stage: SceneStage) -> None:
    """Paint a room with a window: wall, light through the panes, floorboards, soft shadows."""
    rng = stage.rng("room")
    height, width = stage.shape
    walls = ("#5f7468", "#8a6f5c", "#56677a", "#97826a", "#6a5a70")
    wall_color = walls[int(rng.integers(len(walls)))]
    tone = next((_PAINTS[c] for c in stage.scene.colors if c in _PAINTS), wall_color)
    wall = stage.palette.lit(rgb(tone), 0.55)
    if stage.palette.dark:
        wall = mix(wall, rgb("#6b4428"), 0.35)
    edge = int(height * 0.68)
    rough = noise.fbm(rng, stage.shape, (5, 5), 6, 0.6)
    side = np.linspace(0, 1, width, dtype=np.float32)[None, :]
    towards = np.abs(side - np.float32(stage.layout.light[0]))
    stage.image[:] = np.clip(wall * ((1.22 - 0.75 * towards) * (1 + 0.05 * rough))[..., None], 0, 1)
    stage.depth[:] = 0.8
    _window(stage)
    _boards(stage, rng, edge)
    if stage.palette.dark:
        near = distance(stage.shape, (width * (1 - stage.layout.light[0]), height * 0.3)) / np.float32(
            max(stage.shape)
        )
        glow(stage.image, rgb("#ffb560"), np.exp(-near * 4.5) * np.float32(0.55))
    stage.ground = 0.86
    stage.step("room")


def _window(stage: SceneStage) -> None:
    height, width = stage.shape
    palette = stage.palette
    x0 = width * (0.62 if stage.layout.light[0] > 0.5 else 0.06)
    box = (int(x0), int(height * 0.08), int(x0 + width * 0.32), int(height * 0.56))
    pane = np.zeros(stage.shape, np.float32)
    cv2.rectangle(pane, box[:2], box[2:], 1.0, -1)
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    view = ramp(
        [
            (0, palette.sky[1]),
            (0.4, palette.sky[3]),
            (0.48, palette.lit(rgb("#5f8a4a"), 0.7)),
            (1, palette.lit(rgb("#4a6a3a"), 0.6)),
        ],
        np.broadcast_to(y, stage.shape),
    )
    blobs = noise.fbm(stage.rng("view"), stage.shape, (7, 9), 3)
    over(stage.image, np.clip(view * (1 + 0.28 * blobs)[..., None], 0, 1), pane)
    frame = np.zeros(stage.shape, np.float32)
    thick = max(2, int(stage.unit * 1.5))
    cv2.rectangle(frame, box[:2], box[2:], 1.0, thick)
    middle = (box[0] + box[2]) // 2
    cv2.line(frame, (middle, box[1]), (middle, box[3]), 1.0, thick // 2 + 1)
    cv2.line(frame, (box[0], (box[1] + box[3]) // 2), (box[2], (box[1] + box[3]) // 2), 1.0, thick // 2 + 1)
    stage.image[:] = np.clip(stage.image, 0, 1)
    bloom = blur(pane, stage.unit * 5)
    glow(
        stage.image, mix(palette.sky[3], palette.sun, 0.5), bloom * np.float32(0.10 if palette.dark else 0.32)
    )
    over(stage.image, palette.lit(rgb("#e8e0d2"), 0.5), frame)


def _boards(stage: SceneStage, rng: np.random.Generator, edge: int) -> None:
    height, width = stage.shape
    rows = height - edge
    grain = noise.fbm(rng, (rows, width), (60, 4), 5, 0.6)
    base = stage.palette.lit(rgb("#9a6a42"), 0.62)
    board = base * (0.92 + 0.16 * grain)[..., None]
    t = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    x = np.linspace(0, 1, width, dtype=np.float32)[None, :]
    patch = np.exp(-(((x - np.float32(stage.layout.light[0])) + (t - 0.4) * 0.35) ** 2) * 9)
    over(board, mix(stage.palette.sun, base, 0.45), np.clip(patch * np.float32(0.5), 0, 1))
    board *= (0.86 + 0.2 * t)[..., None]
    stage.image[edge:] = np.clip(board, 0, 1)
    stage.image[edge : edge + max(1, int(stage.unit * 0.5))] *= np.float32(1.15)
    stage.depth[edge:] = 0.6 - 0.5 * t


def cave(stage: SceneStage) -> None:
    """Paint the walls of a cave around the painted scene."""
    rng = stage.rng("cave")
    height, width = stage.shape
    angle_x = (
        np.arange(width, dtype=np.float32)[None, :] - stage.width * (0.35 + 0.3 * stage.layout.light[0])
    ) / np.float32(width * 0.38)
    angle_y = (np.arange(height, dtype=np.float32)[:, None] - stage.height * 0.50) / np.float32(height * 0.36)
    rough = noise.fbm(rng, stage.shape, (7, 7), 6, 0.55)
    ring = np.sqrt(angle_x**2 + angle_y**2) + rough * 0.16
    stone = stage.palette.lit(rgb("#4a4350"), 0.30)
    for index, edge in enumerate((1.0, 1.17, 1.38)):
        wall = noise.smoothstep(edge - 0.03, edge + 0.03, ring + np.roll(rough, 97 * (index + 1), 1) * 0.06)
        bright = np.clip(1.5 - (ring - edge) * 2.4, 0.25, 1.6) * (0.9 + 0.35 * np.roll(rough, 31 * index, 0))
        paint = (
            mix(stone, stage.palette.haze, 0.34 - 0.14 * index)
            * bright[..., None]
            * np.float32(0.85 - 0.27 * index)
        )
        stage.add_layer(np.clip(paint, 0, 1), wall, 0.35 - 0.14 * index)
    if "crystal" in stage.scene.prompt.casefold() or stage.scene.styles:
        _crystals(stage, rng)
    stage.step("cave")


def _crystals(stage: SceneStage, rng: np.random.Generator) -> None:
    tones = ("#6fe0ff", "#b48cff", "#ff8ad8")
    shine = np.zeros(stage.shape, np.float32)
    for _ in range(22):
        side = float(rng.choice([0.04, 0.96])) + float(rng.normal(0, 0.09))
        x, foot = side * stage.width, stage.height * float(rng.uniform(0.72, 1.02))
        tall, lean = stage.unit * float(rng.uniform(8, 24)), float(rng.normal(0, 0.3))
        wide = tall * 0.13
        tip = np.array([x + lean * tall, foot - tall])
        tone = rgb(tones[int(rng.integers(3))])
        left = np.array(
            [[x - wide, foot], [x - wide + lean * tall * 0.8, foot - tall * 0.8], tip, [x, foot]], np.float32
        )
        right = np.array(
            [[x + wide, foot], [x + wide + lean * tall * 0.8, foot - tall * 0.8], tip, [x, foot]], np.float32
        )
        for half, bright in ((left, 0.95), (right, 0.55)):
            mask = fill(stage.shape, [half])
            stage.add_layer(saturate(tone * np.float32(bright), 1.1), mask * np.float32(0.92), 0.08)
            shine = np.maximum(shine, mask)
    glow(stage.image, rgb("#8ac8ff"), np.clip(blur(shine, stage.unit * 4) * 0.8, 0, 0.6))


def volcano(stage: SceneStage) -> None:
    """Paint an erupting cone above dark land: plume, glow, streams of lava."""
    sky.paint(stage)
    rng = stage.rng("volcano")
    height, width = stage.shape
    peak = np.array([width * stage.layout.light[0], stage.horizon * 0.34])
    _plume(stage, rng, peak)
    x = np.arange(width, dtype=np.float32)
    away = np.abs(x - peak[0]) / np.float32(min(width, height * 1.2))
    rough = noise.fbm(rng, (1, width), (1, 16), 6, 0.55)[0]
    mouth = 0.045
    slope = np.where(away < mouth, 0.02 - away * 0.3, (np.maximum(away - mouth, 0) * 2.3) ** 0.80)
    line = peak[1] + (slope + rough * 0.014 * np.clip(away * 12, 0.2, 1)) * (stage.horizon - peak[1]) * 1.25
    y = np.arange(height, dtype=np.float32)[:, None]
    mask = np.clip(y - line[None, :] + 0.5, 0, 1)
    down = np.clip((y - peak[1]) / np.float32(stage.horizon - peak[1]), 0.02, 1.5)
    fan = (x[None, :] - np.float32(peak[0])) / (down * np.float32(width * 0.5))
    gully = noise.sample(
        noise.tile(rng, 256, 8, 5, 0.6), fan * 0.5 + 0.5, np.broadcast_to(down * 0.22, mask.shape).copy()
    )
    side = np.clip(0.5 + fan * (1.4 if stage.layout.light[0] < 0.5 else -1.4), 0.1, 1)
    lit = np.clip(side * 0.7 + gully * 0.45, 0, 1)
    rock = rgb("#5a4a48") * (stage.palette.ambient + lit[..., None] * stage.palette.light)
    over(rock, stage.palette.haze, np.broadcast_to(np.clip(down - 0.1, 0, 1) * np.float32(0.45), mask.shape))
    stage.add_layer(np.clip(rock, 0, 1), mask, 0.75)
    _lava(stage, (fan, gully, down), mask, peak)
    terrain.render(stage, "volcano")
    near = distance(stage.shape, (float(peak[0]), float(stage.horizon)), 1.5) / np.float32(max(stage.shape))
    glow(stage.image, rgb("#ff5a1e"), np.exp(-near * 5) * np.float32(0.26))


def _plume(stage: SceneStage, rng: np.random.Generator, peak: Image) -> None:
    height, width = stage.shape
    y = np.arange(height, dtype=np.float32)[:, None]
    x = np.arange(width, dtype=np.float32)[None, :]
    rise = np.clip((np.float32(peak[1]) - y) / np.float32(peak[1] + stage.unit * 8), 0, 1)
    drift = 0.16 * rise**1.6 * (1 if stage.layout.flip else -1)
    billow = noise.fbm(
        rng, stage.shape, (9 * height / max(stage.shape), 9 * width / max(stage.shape)), 6, 0.55
    )
    wide = width * (0.028 + 0.20 * rise**0.75)
    edge = np.abs(x - np.float32(peak[0]) - drift * width) / wide
    mask = noise.smoothstep(1.15, 0.55, edge + billow * 0.42) * (y < peak[1] + stage.unit)
    shade = np.clip(0.5 + (billow - np.roll(billow, int(stage.unit * 2), 0)) * 0.9, 0, 1)
    smoke = mix(stage.palette.cloud_shade, rgb("#2c2728"), 0.55)
    paint = ramp([(0, smoke * np.float32(0.6)), (1, mix(smoke, stage.palette.cloud_lit, 0.55))], shade)
    under = np.exp(-rise * 4.5)
    paint += (rgb("#ff7a30") - paint) * (under * shade * 0.85)[..., None]
    stage.add_layer(np.clip(paint, 0, 1), np.clip(mask, 0, 1) * np.float32(0.95), 0.9)


def _lava(stage: SceneStage, field: tuple[Image, Image, Image], mask: Image, peak: Image) -> None:
    fan, gully, down = field
    heat = np.zeros(stage.shape, np.float32)
    for center, reach in ((0.02, 0.95), (-0.20, 0.55), (0.26, 0.7)):
        bend = np.sin(down * 7 + center * 20) * 0.05 + gully * 0.06
        width = 0.030 / np.clip(down, 0.12, 1) ** 0.4
        heat = np.maximum(
            heat, np.exp(-(((fan - center - bend) / width) ** 2)) * noise.smoothstep(reach, reach * 0.6, down)
        )
    heat *= mask
    mouth = np.exp(
        -(
            (
                distance(stage.shape, (float(peak[0]), float(peak[1] + stage.unit)), 2.2)
                / np.float32(stage.unit * 3.4)
            )
            ** 2
        )
    )
    heat = np.clip(np.maximum(heat, mouth), 0, 1)
    glow(stage.image, rgb("#ff4a14"), np.clip(blur(heat, stage.unit * 3.2) * 1.5, 0, 0.9))
    over(
        stage.image,
        ramp([(0, rgb("#c81e08")), (0.6, rgb("#ff7a1c")), (1, rgb("#fff0a8"))], heat),
        np.clip(heat * 1.4, 0, 1),
    )
