"""Plants: trees, conifers, grass, flowers, and forests."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.canvas import Color, Image, Points, blur, fill, glow, mix, over, ramp, rgb
from sixfold.engines.image.scene.stage import SceneStage

_LEAVES = {
    "spring": ("#f0b4c6", "#e58fae", "#fbdde6"), "autumn": ("#d8752a", "#c2402a", "#e2a93a"),
    "winter": ("#e4ebf2", "#cfd9e4", "#9fb0bf"), "summer": ("#4f8a37", "#3c7330", "#6da043"),
}  # fmt: skip

# Places whose color includes their grass.
_GRASSY = ("meadow", "garden", "village")


def leaf_tones(stage: SceneStage) -> list[Color]:
    """Return the foliage colors of the scene's season."""
    season = "winter" if stage.weather == "snow" else (stage.scene.season or "summer")
    return [rgb(text) for text in _LEAVES[season]]


def conifer(rng: np.random.Generator, x: float, foot: float, tall: float) -> list[Points]:
    """Return the polygons of a spruce with ragged tiers."""
    tiers = int(rng.integers(7, 10))
    left, right = [], []
    for index in range(tiers):
        low = foot - tall * (0.08 + 0.92 * index / tiers)
        wide = tall * 0.21 * (1 - index / tiers) ** 0.85 + tall * 0.012
        inner = wide * 0.42
        droop = tall * 0.035
        left += [[x - wide * rng.uniform(0.82, 1.12), low + droop], [x - inner, low - tall * 0.035]]
        right += [[x + wide * rng.uniform(0.82, 1.12), low + droop], [x + inner, low - tall * 0.035]]
    outline = np.array([*left, [x, foot - tall], *right[::-1]], np.float32)
    trunk = np.array(
        [
            [x - tall * 0.018, foot],
            [x + tall * 0.018, foot],
            [x + tall * 0.012, foot - tall * 0.3],
            [x - tall * 0.012, foot - tall * 0.3],
        ],
        np.float32,
    )
    return [outline, trunk]


def branches(
    rng: np.random.Generator, x: float, foot: float, tall: float, spread: float = 0.42
) -> tuple[list[Points], Points]:
    """Return the polygons of a broadleaf tree's wood, and the branch tips."""
    wood: list[Points] = []
    tips: list[tuple[float, float]] = []
    stack = [(x, foot, -np.pi / 2 + float(rng.normal(0, 0.05)), tall * 0.34, tall * 0.035, 0)]
    while stack:
        px, py, angle, length, thick, level = stack.pop()
        qx, qy = px + np.cos(angle) * length, py + np.sin(angle) * length
        nx, ny = -np.sin(angle), np.cos(angle)
        end = thick * 0.68
        wood.append(
            np.array(
                [
                    [px + nx * thick, py + ny * thick],
                    [qx + nx * end, qy + ny * end],
                    [qx - nx * end, qy - ny * end],
                    [px - nx * thick, py - ny * thick],
                ],
                np.float32,
            )
        )
        if level >= 2:
            tips.append((qx, qy))
        if level == 5 or length < tall * 0.03:
            continue
        for turn in (-1, 1) if rng.random() < 0.75 else (-1, 0.1, 1):
            bend = turn * spread * float(rng.uniform(0.6, 1.3))
            stack.append(
                (
                    qx,
                    qy,
                    angle + bend - 0.04 * np.cos(angle),
                    length * float(rng.uniform(0.66, 0.84)),
                    end,
                    level + 1,
                )
            )
    return wood, np.array(tips, np.float32)


def foliage(shape: tuple[int, int], rng: np.random.Generator, tips: Points, size: float) -> Image:
    """Return leaf clusters around `tips` as a mask whose value is a leaf's height in its cluster."""
    mask = np.zeros(shape, np.uint8)
    for tip in tips:
        for _ in range(13):
            at = tip + rng.normal(0, size * 0.75, 2)
            axes = (
                max(8, round(size * rng.uniform(0.14, 0.36) * 16)),
                max(8, round(size * rng.uniform(0.10, 0.22) * 16)),
            )
            value = int(np.clip(150 - (at[1] - tip[1]) / max(size, 0.1) * 55 + rng.normal(0, 22), 40, 255))
            center = (round(float(at[0]) * 16), round(float(at[1]) * 16))
            cv2.ellipse(mask, center, axes, float(rng.uniform(0, 180)), 0, 360, value, -1, cv2.LINE_AA, 4)
    return mask.astype(np.float32) / 255


