"""A prompt as a thing built of bodies: what it names, in its colours; a turned study of what it does not."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.engines.three_d import primitives
from sixfold.engines.three_d.glb import Material, MeshPart
from sixfold.engines.three_d.primitives import PrimitiveBody

Array = NDArray[Any]

_MOST_THINGS = 4
_APART = 0.25  # of the wider neighbour, between things in a row
_VARIES = 0.05  # how far the seed stretches a thing
_WORD = re.compile(r"\w+")
_MIRRORS = {"x": ((-1, 1),), "z": ((1, -1),), "xz": ((-1, 1), (1, -1), (-1, -1))}


@dataclass(frozen=True, slots=True)
class NamedThing:
    """One thing of a prompt: its name (empty for a study), its main paint or None, and its stretch."""

    name: str
    paint: str | None
    stretch: tuple[float, float, float]


def read(prompt: str) -> tuple[NamedThing, ...]:
    """The things that a prompt names, in its order, each with the colours and sizes said before it."""
    words = [found[0] for found in _WORD.finditer(prompt.lower())]
    found: list[NamedThing] = []
    paint, stretch = None, np.ones(3)
    at = 0
    while at < len(words):
        name, length = _at(words, at, "things")
        tone, _ = _at(words, at, "paints")
        paint = tone or paint
        stretch = stretch * np.array(_table()["sizes"].get(words[at], (1, 1, 1)), float)
        if name:
            found.append(NamedThing(name, paint, _three(stretch)))
            paint, stretch = None, np.ones(3)
        at += max(1, length)
    if not found:
        return (NamedThing("", paint, _three(stretch)),)
    if paint and found[-1].paint is None:  # "a chair of gold"
        found[-1] = NamedThing(found[-1].name, paint, found[-1].stretch)
    return tuple(found[:_MOST_THINGS])


def built(things: Sequence[NamedThing], seed: int) -> tuple[MeshPart, ...]:
    """The things in a row on the ground, a part for each paint."""
    random = np.random.default_rng(seed)
    by_paint: dict[str, list[PrimitiveBody]] = {}
    left = 0.0
    for thing in things:
        row = _table()["things"][thing.name] if thing.name else _study(random)
        vary = 1 + random.uniform(-_VARIES, _VARIES, 3)
        placed = [
            (paint, body.moved(np.diag(np.array(thing.stretch) * vary), np.zeros(3)))
            for paint, body in _bodies(row, thing)
        ]
        low = np.min([body.positions.min(0) for _, body in placed], axis=0)
        high = np.max([body.positions.max(0) for _, body in placed], axis=0)
        left += _APART * (high[0] - low[0]) if by_paint else 0
        for paint, body in placed:
            moved = body.moved(np.eye(3), np.array([left - low[0], -low[1], 0.0]))
            by_paint.setdefault(paint, []).append(moved)
        left += (1 + _APART) * (high[0] - low[0])
    return _centred(by_paint)


def _centred(by_paint: Mapping[str, list[PrimitiveBody]]) -> tuple[MeshPart, ...]:
    everything = np.concatenate([body.positions for found in by_paint.values() for body in found])
    middle = (everything.min(0) + everything.max(0)) / 2 * np.array([1, 0, 1])
    return tuple(_part(found, material(paint), middle) for paint, found in by_paint.items())


def _part(found: Sequence[PrimitiveBody], painted: Material, middle: Array) -> MeshPart:
    starts = np.cumsum([0, *(len(body.positions) for body in found[:-1])])
    return MeshPart(
        np.concatenate([body.positions for body in found]) - middle,
        np.concatenate([body.normals for body in found]),
        np.concatenate([body.faces + start for body, start in zip(found, starts, strict=True)]),
        painted,
    )


def material(paint: str) -> Material:
    """How a paint looks."""
    row = _table()["paints"][paint]
    red, green, blue = (int(row["colour"][at : at + 2], 16) / 255 for at in (0, 2, 4))
    return Material(
        (red, green, blue, row.get("alpha", 1.0)),
        row.get("metallic", 0.0),
        row.get("roughness", 0.55),
        row.get("glow", 0.0),
    )


def _bodies(row: Mapping[str, Any], thing: NamedThing) -> list[tuple[str, PrimitiveBody]]:
    paints = {"main": thing.paint or row["main"], "trim": row.get("trim", row["main"])}
    if paints["trim"] == paints["main"]:
        paints["trim"] = row["main"]
    found = []
    for part in row["parts"]:
        body = _SHAPES[part["shape"]](part).moved(np.diag(part.get("stretch", (1, 1, 1))), np.zeros(3))
        body = body.moved(_turn(part.get("tilt", (0, 0, 0))), np.array(part.get("at", (0, 0, 0)), float))
        paint = paints.get(part["paint"], part["paint"])
        found += [(paint, copy) for copy in _copies(body, part.get("copies"))]
    return found


_SHAPES = {
    "box": lambda part: primitives.box(part["size"], part.get("edge", 0.12)),
    "ball": lambda part: primitives.ball(part["size"]),
    "rod": lambda part: primitives.rod(part["low"], part["high"], part["height"]),
    "ring": lambda part: primitives.ring(part["radius"], part["thick"]),
    "turned": lambda part: primitives.turned(part["profile"], part.get("around", 40)),
}


def _copies(body: PrimitiveBody, wish: Any) -> list[PrimitiveBody]:
    if isinstance(wish, int):
        return [body.moved(_turn((0, 360 * at / wish, 0)), np.zeros(3)) for at in range(wish)]
    mirrored = [body.moved(np.diag([x, 1.0, z]), np.zeros(3)) for x, z in _MIRRORS.get(wish, ())]
    return [body, *mirrored]


def _turn(degrees: Sequence[float]) -> Array:
    """Turned about x, then y, then z."""
    (cx, cy, cz), (sx, sy, sz) = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    return np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]]) @ about_y @ about_x


def _study(random: np.random.Generator) -> dict[str, Any]:
    """A turned form that nobody has seen: a base, a swelling line, a ring that floats round it."""
    heights = np.linspace(0.06, 1.3, 24)
    waves = random.uniform(0.05, 0.14, 3)[:, None] * np.sin(
        random.uniform(2, 7, 3)[:, None] * heights + random.uniform(0, 6, 3)[:, None]
    )
    radii = np.clip(0.26 + waves.sum(0) - 0.1 * heights, 0.05, 0.5)
    profile = [[0.3, 0], [0.31, 0.05], *np.stack([radii, heights], 1).tolist()]
    main, trim = random.choice(["teal", "marble", "copper", "purple", "orange", "blue"], 2, replace=False)
    tilt = random.uniform(-24, 24, 2)
    return {
        "main": str(main),
        "trim": str(trim),
        "parts": [
            {"shape": "turned", "profile": profile, "paint": "main"},
            {
                "shape": "ring",
                "radius": 0.56,
                "thick": 0.03,
                "at": [0, random.uniform(0.5, 0.9), 0],
                "tilt": [tilt[0], 0, tilt[1]],
                "paint": "trim",
            },
            {"shape": "ball", "size": [0.2, 0.2, 0.2], "at": [0, 1.45, 0], "paint": "trim"},
        ],
    }


def _at(words: Sequence[str], at: int, table: str) -> tuple[str, int]:
    """What of a table the words name from here on, the longest name first, and in how many words."""
    for length in (2, 1):
        name = _names(table).get(" ".join(words[at : at + length]))
        if name:
            return name, length
    return "", 0


@cache
def _names(table: str) -> Mapping[str, str]:
    return {word: name for name, row in _table()[table].items() for word in row.get("words", ())}


def _three(values: Array) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(
        resources.files("sixfold.engines.three_d").joinpath("things.toml").read_text("utf-8")
    )
