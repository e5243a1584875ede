"""Studios: a paper backdrop, the tile of an icon, textured walls, and lettering."""

from __future__ import annotations

import cv2
import msgspec
import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.canvas import Color, Image, blur, distance, glow, luma, mix, over, rgb
from sixfold.engines.image.scene.stage import SceneStage

# Paper colors by name.
PAPERS = {
    "white": "#ffffff", "black": "#17181b", "grey": "#a9adb2", "red": "#b8332f", "orange": "#e5894a",
    "yellow": "#f0cc58", "gold": "#d8b063", "green": "#6fa776", "teal": "#4fa3a4", "blue": "#5b8fcf",
    "purple": "#8867b5", "pink": "#f0b3c4", "brown": "#8a6648", "pastel": "#f3dcd6", "neon": "#241038",
}  # fmt: skip
_OWN = ("#c9c0b4", "#b4bfc4", "#c7b7ae", "#b9c2b2", "#bdb9c6", "#d2c6b0")
_TILES = ("#3f6fd8", "#f2a93b", "#35a37c", "#8a5bd0", "#ef6f5e", "#2b9cc4", "#f4c95d", "#2f3550")
# Looks that would render a soft gradient in steps.
_FLAT = ("anime", "anime-image", "create_image_klein")
_DARK = ("dark background", "dark backdrop", "low key", "moody", "dramatic lighting", "noir")


def backdrop(stage: SceneStage) -> Color:
    """Return the requested background color, or a neutral color."""
    backdrop_name = stage.scene.backdrop
    if backdrop_name in PAPERS:
        return rgb(PAPERS[backdrop_name])
    text = stage.scene.prompt.casefold()
    if stage.time == "night" or any(word in text for word in _DARK):
        return rgb("#2b2d33")
    if "isolated" in text or stage.scene.frame == "icon":
        return rgb("#ffffff")
    return rgb(_OWN[int(stage.rng("paper").integers(len(_OWN)))])


def paint(stage: SceneStage) -> None:
    """Paint the studio: an icon tile, a wall, or a curved paper backdrop."""
    paper = backdrop(stage)
    stage.depth[:] = 0.35
    stage.ground = 0.80
    if stage.scene.frame == "icon":
        _tile(stage, paper)
    elif stage.scene.surface is not None:
        paint_wall(stage, stage.scene.surface, paper if stage.scene.backdrop else None)
    elif stage.scene.letters and _neon(stage):
        lay_wall(stage, NIGHT_BRICKS)
        stage.image *= np.float32(0.75)
    else:
        _sweep(stage, paper)
    stage.step("studio")


def _sweep(stage: SceneStage, paper: Color) -> None:
    height, width = stage.shape
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    pool = distance(stage.shape, (width * 0.5, height * 0.42), 1.15) / np.float32(max(stage.shape))
    bright = luma(paper) > 0.9
    fall = np.float32(0.04 if bright else 0.10 if stage.look in _FLAT else 0.42)
    shade = 1.0 + (0.0 if bright else 0.10) - fall * np.clip(pool * 1.25, 0, 1) ** 1.4
    fold = np.exp(-(((y - 0.70) / 0.09) ** 2)) * np.float32(0.02 if bright else 0.05)
    floor = noise.smoothstep(0.66, 0.86, y) * np.float32(0.0 if bright else 0.07)
    stage.image[:] = np.clip(paper * (shade - fold + floor)[..., None], 0, 1)


def _tile(stage: SceneStage, paper: Color) -> None:
    """Paint a rounded square in one color as the background of an icon."""
    stage.image[:] = paper
    tones = stage.scene.colors
    names = [rgb(PAPERS[c]) for c in tones if c in PAPERS]
    tone = names[0] if names else rgb(_TILES[int(stage.rng("tile").integers(len(_TILES)))])
    mask = tile_mask(stage)
    y = np.linspace(1.10, 0.88, stage.height, dtype=np.float32)[:, None]
    over(
        stage.image, rgb("#30343c"), blur(np.roll(mask, round(stage.unit * 1.2), 0), stage.unit * 1.6) * 0.22
    )
    over(stage.image, np.clip(tone * np.broadcast_to(y, stage.shape)[..., None], 0, 1), mask)
    stage.ground = 0.74


