"""A library of vector drawings, stored by group in TOML files in a small path language.

A part is `role command numbers…`, in a box 100 wide and 100 high, with y downwards and the ground at 100:

    S x,y x,y …        closed smooth curve through the points; `x,y!` makes a corner
    P x,y x,y …        closed polygon
    E cx,cy rx,ry deg  ellipse, rotated by deg (optional)
    K x,y,r x,y,r …    a limb: a smooth stroke through the points with half width r at each

A `-` before the command cuts the part out of the silhouette. The role names a tone of the entry or a special
one: `glow` emits light, `glass` mirrors the sky. A part with `?` before its role is drawn only if the prompt
names the role.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Points = NDArray[Any]

# Objects that stand on tables or at the back of a room, or hang on a wall.
INDOORS = frozenset({"table", "back", "wall"})


class ShapePart(msgspec.Struct, frozen=True):
    """One outline with its role; `cut` removes it from the parts below.

    An `optional` part is drawn only if the prompt names its role.
    """

    role: str
    path: str
    cut: bool = False
    optional: bool = False

    @property
    def outline(self) -> Points:
        """Corners (n, 2), computed once and shared; callers must not modify them."""
        return _outline(self.path)


class SceneShape(msgspec.Struct, frozen=True):
    """A drawing; `size` is its height relative to the image's, `home` lists the places where it belongs.

    `colored` are the roles that a color of the prompt changes; the default is `body`, `coat`, `fur` or the
    role of the first part, with its shades. A shape that swims stands on the ground of other places if
    it comes `ashore`.
    """

    name: str
    words: tuple[str, ...]
    home: tuple[str, ...]
    stand: str
    size: float
    tones: dict[str, str]
    parts: tuple[ShapePart, ...]
    time: str | None = None
    face: bool = True
    rank: int = 2
    colored: tuple[str, ...] = ()
    ashore: bool = False


def _pair(text: str) -> tuple[list[float], bool]:
    corner = text.endswith("!")
    return [float(value) for value in text.rstrip("!").split(",")], corner


def _tangents(points: Points, corners: list[bool], closed: bool) -> Points:
    if closed:
        after, before = np.roll(points, -1, 0), np.roll(points, 1, 0)
    else:
        after = np.concatenate([points[1:], points[-1:]])
        before = np.concatenate([points[:1], points[:-1]])
    tangents = (after - before) * np.float32(0.5)
    tangents[np.array(corners)] = 0
    return tangents


def _smooth(points: Points, corners: list[bool], closed: bool, steps: int = 8) -> Points:
    """Return a cardinal spline through `points`, straight at corners."""
    tangents = _tangents(points, corners, closed)
    ends = np.roll(points, -1, 0) if closed else points[1:]
    out = np.roll(tangents, -1, 0) if closed else tangents[1:]
    count = len(points) if closed else len(points) - 1
    t = np.linspace(0, 1, steps, endpoint=False, dtype=np.float32)[None, :, None]
    p0, p1, m0, m1 = points[:count, None], ends[:count, None], tangents[:count, None], out[:count, None]
    t2, t3 = t * t, t * t * t
    curve = (2 * t3 - 3 * t2 + 1) * p0 + (t3 - 2 * t2 + t) * m0 + (3 * t2 - 2 * t3) * p1 + (t3 - t2) * m1
    flat = curve.reshape(-1, points.shape[1])
    return flat if closed else np.concatenate([flat, points[-1:]])


def _ellipse(numbers: list[list[float]]) -> Points:
    (cx, cy), (rx, ry) = numbers[0], numbers[1]
    turn = np.deg2rad(numbers[2][0]) if len(numbers) > 2 else 0.0
    angle = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    x, y = np.cos(angle) * rx, np.sin(angle) * ry
    return np.stack(
        [cx + x * np.cos(turn) - y * np.sin(turn), cy + x * np.sin(turn) + y * np.cos(turn)], 1
    ).astype(np.float32)


def _limb(numbers: list[list[float]]) -> Points:
    """Return the outline of a stroke with varying half width and round ends."""
    line = _smooth(np.array(numbers, np.float32), [False] * len(numbers), closed=False)
    xy, radius = line[:, :2], np.maximum(line[:, 2:], 0.05)
    run = np.gradient(xy, axis=0)
    length = np.maximum(np.linalg.norm(run, axis=1, keepdims=True), 1e-4)
    normal = np.stack([-run[:, 1], run[:, 0]], 1) / length
    left, right = xy + normal * radius, xy - normal * radius
    fan = np.linspace(0, np.pi, 9)[1:-1]
    head, tail = run[-1] / length[-1], run[0] / length[0]
    cap = [xy[-1] + radius[-1] * (normal[-1] * np.cos(a) + head * np.sin(a)) for a in fan]
    foot = [xy[0] - radius[0] * (normal[0] * np.cos(a) + tail * np.sin(a)) for a in fan]
    return np.concatenate([left, np.array(cap), right[::-1], np.array(foot)]).astype(np.float32)


@cache
def _outline(path: str) -> Points:
    command, *words = path.split()
    pairs = [_pair(word) for word in words]
    numbers, corners = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if command == "E":
        return _ellipse(numbers)
    if command == "K":
        return _limb(numbers)
    if command == "P":
        return np.array(numbers, np.float32)
    return _smooth(np.array(numbers, np.float32), corners, closed=True)


def _part(text: str) -> ShapePart:
    role, path = text.split(maxsplit=1)
    return ShapePart(role.lstrip("?"), path.lstrip("-"), path.startswith("-"), role.startswith("?"))


def _shape(name: str, entry: dict[str, Any]) -> SceneShape:
    return SceneShape(
        name=name,
        words=tuple(entry["words"]),
        home=tuple(entry["home"]),
        stand=entry.get("stand", "ground"),
        size=entry["size"],
        tones=entry.get("tones", {}),
        parts=tuple(_part(text) for text in entry["parts"]),
        time=entry.get("time"),
        face=entry.get("face", True),
        rank=entry.get("rank", 2),
        colored=tuple(entry.get("colored", ())),
        ashore=entry.get("ashore", False),
    )


@cache
def library() -> dict[str, SceneShape]:
    """Return every drawing by name, in a fixed order."""
    drawings: dict[str, SceneShape] = {}
    files = [
        f for f in resources.files("sixfold.engines.image.scene.shapes").iterdir() if f.name.endswith(".toml")
    ]
    for file in sorted(files, key=lambda f: f.name):
        for name, entry in tomllib.loads(file.read_text("utf-8")).items():
            drawings[name] = _shape(name, entry)
    return drawings
