"""Abstract images, for prompts without a recognized subject."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.canvas import Color, blur, disc, distance, fill, mix, over, ramp, rgb
from sixfold.engines.image.scene.stage import SceneStage
from sixfold.engines.image.scene.studio import PAPERS

_SCHEMES = (
    ("#f3e9d8", "#1f3a5f", "#d1495b", "#edae49", "#66a182"),
    ("#f6efe4", "#22223b", "#c9705f", "#f2b880", "#5a7d8c"),
    ("#10172a", "#f2e8cf", "#e76f51", "#2a9d8f", "#e9c46a"),
    ("#efe6dd", "#3d405b", "#e07a5f", "#81b29a", "#f2cc8f"),
    ("#0f1020", "#f7b2ad", "#8b5fbf", "#3dccc7", "#ffd166"),
    ("#f4f1ea", "#264653", "#e4572e", "#76b041", "#ffc914"),
    ("#fbf3e7", "#5b2a86", "#ef476f", "#118ab2", "#ffd166"),
)


def scheme(stage: SceneStage) -> list[Color]:
    """Return background, ink and three accent colors, which come from the prompt if it names colors."""
    papers = [rgb(PAPERS[c]) for c in stage.scene.colors if c in PAPERS]
    if papers:
        pale, deep = mix(papers[0], rgb("#fffaf0"), 0.86), mix(papers[0], rgb("#10142a"), 0.62)
        return [pale, deep, papers[0], papers[1 % len(papers)], mix(papers[-1], rgb("#fffaf0"), 0.5)]
    return [rgb(text) for text in _SCHEMES[int(stage.rng("scheme").integers(len(_SCHEMES)))]]


def _paper(stage: SceneStage, tones: list[Color]) -> None:
    fiber = noise.fbm(stage.rng("paper"), stage.shape, (stage.height / 3, stage.width / 3), 2)
    stage.image[:] = np.clip(tones[0] * (1 + 0.012 * fiber)[..., None], 0, 1)
    stage.depth[:] = 0.5


def ribbons(stage: SceneStage) -> None:
    """Paint layered flowing bands under a disc, each with its own shadow."""
    rng, tones = stage.rng("ribbons"), scheme(stage)
    _paper(stage, tones)
    height, width = stage.shape
    sun = disc(stage.shape, (stage.width * stage.layout.subject_x, height * 0.30), min(stage.shape) * 0.17)
    stage.add_layer(tones[2], sun, 0.7)
    x = np.linspace(0, 1, width, dtype=np.float32)
    y = np.arange(height, dtype=np.float32)[:, None]
    for index in range(9):
        t = index / 8
        line = (
            0.32
            + 0.62 * t
            + 0.10 * np.sin(x * float(rng.uniform(3, 7)) + float(rng.random()) * 6) * (1 - 0.4 * t)
        )
        line += noise.fbm(rng, (1, width), (1, 2), 2)[0] * np.float32(0.05)
        edge = y - line[None, :] * height
        over(
            stage.image,
            tones[1] * np.float32(0.4),
            np.clip(
                np.exp(-np.maximum(-edge, 0) / np.float32(stage.unit * 1.6)) * np.float32(0.30) * (edge < 0),
                0,
                1,
            ),
        )
        tone = mix(tones[1 + index % 4], tones[0], 0.25 * (1 - t))
        sheen = 1.0 + 0.16 * np.cos(np.clip(edge / np.float32(stage.unit * 9), 0, 3.2)) - 0.05
        stage.add_layer(np.clip(tone * sheen[..., None], 0, 1), np.clip(edge + 0.5, 0, 1), 0.6 - 0.5 * t)


def geometry(stage: SceneStage) -> None:
    """Paint a grid of quarter discs, rings, bars and dots."""
    rng, tones = stage.rng("geometry"), scheme(stage)
    _paper(stage, tones)
    cell = min(stage.shape) / float(rng.integers(4, 6))
    columns, rows = int(np.ceil(stage.width / cell)), int(np.ceil(stage.height / cell))
    left, top = (stage.width - columns * cell) / 2, (stage.height - rows * cell) / 2
    for row in range(rows):
        for column in range(columns):
            _tile(stage, rng, (left + column * cell, top + row * cell, cell), tones)


def _tile(
    stage: SceneStage, rng: np.random.Generator, box: tuple[float, float, float], tones: list[Color]
) -> None:
    x, y, cell = box
    ground, ink = (int(v) for v in rng.permutation(5)[:2])
    square = np.array([[x, y], [x + cell, y], [x + cell, y + cell], [x, y + cell]], np.float32)
    area = fill(stage.shape, [square], soft=False)
    over(stage.image, tones[ground], area)
    kind = int(rng.integers(0, 7))
    corner = (x + cell * float(rng.integers(0, 2)), y + cell * float(rng.integers(0, 2)))
    center = (x + cell / 2, y + cell / 2)
    if kind <= 1:
        over(stage.image, tones[ink], disc(stage.shape, corner, cell) * area)
        over(stage.image, tones[ground], disc(stage.shape, corner, cell * 0.5) * area * (kind == 1))
    elif kind == 2:
        for k, share in enumerate((0.46, 0.32, 0.18)):
            over(stage.image, tones[(ink, ground)[k % 2]], disc(stage.shape, center, cell * share) * area)
    elif kind == 3:
        stripes = ((np.arange(stage.height)[:, None] - y) // (cell / 8)) % 2
        over(stage.image, tones[ink], area * np.broadcast_to(stripes.astype(np.float32), stage.shape))
    elif kind == 4:
        triangle = np.delete(square, int(rng.integers(0, 4)), 0)
        over(stage.image, tones[ink], fill(stage.shape, [triangle]) * area)
    elif kind == 5:
        half = disc(stage.shape, (center[0], y), cell * 0.5) + disc(
            stage.shape, (center[0], y + cell), cell * 0.5
        )
        over(stage.image, tones[ink], np.clip(half, 0, 1) * area)
    else:
        over(stage.image, tones[ink], disc(stage.shape, center, cell * 0.2) * area)


def marble(stage: SceneStage) -> None:
    """Paint folded ink with gilded veins."""
    rng, tones = stage.rng("marble"), scheme(stage)
    height, width = stage.shape
    cells = (3.0 * height / max(stage.shape), 3.0 * width / max(stage.shape))
    a, b, c = (noise.fbm(rng, stage.shape, cells, 5) for _ in range(3))
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    bend = np.float32(stage.unit * 24)
    folded = cv2.remap(c, x + a * bend, y + b * bend, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    folded = cv2.remap(
        folded, x + b * bend * 0.6, y + folded * bend, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
    )
    level = np.clip(folded * 0.55 + 0.5, 0, 1)
    stage.image[:] = ramp(
        [
            (0, tones[1]),
            (0.28, tones[4]),
            (0.5, tones[0]),
            (0.7, tones[3]),
            (0.86, tones[2]),
            (1, mix(tones[2], tones[1], 0.6)),
        ],
        level,
    )
    lines = np.abs(np.sin(level * 26))
    over(stage.image, tones[1] * np.float32(0.55), np.clip(1 - lines * 6, 0, 1) * np.float32(0.35))
    over(stage.image, rgb("#f0cf7a"), np.clip(1 - np.abs(level - 0.62) * 90, 0, 1) * np.float32(0.85))
    stage.depth[:] = 0.5


def stones(stage: SceneStage) -> None:
    """Paint stacks of balanced stones with soft shading in front of a large disc."""
    rng, tones = stage.rng("stones"), scheme(stage)
    _paper(stage, tones)
    height, width = stage.shape
    arch = disc(stage.shape, (width * stage.layout.subject_x, height * 0.46), min(stage.shape) * 0.33)
    over(stage.image, mix(tones[3], tones[0], 0.25), arch)
    base = height * 0.86
    ground = (np.arange(height, dtype=np.float32)[:, None] > base).astype(np.float32)
    over(stage.image, mix(tones[4], tones[0], 0.35), np.broadcast_to(ground, stage.shape))
    for stack in range(3):
        x = width * (stage.layout.subject_x + (stack - 1) * 0.24 * (1 if stage.layout.flip else -1))
        foot = base + stage.unit * (2 - stack)
        for level in range((4, 2, 3)[stack]):
            wide = stage.unit * float(rng.uniform(7, 15)) * (1 - 0.17 * level)
            tall = wide * float(rng.uniform(0.42, 0.95))
            _stone(
                stage,
                rng,
                (x + float(rng.normal(0, 0.8)) * stage.unit, foot - tall, wide, tall),
                tones[(1, 2, 4, 3)[(stack + level) % 4]],
            )
            foot -= tall * 1.92


def _stone(
    stage: SceneStage, rng: np.random.Generator, box: tuple[float, float, float, float], tone: Color
) -> None:
    x, y, wide, tall = box
    angle = np.linspace(0, 2 * np.pi, 72, endpoint=False)
    wobble = (
        1
        + 0.06 * np.sin(angle * 2 + float(rng.random()) * 6)
        + 0.04 * np.sin(angle * 3 + float(rng.random()) * 6)
    )
    points = np.stack([x + np.cos(angle) * wide * wobble, y + np.sin(angle) * tall * wobble], 1).astype(
        np.float32
    )
    shade = fill(stage.shape, [points + np.array([stage.unit, stage.unit * 1.2], np.float32)])
    over(stage.image, tone * np.float32(0.3), blur(shade, stage.unit) * np.float32(0.35))
    mask = fill(stage.shape, [points])
    near = distance(stage.shape, (x - wide * 0.4, y - tall * 0.5)) / np.float32(max(wide, tall))
    grain = noise.octave(rng, stage.height, stage.width, (stage.height / 2, stage.width / 2)) * np.float32(
        0.03
    )
    stage.add_layer(np.clip(tone * (1.28 - 0.42 * near + grain)[..., None], 0, 1), mask, 0.2)


def facets(stage: SceneStage) -> None:
    """Paint a folded field of triangles, lit from one side."""
    rng, tones = stage.rng("facets"), scheme(stage)
    _paper(stage, tones)
    cell = stage.unit * 9
    columns, rows = int(stage.width / cell) + 3, int(stage.height / cell) + 3
    grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).astype(np.float32)
    grid = (grid - 1 + rng.uniform(-0.34, 0.34, grid.shape).astype(np.float32)) * np.float32(cell)
    lift = rng.random((rows, columns), dtype=np.float32)
    stops = [(0.0, tones[1]), (0.3, tones[4]), (0.55, tones[2]), (0.8, tones[3]), (1.0, tones[0])]
    canvas = np.zeros_like(stage.image)
    for row in range(rows - 1):
        for column in range(columns - 1):
            quad = [(row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column)]
            for three in ((0, 1, 2), (0, 2, 3)):
                points = np.array([grid[quad[k]] for k in three])
                at = points.mean(0) / np.array([stage.width, stage.height])
                height = float(np.mean([lift[quad[k]] for k in three]))
                value = np.clip(0.15 + 0.7 * (at[0] * 0.55 + at[1] * 0.6) + (height - 0.5) * 0.55, 0, 1)
                tone = ramp(stops, np.array([value], np.float32))[0]
                cv2.fillPoly(
                    canvas,
                    [np.round(points * 16).astype(np.int32)],
                    tuple(float(c) for c in tone),
                    cv2.LINE_AA,
                    4,
                )
    stage.image[:] = canvas


STUDIES: tuple[Callable[[SceneStage], None], ...] = (ribbons, geometry, marble, stones, facets)


def paint(stage: SceneStage) -> None:
    """Paint the study that the prompt's words or the seed select."""
    names = {
        "geometric": 1,
        "bauhaus": 1,
        "pattern": 1,
        "marble": 2,
        "ink": 2,
        "fluid": 2,
        "wave": 0,
        "ribbon": 0,
        "flow": 0,
        "crystal": 4,
        "low poly": 4,
    }
    text = stage.scene.prompt.casefold()
    study = next((index for word, index in names.items() if word in text), None)
    if study is None:
        study = int(stage.rng("study").integers(len(STUDIES)))
    STUDIES[study](stage)
    stage.step("study")