def tile_mask(stage: SceneStage) -> Image:
    half, middle = stage.unit * 41, (stage.width / 2, stage.height / 2)
    x = np.abs(np.arange(stage.width, dtype=np.float32) - np.float32(middle[0]))[None, :]
    y = np.abs(np.arange(stage.height, dtype=np.float32) - np.float32(middle[1]))[:, None]
    corner = stage.unit * 17
    away = np.hypot(np.maximum(x - half + corner, 0), np.maximum(y - half + corner, 0)) - np.float32(corner)
    return np.clip(0.5 - away, 0, 1).astype(np.float32)


def _neon(stage: SceneStage) -> bool:
    return "neon" in stage.scene.colors or "neon" in stage.scene.prompt.casefold()


# -- lettering -------------------------------------------------------------------------------------


def _letter_mask(stage: SceneStage, box: tuple[float, float, float, float], weight: float) -> Image:
    """Return the letters as a mask, scaled to fit `box` (left, top, right, bottom in pixels)."""
    text = stage.scene.letters
    left, top, right, bottom = box
    face = cv2.FONT_HERSHEY_DUPLEX
    (wide, high), _ = cv2.getTextSize(text, face, 1.0, 1)
    scale = min((right - left) / max(wide, 1), (bottom - top) / max(high, 1))
    thick = max(1, round(scale * weight))
    at = ((left + right) / 2 - wide * scale / 2, (top + bottom) / 2 + high * scale / 2)
    mask = np.zeros(stage.shape, np.uint8)
    cv2.putText(mask, text, (round(at[0]), round(at[1])), face, scale, 255, thick, cv2.LINE_AA)
    return mask.astype(np.float32) / 255


def letter(stage: SceneStage, box: tuple[float, float, float, float], ground: Color) -> None:
    """Paint letters that contrast with the color of the background."""
    ink = rgb("#2a1c14") if luma(ground) > 0.42 else rgb("#f6efdf")
    mask = _letter_mask(stage, box, 3.4)
    move = max(1, round(stage.unit * 0.18))
    over(stage.image, mix(ground, rgb("#fff4dc"), 0.5), np.roll(mask, (move, move), (0, 1)) * np.float32(0.4))
    over(stage.image, ink, mask * np.float32(0.94))


def neon(stage: SceneStage) -> None:
    """Paint neon letters and their light on the wall."""
    named = [c for c in stage.scene.colors if c in PAPERS and c not in ("neon", "black", "white")]
    tone = rgb({"blue": "#38a8ff", "green": "#40ff8a", "red": "#ff4048", "yellow": "#ffd84a"}.get(
        named[0] if named else "", ("#ff3d9a", "#24e0ff", "#ff8a3d")[int(stage.rng("neon").integers(3))]
    ))  # fmt: skip
    box = (stage.width * 0.12, stage.height * 0.34, stage.width * 0.88, stage.height * 0.62)
    tube, core = _letter_mask(stage, box, 3.0), _letter_mask(stage, box, 1.1)
    for spread, strength in ((stage.unit * 9, 2.2), (stage.unit * 2.6, 1.2), (stage.unit * 0.9, 0.9)):
        glow(stage.image, tone, np.clip(blur(tube, spread) * np.float32(strength), 0, 0.8))
    over(stage.image, tone, tube)
    over(stage.image, mix(tone, rgb("#ffffff"), 0.85), core)


def write(stage: SceneStage) -> None:
    """Write the prompt's lettering in a studio: below the subject, or alone and large."""
    if not stage.scene.letters:
        return
    if stage.scene.frame != "icon" and _neon(stage):
        neon(stage)
        return
    wide, high = stage.width, stage.height
    alone = not stage.scene.subjects
    if stage.scene.frame == "icon":
        half = stage.unit * 33
        rows = (0.42, 0.58) if alone else (0.775, 0.865)
        box = (wide / 2 - half, high * rows[0], wide / 2 + half, high * rows[1])
    else:
        box = (wide * 0.16, high * (0.36 if alone else 0.87), wide * 0.84, high * (0.62 if alone else 0.95))
    middle = stage.image[int((box[1] + box[3]) / 2), int(wide * 0.5)]
    letter(stage, box, middle.astype(np.float32))


