"""Color words, which grade the image before the look, and style words, whose media are applied after it."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.canvas import Image, blur, mix, over, ramp, rgb
from sixfold.engines.image.scene.finishing import vivid
from sixfold.engines.image.scene.stage import SceneStage

# Gradients from shadow to light, by color word.
_GRADES: dict[str, tuple[str, ...]] = {
    "red": ("#1f0508", "#8c1420", "#e0433a", "#ffd9c4"),
    "orange": ("#1f0d05", "#9c4310", "#f08a2c", "#ffecc8"),
    "yellow": ("#241a04", "#a07d10", "#f2cb3a", "#fff6cf"),
    "gold": ("#1d1206", "#8f5f1a", "#e3ac45", "#fff1c6"),
    "green": ("#04140b", "#1d6136", "#6cb765", "#eaf7d2"),
    "teal": ("#03151a", "#0d6470", "#3fb9b5", "#dcf8ee"),
    "blue": ("#050b24", "#1c3f92", "#5a93e0", "#e2f0ff"),
    "purple": ("#10061f", "#4d2386", "#a06ad6", "#f1e2ff"),
    "pink": ("#2a0a1c", "#a83a72", "#f08ab4", "#ffe9ee"),
    "brown": ("#150c06", "#5c3a20", "#ad7f52", "#f3e3c8"),
    "white": ("#4a5560", "#a3b0bb", "#e3e9ee", "#ffffff"),
    "black": ("#020204", "#17181d", "#44474f", "#c9ccd2"),
    "grey": ("#16181b", "#5b6068", "#a2a8ae", "#eef0f1"),
    "mono": ("#050505", "#4c4c4c", "#a8a8a8", "#f8f8f8"),
    "sepia": ("#150d06", "#6b4a2a", "#c09a68", "#f6e8cc"),
}
_STRENGTH = {"mono": 1.0, "sepia": 0.95, "white": 0.5, "black": 0.72, "grey": 0.8}


def _gradient_map(image: Image, name: str, strength: float) -> Image:
    gray = cv2.cvtColor(np.ascontiguousarray(np.clip(image, 0, 1)), cv2.COLOR_RGB2GRAY)
    tones = [rgb(text) for text in _GRADES[name]]
    mapped = ramp([(0, tones[0]), (0.34, tones[1]), (0.68, tones[2]), (1, tones[3])], gray)
    return image + (mapped - image) * np.float32(strength)


def color_sky(stage: SceneStage) -> None:
    """Give the sky, before anything else is painted, the color that the prompt names."""
    if stage.scene.sky in _GRADES:
        np.clip(stage.image, 0, 1, out=stage.image)
        stage.image = _gradient_map(stage.image, stage.scene.sky, _STRENGTH.get(stage.scene.sky, 0.66))


def grade(stage: SceneStage) -> None:
    """Grade the image towards the colors that the prompt names."""
    np.clip(stage.image, 0, 1, out=stage.image)
    colors = [c for c in stage.scene.colors if c not in stage.scene.avoid]
    if stage.place in ("interior", "studio", "abstract"):
        # In these places the walls and shapes have the named color.
        colors = [c for c in colors if c in ("mono", "sepia", "pastel", "gold")]
    for index, color in enumerate(c for c in colors if c in _GRADES):
        stage.image = _gradient_map(stage.image, color, _STRENGTH.get(color, 0.66) / (1 + index * 1.1))
    if "pastel" in colors:
        stage.image = np.clip(
            vivid(stage.image, 0.72) * np.float32(0.55) + np.array([0.435, 0.41, 0.425], np.float32), 0, 1
        )
    if "neon" in colors or {"cyberpunk", "vaporwave"} & set(stage.scene.styles):
        gray = cv2.cvtColor(stage.image, cv2.COLOR_RGB2GRAY)
        mapped = ramp(
            [
                (0, rgb("#0a0420")),
                (0.3, rgb("#3a1188")),
                (0.55, rgb("#e0259c")),
                (0.8, rgb("#35d6f5")),
                (1, rgb("#fdf6ff")),
            ],
            gray,
        )
        stage.image = vivid(np.clip(stage.image * 0.74 + mapped * 0.26, 0, 1), 1.35)
    if "noir" in stage.scene.styles:
        stage.image = _gradient_map(stage.image, "mono", 1.0)
        stage.image = np.clip((stage.image - 0.5) * 1.5 + 0.44, 0, 1)


def watercolor(stage: SceneStage) -> None:
    """Paint pools of pigment with dark edges and visible paper."""
    rng = stage.rng("watercolour")
    height, width = stage.shape
    wobble = [
        noise.fbm(rng, stage.shape, (height / stage.unit / 4, width / stage.unit / 4), 4) for _ in range(2)
    ]
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    reach = np.float32(stage.unit * 0.9)
    wet = cv2.remap(
        stage.image,
        x + wobble[0] * reach,
        y + wobble[1] * reach,
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT,
    )
    eight = cv2.medianBlur(
        np.round(np.clip(wet, 0, 1) * 255).astype(np.uint8), max(3, int(stage.unit * 0.5) * 2 + 1)
    )
    flat = eight.astype(np.float32) / 255
    gray = cv2.cvtColor(flat, cv2.COLOR_RGB2GRAY)
    edge = np.abs(gray - blur(gray, stage.unit * 0.7))
    paper = noise.fbm(rng, stage.shape, (height / 4, width / 4), 3, 0.7)
    pools = noise.fbm(rng, stage.shape, (9, 9), 4)
    wash = flat * np.float32(0.70) + np.float32(0.30)
    wash = 1 - (1 - wash) * (1.0 + 0.22 * pools + 3.2 * edge + 0.10 * paper)[..., None]
    rim = np.minimum(np.minimum(x, width - 1 - x), np.minimum(y, height - 1 - y)) / np.float32(stage.unit)
    fade = noise.smoothstep(2.0, 4.4, rim + wobble[0] * 2.2 + paper * 0.5)
    stage.image = np.clip(rgb("#fbf8f0") + (wash - rgb("#fbf8f0")) * fade[..., None], 0, 1)


def oil(stage: SceneStage) -> None:
    """Paint thick directional strokes."""
    from_eight = np.round(np.clip(stage.image, 0, 1) * 255).astype(np.uint8)
    size = max(3, int(stage.unit * 0.55))
    height, width = stage.shape
    half = cv2.resize(from_eight, (max(8, width // 2), max(8, height // 2)), interpolation=cv2.INTER_AREA)
    daub = cv2.medianBlur(half, size | 1)
    stage.image = vivid(
        cv2.resize(daub, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.float32) / 255, 1.2
    )
    rng = stage.rng("impasto")
    ridge = noise.fbm(rng, stage.shape, (height / stage.unit * 0.9, width / stage.unit * 0.35), 4, 0.7)
    relief = ridge - np.roll(ridge, 2, (0, 1))[..., :]
    stage.image = np.clip(stage.image + (relief * np.float32(0.16))[..., None], 0, 1)


def pixel(stage: SceneStage) -> None:
    """Reduce the image to square pixels with a small palette."""
    height, width = stage.shape
    block = max(2, round(min(stage.shape) / 112))
    small = cv2.resize(
        stage.image, (max(1, width // block), max(1, height // block)), interpolation=cv2.INTER_AREA
    )
    grid = np.indices(small.shape[:2]).sum(0) % 2
    levels = 7
    small = np.round(vivid(small, 1.25) * levels + ((grid - 0.5) * 0.5)[..., None]) / levels
    stage.image = np.clip(
        cv2.resize(small.astype(np.float32), (width, height), interpolation=cv2.INTER_NEAREST), 0, 1
    )


def sketch(stage: SceneStage) -> None:
    """Draw pencil lines and hatching on paper."""
    gray = cv2.cvtColor(np.ascontiguousarray(stage.image), cv2.COLOR_RGB2GRAY)
    soft = blur(gray, stage.unit * 0.5)
    lines = np.clip((soft - cv2.GaussianBlur(gray, (0, 0), max(0.5, stage.unit * 0.07))) * 5.5, 0, 1)
    y, x = np.mgrid[0 : stage.height, 0 : stage.width].astype(np.float32)
    pitch = np.float32(2 * np.pi / max(2.5, stage.unit * 0.5))
    rough = noise.fbm(stage.rng("pencil"), stage.shape, (stage.height / 3, stage.width / 3), 2, 0.7)
    hatch = np.zeros_like(gray)
    for limit, angle in ((0.62, 0.9), (0.40, -0.7), (0.22, 0.2)):
        wave = np.sin((x * np.float32(np.cos(angle)) + y * np.float32(np.sin(angle))) * pitch + rough * 0.9)
        hatch += np.clip(wave, 0, 1) * noise.smoothstep(limit, limit - 0.25, soft) * np.float32(0.36)
    tone = np.clip(lines + hatch * (0.85 + 0.4 * rough), 0, 1)
    stage.image = np.clip(
        rgb("#f6f1e6") + (rgb("#2b2a2e") - rgb("#f6f1e6")) * tone[..., None] + (rough * 0.02)[..., None], 0, 1
    )


def ukiyoe(stage: SceneStage) -> None:
    """Print flat colors with dark key lines on washi paper."""
    inks = [rgb(t) for t in ("#1c2a44", "#2f5d8a", "#6f9fb0", "#b9654a", "#d9a86c", "#e6d9b8", "#f2e9d2")]
    flat = cv2.bilateralFilter(stage.image, 7, 0.15, 5)
    step = np.round(flat * 6) / 6
    table = np.stack(inks)
    distance = ((step[..., None, :] * np.float32(0.9) + np.float32(0.05) - table) ** 2).sum(-1)
    near = table[np.argmin(distance, -1)]
    stage.image = step * np.float32(0.35) + near * np.float32(0.65)
    gray = cv2.cvtColor(flat, cv2.COLOR_RGB2GRAY)
    line = noise.smoothstep(
        0.02, 0.06, blur(gray, stage.unit * 0.3) - cv2.GaussianBlur(gray, (0, 0), max(0.5, stage.unit * 0.1))
    )
    over(stage.image, rgb("#1a2238"), line)
    fiber = noise.fbm(stage.rng("washi"), stage.shape, (stage.height / 2, stage.width / 9), 3, 0.7)
    stage.image = np.clip(stage.image * (0.98 + 0.05 * fiber)[..., None], 0, 1)


def minimal(stage: SceneStage) -> None:
    """Simplify the image to a few flat shapes."""
    eight = np.round(np.clip(stage.image, 0, 1) * 255).astype(np.uint8)
    for _ in range(2):
        eight = cv2.medianBlur(eight, max(3, int(stage.unit * 0.9) | 1))
    flat = eight.astype(np.float32) / 255
    step = np.round(flat * 5) / 5
    stage.image = np.clip(mix(flat, step, 0.6) * np.float32(0.88) + np.float32(0.09), 0, 1)


def lowpoly(stage: SceneStage) -> None:
    """Divide the image into triangles."""
    rng = stage.rng("lowpoly")
    cell = stage.unit * 3.6
    columns, rows = int(stage.width / cell) + 3, int(stage.height / cell) + 3
    grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).astype(np.float32)
    grid = (grid - 1 + rng.uniform(-0.32, 0.32, grid.shape).astype(np.float32)) * np.float32(cell)
    soft = blur(stage.image, stage.unit * 0.8)
    out = soft.copy()
    for row in range(rows - 1):
        for column in range(columns - 1):
            quad = (
                grid[row, column],
                grid[row, column + 1],
                grid[row + 1, column + 1],
                grid[row + 1, column],
            )
            for k, three in enumerate(((0, 1, 2), (0, 2, 3))):
                points = np.array([quad[i] for i in three])
                x, y = np.clip(points.mean(0), 0, [stage.width - 1, stage.height - 1]).astype(int)
                tone = np.clip(soft[y, x] * (1.05 - 0.08 * k), 0, 1)
                cv2.fillPoly(
                    out,
                    [np.round(points * 16).astype(np.int32)],
                    tuple(float(c) for c in tone),
                    cv2.LINE_8,
                    4,
                )
    stage.image = vivid(out, 1.15)


STYLES: dict[str, Callable[[SceneStage], None]] = {
    "watercolour": watercolor,
    "oil": oil,
    "pixel": pixel,
    "sketch": sketch,
    "ukiyoe": ukiyoe,
    "minimal": minimal,
    "lowpoly": lowpoly,
}


def apply(stage: SceneStage) -> None:
    """Apply the first medium among the style words."""
    for name in stage.scene.styles:
        if name == "minimal" and stage.scene.frame == "icon":
            continue
        if name in STYLES and name not in stage.scene.avoid:
            STYLES[name](stage)
            return
