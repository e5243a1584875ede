"""Parser of prompts into objects built of parametric bodies, with an abstract object as the fallback."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import compound_nouns, prompt_words
from sixfold.engines.prompt_words import FUNCTION_WORDS, Span
from sixfold.engines.three_d import primitives
from sixfold.engines.three_d.glb import Material, MeshPart
from sixfold.engines.three_d.primitives import PrimitiveBody

Array = NDArray[Any]

_MAX_OBJECTS = 4
_GAP = 0.25  # distance between objects, as a fraction of their width
_VARIATION = 0.05  # relative variation of an object's proportions by the seed
_WORD = re.compile(r"\w+")
_COUNTS = {"two": 2, "three": 3, "four": 4, "2": 2, "3": 3, "4": 4}
_MIRRORS = {"x": ((-1, 1),), "z": ((1, -1),), "xz": ((-1, 1), (1, -1), (-1, -1))}


class PromptObject(msgspec.Struct, frozen=True):
    """An object of a prompt: its name (empty for an abstract object), main paint (or None), and scale."""

    name: str
    paint: str | None
    stretch: tuple[float, float, float]


class ParsedPrompt(msgspec.Struct, frozen=True):
    """The objects that a prompt names, and the words that name them."""

    objects: tuple[PromptObject, ...]
    words: PromptWords


class _Adjectives:
    """The color, size and number read since the last object, with the spans of their words.

    `noun` is set once an unknown noun follows them: they describe this noun, unless an object follows
    directly.
    """

    def __init__(self) -> None:
        self.paint: str | None = None
        self.stretch, self.count, self.noun = np.ones(3), 1, False
        self.spans: list[tuple[str, Span]] = []

    def add(self, word: str, color: str, span: Span) -> bool:
        """Add a word or color, and return whether it is an adjective."""
        size = _table()["sizes"].get(word)
        if not color and size is None and word not in _COUNTS:
            return False
        self.paint = color or self.paint
        self.stretch = self.stretch if size is None else self.stretch * np.array(size, float)
        self.count = _COUNTS.get(word, self.count)
        self.spans.append((color, span))
        return True


def parse(prompt: str) -> ParsedPrompt:
    """Return the objects of a prompt, in order, with the colors, sizes and numbers that precede them."""
    folded = prompt_words.fold(prompt)
    matches = list(_WORD.finditer(folded))
    words = [match[0] for match in matches]
    objects: list[PromptObject] = []
    spans: list[Span] = []
    pending, unused, english = _Adjectives(), _Adjectives(), compound_nouns.is_english(words)
    at = 0
    while at < len(words):
        name, length = _lookup(words, at, "objects")
        color, color_length = ("", 0) if name else _lookup(words, at, "paints")
        span = (matches[at].start(), matches[at + max(1, length, color_length) - 1].end())
        if name and not _describes(words, at + length):
            objects += [PromptObject(name, pending.paint, _tuple(pending.stretch))] * pending.count
            similar = _table()["objects"][name].get("similar", ())
            spans += [] if " ".join(words[at : at + length]) in similar else [span]
            spans += [span for _, span in pending.spans]
            pending = _Adjectives()
        elif not pending.add(words[at], color, span):
            # In "a snowman with a red scarf", the color belongs to the scarf, which is not drawn.
            if pending.noun and words[at] in FUNCTION_WORDS:
                pending, unused = _Adjectives(), pending
            pending.noun |= bool(english and pending.spans and compound_nouns.is_head(words, at))
        at += max(1, length, color_length)
    if not objects:
        rest = pending if pending.spans else unused
        reported = prompt_words.of_spans(folded, [span for _, span in rest.spans])
        return ParsedPrompt((PromptObject("", rest.paint, _tuple(rest.stretch)),), reported)
    # The color may follow the name, as in "a chair of gold".
    if pending.paint and not pending.noun and objects[-1].paint is None:
        objects[-1] = PromptObject(objects[-1].name, pending.paint, objects[-1].stretch)
        spans += [span for color, span in pending.spans if color == pending.paint]
    return ParsedPrompt(tuple(objects[:_MAX_OBJECTS]), prompt_words.of_spans(folded, spans))


def _describes(words: Sequence[str], after: int) -> bool:
    """Return whether an object only describes the noun after it, as in `dragon skull`."""
    if not compound_nouns.is_head(words, after) or not compound_nouns.is_english(words):
        return False
    return not _lookup(words, after, "paints")[1]


def build(objects: Sequence[PromptObject], seed: int) -> tuple[MeshPart, ...]:
    """Build the objects in a row on the ground, with a part for each paint."""
    random = np.random.default_rng(seed)
    by_paint: dict[str, list[PrimitiveBody]] = {}
    left = 0.0
    for item in objects:
        row = _table()["objects"][item.name] if item.name else _abstract(random)
        vary = 1 + random.uniform(-_VARIATION, _VARIATION, 3)
        placed = [
            (paint, body.transform(np.diag(np.array(item.stretch) * vary), np.zeros(3)))
            for paint, body in _bodies(row, item)
        ]
        low = np.min([body.positions.min(0) for _, body in placed], axis=0)
        high = np.max([body.positions.max(0) for _, body in placed], axis=0)
        left += _GAP * (high[0] - low[0]) if by_paint else 0
        for paint, body in placed:
            offset = np.array([left - low[0], -low[1], 0.0])
            by_paint.setdefault(paint, []).append(body.transform(np.eye(3), offset))
        left += (1 + _GAP) * (high[0] - low[0])
    return _centered(by_paint)


def _centered(by_paint: Mapping[str, list[PrimitiveBody]]) -> tuple[MeshPart, ...]:
    positions = np.concatenate([body.positions for bodies in by_paint.values() for body in bodies])
    center = (positions.min(0) + positions.max(0)) / 2 * np.array([1, 0, 1])
    return tuple(_part(bodies, material(paint), center) for paint, bodies in by_paint.items())


def _part(bodies: Sequence[PrimitiveBody], surface: Material, center: Array) -> MeshPart:
    starts = np.cumsum([0, *(len(body.positions) for body in bodies[:-1])])
    return MeshPart(
        np.concatenate([body.positions for body in bodies]) - center,
        np.concatenate([body.normals for body in bodies]),
        np.concatenate([body.faces + start for body, start in zip(bodies, starts, strict=True)]),
        surface,
    )


def material(paint: str) -> Material:
    row = _table()["paints"][paint]
    red, green, blue = (int(row["color"][at : at + 2], 16) / 255 for at in (0, 2, 4))
    return Material(
        (red, green, blue, row.get("alpha", 1.0)),
        row.get("metallic", 0.0),
        row.get("roughness", 0.55),
        row.get("glow", 0.0),
    )


def _bodies(row: Mapping[str, Any], item: PromptObject) -> list[tuple[str, PrimitiveBody]]:
    paints = {"main": item.paint or row["main"], "trim": row.get("trim", row["main"])}
    if paints["trim"] == paints["main"]:
        paints["trim"] = row["main"]
    bodies = []
    for part in row["parts"]:
        body = _SHAPES[part["shape"]](part).transform(np.diag(part.get("stretch", (1, 1, 1))), np.zeros(3))
        body = body.transform(
            _rotation(part.get("tilt", (0, 0, 0))), np.array(part.get("at", (0, 0, 0)), float)
        )
        paint = paints.get(part["paint"], part["paint"])
        bodies += [(paint, copy) for copy in _copies(body, part.get("copies"))]
    return bodies


_SHAPES = {
    "box": lambda part: primitives.box(part["size"], part.get("edge", 0.12)),
    "ball": lambda part: primitives.ball(part["size"]),
    "rod": lambda part: primitives.rod(part["low"], part["high"], part["height"]),
    "ring": lambda part: primitives.ring(part["radius"], part["thick"]),
    "turned": lambda part: primitives.revolve(part["profile"], part.get("around", 40)),
}


def _copies(body: PrimitiveBody, copies: Any) -> list[PrimitiveBody]:
    """Return copies rotated about y, if `copies` is a number, or mirrored on the named axes."""
    if isinstance(copies, int):
        return [body.transform(_rotation((0, 360 * at / copies, 0)), np.zeros(3)) for at in range(copies)]
    mirrored = [body.transform(np.diag([x, 1.0, z]), np.zeros(3)) for x, z in _MIRRORS.get(copies, ())]
    return [body, *mirrored]


def _rotation(degrees: Sequence[float]) -> Array:
    """Return the matrix of a rotation about x, then y, then z."""
    (cx, cy, cz), (sx, sy, sz) = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    return np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]]) @ about_y @ about_x


def _abstract(random: np.random.Generator) -> dict[str, Any]:
    """Return a random abstract object: a surface of revolution with a ring and a ball."""
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


def _lookup(words: Sequence[str], at: int, table: str) -> tuple[str, int]:
    """Return the longest entry of a table named at a position, and its number of words."""
    for length in range(min(2, len(words) - at), 0, -1):
        name = _names(table).get(" ".join(words[at : at + length]))
        if name:
            return name, length
    return "", 0


@cache
def _names(table: str) -> Mapping[str, str]:
    return {word: name for name, row in _table()[table].items() for word in row.get("words", ())}


def _tuple(values: Array) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(
        resources.files("sixfold.engines.three_d").joinpath("objects.toml").read_text("utf-8")
    )
