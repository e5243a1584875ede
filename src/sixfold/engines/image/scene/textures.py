"""Walls that fill the image: bricks, stones, boards and tiles, laid in courses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.canvas import Color, distance, luma, mix, over, rgb
from sixfold.engines.image.scene.stage import SceneStage


@dataclass(frozen=True, slots=True)
class TextureLayout:
    """How one kind is laid: a course's height in units, a piece's length and its joint in heights.

    `shift` is how far a course begins after the one below, in pieces; `spread` how much their tones differ;
    `wander` how far their edges leave the straight, in heights; `grain` how much finer lines run along them.
    """

    tone: str
    mortar: str
    high: float
    long: float
    joint: float
    shift: float = 0.5
    spread: float = 0.22
    wander: float = 0.0
    grain: float = 0.0


LAYINGS = {
    "brick": TextureLayout("#a4523c", "#c9bdb0", 5.2, 2.4, 0.055),
    "stone": TextureLayout("#958f86", "#5f5a54", 10.0, 1.7, 0.05, spread=0.30, wander=0.16),
    "planks": TextureLayout("#a9744a", "#4a301e", 12.0, 7.0, 0.012, shift=0.37, spread=0.20, grain=0.16),
    "tiles": TextureLayout("#dfe8e6", "#9fb0b2", 9.0, 1.0, 0.022, shift=0.0, spread=0.06),
}
NIGHT = TextureLayout("#4a2e33", "#17131a", 5.2, 2.4, 0.055)  # bricks behind letters of light


def lay(stage: SceneStage, laying: TextureLayout, tone: Color | None = None) -> None:
    """A wall of one kind over the whole image, in its own tone or the one that is given."""
    height, width = stage.shape
    rng = stage.rng("wall")
    high = np.float32(stage.unit * laying.high)
    y = np.broadcast_to(np.arange(height, dtype=np.float32)[:, None] / high, stage.shape)
    x = np.broadcast_to(np.arange(width, dtype=np.float32)[None, :] / high, stage.shape)
    if laying.wander:
        cells = (height / float(high) * 0.9, width / float(high) * 0.9)
        y = y + noise.fbm(rng, stage.shape, cells, 2) * np.float32(laying.wander)
        x = x + noise.fbm(rng, stage.shape, cells, 2) * np.float32(laying.wander)
    row = np.floor(y)
    x = x / np.float32(laying.long) + row * np.float32(laying.shift)
    column = np.floor(x)
    across, down = x - column, y - row
    gap = np.minimum(np.minimum(across, 1 - across) * np.float32(laying.long), np.minimum(down, 1 - down))
    piece = noise.smoothstep(laying.joint * 0.6, laying.joint * 1.4, gap)
    chance = np.sin(column * np.float32(12.9) + row * np.float32(78.2)) * np.float32(43.7)
    shade = 0.86 + laying.spread * (chance - np.floor(chance) - 0.3)
    shade = shade + 0.08 * noise.fbm(rng, stage.shape, (height / 6, width / 6), 3, 0.6)
    if laying.grain:
        lines = noise.fbm(rng, stage.shape, (height / float(high) * 9, width / float(high) * 0.8), 3, 0.6)
        shade = shade + np.float32(laying.grain) * lines
    edge = 1 + 0.10 * (np.exp(-down * 14) - np.exp(-(1 - down) * 14))
    own = rgb(laying.tone) if tone is None else tone
    stage.image[:] = rgb(laying.mortar)
    over(stage.image, np.clip(own * (shade * edge)[..., None].astype(np.float32), 0, 1), piece)


def paint(stage: SceneStage, kind: str, tone: Color | None) -> None:
    """A wall of a kind in the light of one lamp; with a floor where something stands before it."""
    laying = LAYINGS[kind]
    lay(stage, laying, None if tone is None else mix(tone, rgb(laying.tone), 0.25))
    pool = distance(stage.shape, (stage.width * 0.5, stage.height * 0.40), 1.15) / np.float32(
        max(stage.shape)
    )
    stage.image *= (np.float32(1.10) - np.float32(0.42) * np.clip(pool * 1.25, 0, 1) ** 1.4)[..., None]
    np.clip(stage.image, 0, 1, out=stage.image)
    if stage.scene.subjects:
        _floor(stage)


def _floor(stage: SceneStage) -> None:
    """A plain floor with the wall's shade on it."""
    y = np.linspace(0, 1, stage.height, dtype=np.float32)[:, None] * np.ones((1, stage.width), np.float32)
    wall = stage.image[: stage.height // 2].reshape(-1, 3).mean(0)
    tone = mix(wall.astype(np.float32), rgb("#8d8983" if luma(wall) > 0.3 else "#55514d"), 0.7)
    shade = 0.74 + 0.36 * noise.smoothstep(0.70, 0.92, y)
    stage.lay(np.clip(tone * shade[..., None], 0, 1), noise.smoothstep(0.698, 0.704, y), 0.3)