class TextureLayout(msgspec.Struct, frozen=True):
    """The layout of a wall: a course's height in units, a piece's length and joint in heights.

    `shift` is the offset of a course from the one below, in pieces; `spread` is the variation of tones;
    `wander` is the irregularity of the edges, in heights; `grain` is the strength of fine lines along the
    pieces.
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


WALLS = {
    "brick": TextureLayout("#a4523c", "#c9bdb0", 5.2, 2.4, 0.055),
    "stone": TextureLayout("#958f86", "#5f5a54", 10.0, 1.7, 0.05, spread=0.30, wander=0.16),
    "planks": TextureLayout("#a9744a", "#4a301e", 12.0, 7.0, 0.012, shift=0.37, spread=0.20, grain=0.16),
    "tiles": TextureLayout("#dfe8e6", "#9fb0b2", 9.0, 1.0, 0.022, shift=0.0, spread=0.06),
}
# Bricks behind neon letters.
NIGHT_BRICKS = TextureLayout("#4a2e33", "#17131a", 5.2, 2.4, 0.055)


def lay_wall(stage: SceneStage, wall: TextureLayout, tone: Color | None = None) -> None:
    """Paint a wall over the whole image, in `tone` or in its usual tone."""
    height, width = stage.shape
    rng = stage.rng("wall")
    high = np.float32(stage.unit * wall.high)
    y = np.broadcast_to(np.arange(height, dtype=np.float32)[:, None] / high, stage.shape)
    x = np.broadcast_to(np.arange(width, dtype=np.float32)[None, :] / high, stage.shape)
    if wall.wander:
        cells = (height / float(high) * 0.9, width / float(high) * 0.9)
        y = y + noise.fbm(rng, stage.shape, cells, 2) * np.float32(wall.wander)
        x = x + noise.fbm(rng, stage.shape, cells, 2) * np.float32(wall.wander)
    row = np.floor(y)
    x = x / np.float32(wall.long) + row * np.float32(wall.shift)
    column = np.floor(x)
    across, down = x - column, y - row
    gap = np.minimum(np.minimum(across, 1 - across) * np.float32(wall.long), np.minimum(down, 1 - down))
    piece = noise.smoothstep(wall.joint * 0.6, wall.joint * 1.4, gap)
    chance = np.sin(column * np.float32(12.9) + row * np.float32(78.2)) * np.float32(43.7)
    shade = 0.86 + wall.spread * (chance - np.floor(chance) - 0.3)
    shade = shade + 0.08 * noise.fbm(rng, stage.shape, (height / 6, width / 6), 3, 0.6)
    if wall.grain:
        lines = noise.fbm(rng, stage.shape, (height / float(high) * 9, width / float(high) * 0.8), 3, 0.6)
        shade = shade + np.float32(wall.grain) * lines
    edge = 1 + 0.10 * (np.exp(-down * 14) - np.exp(-(1 - down) * 14))
    wall_tone = rgb(wall.tone) if tone is None else tone
    stage.image[:] = rgb(wall.mortar)
    over(stage.image, np.clip(wall_tone * (shade * edge)[..., None].astype(np.float32), 0, 1), piece)


def paint_wall(stage: SceneStage, kind: str, tone: Color | None) -> None:
    """Paint a wall lit by one lamp, with a floor if the scene contains an object in front."""
    wall = WALLS[kind]
    lay_wall(stage, wall, None if tone is None else mix(tone, rgb(wall.tone), 0.25))
    pool = distance(stage.shape, (stage.width * 0.5, stage.height * 0.40), 1.15) / np.float32(
        max(stage.shape)
    )
    stage.image *= (np.float32(1.10) - np.float32(0.42) * np.clip(pool * 1.25, 0, 1) ** 1.4)[..., None]
    np.clip(stage.image, 0, 1, out=stage.image)
    if stage.scene.subjects:
        _wall_floor(stage)


def _wall_floor(stage: SceneStage) -> None:
    """Paint a plain floor in a shade of the wall."""
    y = np.linspace(0, 1, stage.height, dtype=np.float32)[:, None] * np.ones((1, stage.width), np.float32)
    wall = stage.image[: stage.height // 2].reshape(-1, 3).mean(0)
    tone = mix(wall.astype(np.float32), rgb("#8d8983" if luma(wall) > 0.3 else "#55514d"), 0.7)
    shade = 0.74 + 0.36 * noise.smoothstep(0.70, 0.92, y)
    stage.add_layer(np.clip(tone * shade[..., None], 0, 1), noise.smoothstep(0.698, 0.704, y), 0.3)