def tree(stage: SceneStage, x: float, foot: float, tall: float, depth: float, name: str = "tree") -> None:
    """Paint a broadleaf tree with light on its crown."""
    rng = stage.rng(f"{name}{x:.1f}{foot:.1f}")
    wood, tips = branches(rng, x, foot, tall)
    tones = leaf_tones(stage)
    trunk = stage.far(stage.palette.lit(rgb("#5a4332"), 0.32), depth)
    stage.add_layer(trunk, fill(stage.shape, wood), depth)
    lower = tips[tips[:, 1] > np.median(tips[:, 1])]
    size = tall * 0.062
    for part, light in ((tips, 0.10), (lower, 0.30), (tips, 0.55)):
        leaves = foliage(stage.shape, rng, part, size * (1.15 if light < 0.2 else 0.8))
        tone = tones[int(rng.integers(0, 2))] if light < 0.5 else tones[int(rng.integers(0, 3))]
        aim = 1.0 if stage.light_at[0] > x else -1.0
        if light > 0.2:
            leaves = leaves * noise.smoothstep(
                -0.6,
                0.8,
                aim
                * (np.arange(stage.width, dtype=np.float32)[None, :] - np.float32(x))
                / np.float32(tall * 0.35),
            )
        paint = stage.far(stage.palette.lit(tone, light * 1.35), depth)
        stage.add_layer(paint * (0.55 + 0.75 * leaves)[..., None], np.clip(leaves * 3.0, 0, 1), depth)


def conifer_row(
    stage: SceneStage, line: Image, tall: tuple[float, float], gap: float, depth: float, name: str
) -> None:
    """Paint a row of spruces whose feet follow `line` (one row number per column)."""
    rng = stage.rng(name)
    polygons: list[Points] = []
    x = -gap
    while x < stage.width + gap:
        foot = float(line[int(np.clip(x, 0, stage.width - 1))])
        polygons += conifer(rng, x, foot + tall[0] * 0.1, float(rng.uniform(*tall)))
        x += gap * float(rng.uniform(0.45, 1.5))
    mask = fill(stage.shape, polygons)
    low = np.arange(stage.height, dtype=np.float32)[:, None] >= line[None, :] + tall[0] * 0.06
    mask = np.maximum(mask, low.astype(np.float32))
    season = "winter" if stage.weather == "snow" else stage.scene.season
    base = {"winter": "#5d7480", "autumn": "#5e5a30"}.get(season or "", "#28482f")
    tone = stage.far(stage.palette.lit(rgb(base), 0.28 + 0.25 * depth), depth)
    top = stage.far(stage.palette.lit(mix(rgb(base), leaf_tones(stage)[2], 0.3), 0.75), depth)
    height = np.clip(
        (line[None, :] - np.arange(stage.height, dtype=np.float32)[:, None]) / np.float32(tall[1]), 0, 1
    )
    stage.add_layer(tone + (top - tone) * (height * 0.6)[..., None], mask, depth)


