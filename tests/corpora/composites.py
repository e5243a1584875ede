"""Images with an exactly known subject: a subject with an alpha channel, composited over a background.

Each is generated from its seed alone. Strata: `plain` (one color, a gradient, a vignette, a little noise),
`textured` (cloth, planks, gravel, leaves, bokeh, a painted scene), `shadow` (plain, with the shadow that
the subject casts) and `cluttered` (two surfaces that meet, with objects on them). Subjects are the drawn
objects of the scene painter's library, lit and with grain, and random bodies with fringes of hair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene import shapes

Array = NDArray[Any]
Stratum = Literal["plain", "textured", "shadow", "cluttered"]
STRATA: tuple[Stratum, ...] = ("plain", "textured", "shadow", "cluttered")
# Added later: including them would change the image of every seed.
_LATER = frozenset({
    "apple", "backpack", "ball", "basket", "bathtub", "bee", "birthday", "blackboard", "bookshelf",
    "box", "bread", "bus", "candle", "cart", "chocolates", "coins", "cookies", "crab", "crocodile",
    "eggs", "ferris", "fir", "fireplace", "firetruck", "gear", "gift", "giraffe", "headphones",
    "hedgehog", "helicopter", "leaf", "microphone", "monkey", "octopus", "pancakes", "piano", "pig",
    "ramen", "ring", "salad", "sheep", "shield", "skateboard", "snake", "soap", "solids", "squirrel",
    "stairs", "stall", "stove", "strawberry", "submarine", "sunglasses", "sushi", "taco", "tractor",
    "trophy", "truck", "tumbler", "wallet", "washer",
})  # fmt: skip
_WORN_LATER = frozenset({"cap", "band", "toque", "helmet", "helmet2", "apron", "tool", "patch"})
_THIN = frozenset({"bird", "spider", "umbrella", "bicycle", "windmill", "antenna"})


@dataclass(frozen=True, slots=True)
class Composite:
    """`rgb` is HxWx3 uint8, `alpha` HxW and `subject` HxWx3 float32 from 0 to 1, the exact foreground."""

    rgb: NDArray[np.uint8]
    alpha: Array
    subject: Array
    stratum: Stratum
    name: str


def composite(
    seed: int, stratum: Stratum, size: tuple[int, int] = (384, 448), *, share: float = 0.0, at: float = -1.0
) -> Composite:
    """Generate one image of `size` (height, width).

    `share` is the subject's height as a fraction of the image's, `at` its horizontal center from 0 to 1;
    both are random by default.
    """
    rng = np.random.default_rng([seed, STRATA.index(stratum)])
    height, _ = size
    back = _ground(rng, size, stratum)
    tall = height * (share or rng.uniform(0.45, 0.8))
    middle = at if at >= 0 else rng.uniform(0.35, 0.65)
    name, alpha, paint = _body(rng, size, tall, middle, back)
    if stratum == "shadow":
        back = back * _shadow(rng, alpha)[..., None]
    mixed = paint * alpha[..., None] + back * (1 - alpha[..., None])
    mixed += rng.normal(0, rng.uniform(0.002, 0.008), mixed.shape)
    rgb = np.clip(np.rint(mixed * 255), 0, 255).astype(np.uint8)
    return Composite(rgb, alpha.astype(np.float32), paint.astype(np.float32), stratum, name)


def layers(seed: int, stratum: Stratum, size: tuple[int, int], *, share: float) -> tuple[Array, Array, Array]:
    """Return a background, and the alpha and color of a centered subject `share` of the height tall."""
    rng = np.random.default_rng([seed, STRATA.index(stratum)])
    ground = _ground(rng, size, stratum)
    _, alpha, paint = _body(rng, size, size[0] * share, 0.5, ground)
    rows = np.flatnonzero(alpha.max(1) > 0)
    # Center the subject on the camera's axis.
    middle = size[0] / 2 - (rows[0] + rows[-1]) / 2
    move = np.array([[1, 0, 0], [0, 1, middle]])
    raised = [cv2.warpAffine(each.astype(np.float32), move, size[::-1]) for each in (alpha, paint)]
    return ground.astype(np.float32), raised[0], raised[1]


# -- backgrounds -------------------------------------------------------------------------------------


def _color(rng: np.random.Generator, low: float = 0.1, high: float = 0.95) -> Array:
    hue, gray = rng.uniform(0, 1, 3), rng.uniform(low, high)
    return np.clip(gray + (hue - hue.mean()) * rng.uniform(0, 0.9), 0.03, 0.97)


def _noise(rng: np.random.Generator, size: tuple[int, int], grain: float) -> Array:
    small = rng.normal(0, 1, (max(2, int(size[0] / grain)), max(2, int(size[1] / grain))))
    large = cv2.resize(small, (size[1], size[0]), interpolation=cv2.INTER_CUBIC)
    return large / max(1e-6, float(large.std()))


def _ground(rng: np.random.Generator, size: tuple[int, int], stratum: Stratum) -> Array:
    if stratum == "textured":
        return _make_texture(rng, size)
    if stratum == "cluttered":
        return _make_clutter(rng, size)
    rows, columns = np.mgrid[0 : 1 : size[0] * 1j, 0 : 1 : size[1] * 1j]
    base = _color(rng, 0.45 if stratum == "shadow" else 0.1)
    turn = rng.uniform(0, 2 * np.pi)
    ramp = (np.cos(turn) * (columns - 0.5) + np.sin(turn) * (rows - 0.5)) * rng.uniform(0, 0.35)
    corner = ((columns - 0.5) ** 2 + (rows - 0.5) ** 2) * rng.uniform(0, 0.4)
    return np.clip(base + (ramp - corner)[..., None], 0.01, 0.99)


def _make_texture(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    base, other = _color(rng, 0.2, 0.8), _color(rng, 0.2, 0.8)
    other = base + (other - base) * rng.uniform(0.2, 0.6)
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]].astype(np.float64)
    kind = int(rng.integers(5))
    if kind == 0:  # cloth
        period = rng.uniform(5, 12)
        pattern = np.sin(rows * 2 * np.pi / period) * np.sin(columns * 2 * np.pi / period)
        pattern += 0.4 * _noise(rng, size, 2)
    elif kind == 1:  # planks
        plank = (columns / rng.uniform(40, 90)).astype(int)
        tint = rng.normal(0, 0.6, plank.max() + 1)
        pattern = tint[plank] + 0.5 * np.sin(_noise(rng, size, 60) * 6 + columns * 0.6)
    elif kind == 2:  # gravel
        pattern = _noise(rng, size, 5) + 0.5 * _noise(rng, size, 2)
    elif kind == 3:  # leaves
        pattern = np.sign(_noise(rng, size, 14)) * 0.7 + 0.5 * _noise(rng, size, 4)
    else:  # lights out of focus
        pattern = np.zeros(size)
        for _ in range(40):
            at = (int(rng.integers(size[1])), int(rng.integers(size[0])))
            cv2.circle(pattern, at, int(rng.integers(8, 30)), float(rng.uniform(0.3, 1.6)), -1)
        pattern = cv2.GaussianBlur(pattern, (0, 0), 2.5)
    share = np.clip(0.5 + 0.25 * pattern, 0, 1)[..., None]
    return np.clip(base + (other - base) * share, 0.01, 0.99)


def _make_clutter(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    back = np.where(np.arange(size[0])[:, None, None] < rng.uniform(0.4, 0.7) * size[0], 1.0, 0.0)
    back = back * _make_texture(rng, size) + (1 - back) * _make_texture(rng, size)
    for _ in range(int(rng.integers(3, 9))):
        at = (int(rng.integers(size[1])), int(rng.integers(size[0])))
        axes = (int(rng.integers(8, 60)), int(rng.integers(8, 60)))
        color = tuple(float(c) for c in _color(rng))
        cv2.ellipse(back, at, axes, float(rng.uniform(0, 180)), 0, 360, color, -1, cv2.LINE_AA)
    return cv2.GaussianBlur(back, (0, 0), float(rng.uniform(0.5, 3)))


def _shadow(rng: np.random.Generator, alpha: Array) -> Array:
    height, width = alpha.shape
    slide, soft = rng.uniform(-0.12, 0.12) * width, rng.uniform(0.012, 0.04) * height
    low = rng.uniform(0.02, 0.06) * height
    move = np.array([[1, 0, slide], [0, 1, low]])
    thrown = cv2.GaussianBlur(cv2.warpAffine(alpha, move, (width, height)), (0, 0), soft)
    foot = np.flatnonzero(alpha.max(1) > 0.5)[-1]
    columns = np.flatnonzero(alpha[max(0, foot - height // 12) : foot + 1].max(0) > 0.5)
    contact = np.zeros_like(alpha)
    center = (int(columns.mean()), int(min(height - 1, foot)))
    axes = (max(4, int(len(columns) * 0.7)), max(3, int(height * 0.02)))
    cv2.ellipse(contact, center, axes, 0, 0, 360, 1.0, -1)
    contact = cv2.GaussianBlur(contact, (0, 0), soft)
    return 1 - np.clip(rng.uniform(0.15, 0.4) * thrown + 0.3 * contact, 0, 0.6)


# -- subjects ----------------------------------------------------------------------------------------


def _body(
    rng: np.random.Generator, size: tuple[int, int], tall: float, middle: float, back: Array
) -> tuple[str, Array, Array]:
    local, color = back.mean((0, 1)), _color(rng)
    # A subject in the color of its background cannot be found.
    for _ in range(40):
        if np.linalg.norm(color - local) > 0.3:
            break
        color = _color(rng)
    if rng.uniform() < 0.3:
        return _furry(rng, size, tall, middle, color)
    names = sorted(name for name in shapes.library() if name not in _THIN | _LATER)
    name = names[int(rng.integers(len(names)))]
    return name, *_draw(rng, size, (name, tall, middle), color)


def _new(name: str, part: shapes.ShapePart) -> bool:
    """Return whether a part of a shape was added after the corpus."""
    return part.optional and (part.role in _WORN_LATER or name == "person")


def _draw(
    rng: np.random.Generator, size: tuple[int, int], style: tuple[str, float, float], color: Array
) -> tuple[Array, Array]:
    name, tall, middle = style
    over = 4
    scale = tall / 100 * over
    parts = [part for part in shapes.library()[name].parts if part.role != "glow" and not _new(name, part)]
    points = np.concatenate([part.outline for part in parts if not part.cut])
    low, high = points.min(0), points.max(0)
    scale = min(scale * 100 / max(1.0, float(high[1] - low[1])), 0.85 * size[1] * over / (high[0] - low[0]))
    offset = np.array([middle * size[1] * over - (low[0] + high[0]) / 2 * scale, 0.0])
    offset[1] = size[0] * over * 0.9 - high[1] * scale
    cover = np.zeros((size[0] * over, size[1] * over), np.float32)
    paint = np.zeros((*cover.shape, 3), np.float32) + color.astype(np.float32)
    tones: dict[str, Array] = {}
    for part in parts:
        outline = [np.round(part.outline * scale + offset).astype(np.int32)]
        cv2.fillPoly(cover, outline, 0.0 if part.cut else 1.0)
        if not part.cut:
            shift = rng.normal(0, 0.12, 3)
            tone = tones.setdefault(part.role, np.clip(color + shift, 0.02, 0.98) if tones else color)
            cv2.fillPoly(paint, outline, tuple(float(c) for c in tone))
    alpha = cv2.resize(cover, size[::-1], interpolation=cv2.INTER_AREA)
    soft = cv2.GaussianBlur(alpha, (0, 0), rng.uniform(0.3, 0.8))
    shaded = cv2.resize(paint, size[::-1], interpolation=cv2.INTER_AREA)
    return soft, _lit(rng, shaded.astype(np.float64))


def _furry(
    rng: np.random.Generator, size: tuple[int, int], tall: float, middle: float, color: Array
) -> tuple[str, Array, Array]:
    over = 3
    angle = np.linspace(0, 2 * np.pi, 180, endpoint=False)
    radius = np.ones_like(angle)
    for wave in range(2, 6):
        radius += rng.normal(0, 0.16 / wave**0.5) * np.cos(wave * angle + rng.uniform(0, 6.28))
    radius = np.clip(radius, 0.5, 1.5)
    half = np.array([tall * rng.uniform(0.35, 0.55), tall * 0.45]) * over
    center = np.array([middle * size[1], size[0] * 0.52]) * over
    outline = center + np.stack([np.cos(angle), np.sin(angle)], 1) * radius[:, None] * half
    cover = np.zeros((size[0] * over, size[1] * over), np.float32)
    cv2.fillPoly(cover, [np.round(outline).astype(np.int32)], 1.0)
    for _ in range(700):
        at = int(rng.integers(len(outline)))
        away = outline[at] - center
        away = away / np.linalg.norm(away) + rng.normal(0, 0.35, 2)
        tip = outline[at] + away * rng.uniform(0.02, 0.09) * tall * over
        ends = [tuple(int(v) for v in np.round(point)) for point in (outline[at], tip)]
        cv2.line(cover, ends[0], ends[1], 1.0, int(rng.integers(1, 3)), cv2.LINE_AA)
    alpha = np.clip(cv2.resize(cover, size[::-1], interpolation=cv2.INTER_AREA), 0, 1)
    fur = 1 + 0.12 * _noise(rng, size, 3) + 0.08 * _noise(rng, size, 12)
    return "fur", alpha, _lit(rng, np.clip(color * fur[..., None], 0.01, 0.99))


def _lit(rng: np.random.Generator, paint: Array) -> Array:
    height, width = paint.shape[:2]
    rows, columns = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    turn = rng.uniform(0, 2 * np.pi)
    light = 1 + rng.uniform(0.05, 0.25) * (np.cos(turn) * columns + np.sin(turn) * rows)
    grain = 1 + rng.uniform(0, 0.06) * _noise(rng, (height, width), 2)
    return np.clip(paint * (light * grain)[..., None], 0, 1)