def grass(stage: SceneStage, line: float, tall: float, name: str = "grass", flowers: bool = False) -> None:
    """Paint a fringe of blades along the bottom, optionally with flower heads."""
    rng = stage.rng(name)
    count = int(stage.width / max(1.4, stage.unit * 0.42))
    low = stage.height * 1.03
    back = [
        rgb(text)
        for text in (
            ("#dfe6ee", "#b6c4d2", "#eef3f8") if stage.is_wintry else ("#39591f", "#55772a", "#84994a")
        )
    ]
    for layer in range(3):
        mask = np.zeros(stage.shape, np.uint8)
        heads: list[tuple[float, float]] = []
        for _ in range(count // 2):
            x = float(rng.uniform(-0.02, 1.02)) * stage.width
            foot = low - (2 - layer) * tall * 0.34 * line
            tip = tall * float(rng.uniform(0.45, 1.0)) * (0.75 + 0.25 * layer)
            lean = float(rng.normal(0.10, 0.22)) * tip
            wide = max(0.7, stage.unit * 0.13 * (0.7 + 0.3 * layer))
            blade = np.array(
                [
                    [x - wide, foot],
                    [x + lean * 0.35 - wide * 0.7, foot - tip * 0.6],
                    [x + lean, foot - tip],
                    [x + lean * 0.35 + wide * 0.7, foot - tip * 0.6],
                    [x + wide, foot],
                ]
            )
            cv2.fillPoly(mask, [np.round(blade * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
            if flowers and rng.random() < 0.30 and not stage.is_wintry:
                heads.append((x + lean, foot - tip))
        color = stage.tinted(back[layer], 0.6) if stage.place in _GRASSY else back[layer]
        tone = stage.palette.lit(color, 0.22 + 0.2 * layer)
        stage.add_layer(tone, mask.astype(np.float32) / 255, 0.03)
        _heads(stage, heads, rng)


def _heads(stage: SceneStage, heads: list[tuple[float, float]], rng: np.random.Generator) -> None:
    for index, tone in enumerate(flower_tones(stage)):
        mask = np.zeros(stage.shape, np.uint8)
        for at in heads[index::3]:
            radius = stage.unit * float(rng.uniform(0.35, 0.85))
            for k in range(5):
                angle = k * 1.2566 + at[0]
                center = (
                    round((at[0] + np.cos(angle) * radius * 0.7) * 16),
                    round((at[1] + np.sin(angle) * radius * 0.6) * 16),
                )
                cv2.circle(mask, center, max(8, round(radius * 9)), 255, -1, cv2.LINE_AA, 4)
        stage.add_layer(stage.palette.lit(tone, 0.66), mask.astype(np.float32) / 255, 0.03)


def flower_tones(stage: SceneStage) -> list[Color]:
    """Return three flower colors, chosen by the seed."""
    sets = (
        ("#d8413c", "#f0b23a", "#f4efe2"),
        ("#8a5bd0", "#d98ad0", "#f4e9f2"),
        ("#f08fb0", "#fbdce4", "#f2c14e"),
        ("#4f74d8", "#f2efe6", "#e8c23c"),
    )
    if "lavender" in stage.scene.prompt.casefold():
        return [rgb("#7d58c2"), rgb("#9a72d6"), rgb("#b795e6")]
    return [rgb(text) for text in sets[int(stage.rng("flowers").integers(len(sets)))]]


def flower_field(stage: SceneStage, top: float) -> None:
    """Paint drifts of flowers on the ground: dense and small far away, larger nearby."""
    rng = stage.rng("flower field")
    if "lavender" in stage.scene.prompt.casefold() or "tulip" in stage.scene.prompt.casefold():
        _rows(stage, top)
    rows = np.arange(stage.height, dtype=np.float32)
    for tone in flower_tones(stage):
        mask = np.zeros(stage.shape, np.uint8)
        for _ in range(900):
            t = float(rng.random()) ** 1.6
            y = top + (stage.height - top) * t
            x = float(rng.uniform(0, stage.width))
            if np.sin(x / stage.width * 9 + y / stage.height * 23 + tone[0] * 40) < -0.25:
                continue
            radius = stage.unit * (0.10 + 0.75 * t)
            axes = (max(6, round(radius * 16)), max(5, round(radius * 11)))
            cv2.ellipse(
                mask,
                (round(x * 16), round(y * 16)),
                axes,
                0,
                0,
                360,
                int(rng.integers(150, 255)),
                -1,
                cv2.LINE_AA,
                4,
            )
        near = np.clip((rows - top) / (stage.height - top), 0, 1)[:, None]
        alpha = mask.astype(np.float32) / 255
        paint = stage.palette.lit(tone, 0.70) * (0.45 + 0.6 * alpha)[..., None]
        stage.add_layer(paint, np.clip(alpha * 2, 0, 1) * (0.45 + 0.55 * near), 0.15)


def _rows(stage: SceneStage, top: float) -> None:
    """Paint planted rows that converge at the vanishing point."""
    height = stage.height - int(top)
    y = (np.arange(height, dtype=np.float32)[:, None] + 1) / np.float32(stage.height)
    x = np.arange(stage.width, dtype=np.float32)[None, :] / np.float32(stage.width) - np.float32(
        stage.layout.light[0]
    )
    wave = np.sin(x / (y + 0.035) * 7.0) * 0.5 + 0.5
    rough = noise.fbm(stage.rng("rows"), (height, stage.width), (height / 3, stage.width / 4), 3, 0.7)
    tones = flower_tones(stage)
    paint = ramp(
        [(0, rgb("#4f6b3a")), (0.35, tones[0] * np.float32(0.6)), (0.8, tones[0]), (1, tones[2])],
        np.clip(wave + rough * 0.2, 0, 1),
    )
    light = stage.palette.ambient + stage.palette.light * np.float32(0.62)
    fade = np.clip(y * 14, 0, 1) * np.float32(0.88)
    stage.add_layer(np.clip(paint * light, 0, 1), np.broadcast_to(fade, wave.shape), 0.3, int(top))


def forest(stage: SceneStage) -> None:
    """Paint the inside of a forest: trunks in misty layers, a sunlit path, light shafts."""
    rng = stage.rng("forest")
    height, width = stage.shape
    palette = stage.palette
    clearing = stage.layout.light[0] * width
    mist = mix(palette.haze, palette.sky[2], 0.3)
    glowing = mix(mist, palette.sun, {"night": 0.12, "dusk": 0.2}.get(stage.time, 0.45))
    near = np.abs(np.arange(width, dtype=np.float32) - clearing)[None, :] / np.float32(width * 0.55)
    down = np.abs(np.arange(height, dtype=np.float32)[:, None] / height - np.float32(stage.layout.horizon))
    deep = stage.palette.lit(rgb("#2f4a35"), 0.3)
    stage.image[:] = deep + (glowing - deep) * np.exp(-(near**2) * 1.6 - down * 1.7)[..., None]
    _floor(stage, clearing)
    tones = leaf_tones(stage)
    for layer in range(6):
        t = layer / 5
        depth = 0.95 - 0.88 * t
        foot = stage.horizon + (height * 1.03 - stage.horizon) * (0.04 + 0.85 * t**1.7)
        wide = stage.unit * (0.5 + 4.6 * t**1.6)
        _trunks(stage, rng, (foot, wide, depth), clearing, int(17 - 13 * t))
        tone = mix(stage.palette.lit(tones[layer % 3], 0.25 + 0.45 * (1 - t)), mist, 0.78 * (1 - t) ** 0.8)
        _canopy(stage, rng, tone, t)
        if layer in (1, 3):
            glow(stage.image, glowing, np.exp(-(near**2) * 3.4 - down * 3) * np.float32(0.22))
    _shafts(stage, clearing)
    grass(stage, 0.5, stage.unit * 9, "fern")
    stage.step("forest")


def _floor(stage: SceneStage, clearing: float) -> None:
    height, width = stage.shape
    top = int(stage.horizon)
    rows = height - top
    t = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    rough = noise.fbm(stage.rng("floor"), (rows, width), (26, 16), 5, 0.6)
    season = "winter" if stage.is_wintry else stage.scene.season
    base = {"winter": "#dfe7ef", "autumn": "#a8622a"}.get(season or "", "#4c5f2c")
    ground = stage.palette.lit(rgb(base), 0.5) * (0.82 + 0.25 * rough)[..., None]
    x = (np.arange(width, dtype=np.float32)[None, :] - clearing - np.sin(t * 4.2) * width * 0.07 * t) / (
        width * (0.018 + 0.20 * t)
    )
    path = np.exp(-(x**4) * 1.2)
    earth = (
        stage.palette.lit(rgb("#b39468") if season != "winter" else rgb("#c5d0dc"), 0.72)
        * (0.9 + 0.12 * rough)[..., None]
    )
    over(ground, earth, path * np.float32(0.85))
    light = np.exp(-((x / 3.2) ** 2)) * (1 - t) ** 0.7
    over(ground, mix(stage.palette.haze, stage.palette.sun, 0.4), np.clip(light * np.float32(0.75), 0, 1))
    over(ground, stage.palette.haze, np.clip(1 - t * 5, 0, 1) * np.float32(0.7))
    stage.image[top:] = ground
    stage.depth[top:] = 1 - 0.95 * t**0.6


def _trunks(
    stage: SceneStage, rng: np.random.Generator, row: tuple[float, float, float], clearing: float, count: int
) -> None:
    foot, wide, depth = row
    polygons: list[Points] = []
    for _ in range(count):
        x = float(rng.uniform(-0.05, 1.05)) * stage.width
        if abs(x - clearing) < stage.width * (0.05 + 0.20 * (1 - depth)):
            continue
        lean = float(rng.normal(0, 0.025)) * stage.height
        w = wide * float(rng.uniform(0.6, 1.35))
        base = foot + float(rng.uniform(-0.5, 0.5)) * wide
        polygons.append(
            np.array(
                [
                    [x - w * 1.7, base],
                    [x - w * 0.9, base - w * 2.4],
                    [x + lean - w * 0.62, -5],
                    [x + lean + w * 0.62, -5],
                    [x + w * 0.9, base - w * 2.4],
                    [x + w * 1.7, base],
                ],
                np.float32,
            )
        )
        for _ in range(3):
            y = float(rng.uniform(0.02, 0.34)) * foot
            side = float(rng.choice([-1.0, 1.0]))
            reach = w * float(rng.uniform(2.5, 5))
            polygons.append(
                np.array(
                    [
                        [x, y + w * 0.5],
                        [x + side * reach * 0.55, y - reach * 0.42 + w * 0.16],
                        [x + side * reach, y - reach * 1.05],
                        [x + side * reach * 0.5, y - reach * 0.48],
                        [x, y - w * 0.4],
                    ],
                    np.float32,
                )
            )
    mask = fill(stage.shape, polygons)
    if not mask.any():
        return
    mist = mix(stage.palette.haze, stage.palette.sky[2], 0.3)
    bark = mix(stage.palette.lit(rgb("#4a3a2e"), 0.22), mist, min(0.86, depth * 0.9))
    side = np.sign(clearing - np.arange(stage.width, dtype=np.float32))[None, :]
    grain = noise.fbm(rng, stage.shape, (6, stage.width / max(wide * 0.7, 1.5)), 3)
    move = np.array([[1, 0, -max(1.0, wide * 0.3)], [0, 1, 0]], np.float32)
    left_lit = np.clip(
        mask
        - cv2.warpAffine(
            mask, -move + np.array([[2, 0, 0], [0, 2, 0]], np.float32), stage.image.shape[1::-1]
        ),
        0,
        1,
    )
    right_lit = np.clip(mask - cv2.warpAffine(mask, move, stage.image.shape[1::-1]), 0, 1)
    edge = np.where(side > 0, left_lit, right_lit)
    paint = bark * (1 + 0.16 * grain)[..., None]
    over(paint, mix(mist, stage.palette.sun, 0.5), np.clip(edge * np.float32(0.55), 0, 1))
    stage.add_layer(np.clip(paint, 0, 1), mask, depth)


def _canopy(stage: SceneStage, rng: np.random.Generator, tone: Color, t: float) -> None:
    """Paint hanging leaves at the top and the sides."""
    height, width = stage.shape
    cells = 26 - 15 * t
    field = noise.fbm(
        rng, stage.shape, (cells * height / max(stage.shape), cells * width / max(stage.shape)), 5, 0.62
    )
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    x = np.abs(np.linspace(0, 1, width, dtype=np.float32) - np.float32(stage.layout.light[0]))[None, :]
    edge = y - (0.10 + 0.16 * (1 - t)) - x * np.float32(0.34)
    mask = noise.smoothstep(0.0, 0.12, field * np.float32(0.26) - edge)
    light = 0.86 + 0.30 * np.clip(field, -1, 1)
    stage.add_layer(
        np.clip(tone * light[..., None], 0, 1), np.clip(mask, 0, 1) * np.float32(0.94), 0.9 - 0.8 * t
    )


def _shafts(stage: SceneStage, clearing: float) -> None:
    """Add light beams that fan out from above the clearing."""
    if stage.weather in ("rain", "storm", "snow"):
        return
    rng = stage.rng("shafts")
    origin = np.array([clearing, -stage.height * 0.35])
    beams = np.zeros(stage.shape, np.float32)
    for _ in range(9):
        angle = float(rng.normal(0, 0.33))
        wide = float(rng.uniform(0.012, 0.045))
        length = stage.height * 1.5
        a = origin + length * np.array([np.sin(angle - wide), np.cos(angle - wide)])
        b = origin + length * np.array([np.sin(angle + wide), np.cos(angle + wide)])
        beams += fill(stage.shape, [np.array([origin, a, b], np.float32)]) * np.float32(rng.uniform(0.3, 1))
    fade = np.clip(
        1.15 - np.arange(stage.height, dtype=np.float32)[:, None] / np.float32(stage.height * 0.9), 0, 1
    )
    strength = {"night": 0.10, "dusk": 0.13}.get(stage.time, 0.22)
    glow(
        stage.image,
        stage.palette.sun,
        np.clip(blur(beams, stage.unit * 1.2) * fade * np.float32(strength), 0, 0.6),
    )
