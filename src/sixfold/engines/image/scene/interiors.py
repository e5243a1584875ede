"""Furniture of rooms, and isometric rooms and towns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene import shapes, subjects
from sixfold.engines.image.scene.canvas import Color, blur, distance, fill, mix, over, rgb
from sixfold.engines.image.scene.stage import SceneStage

# Furniture by words of the prompt: name, x, foot and height as fractions of the image.
_ROOMS: tuple[tuple[tuple[str, ...], tuple[tuple[str, float, float, float], ...]], ...] = (
    (("bedroom", "chambre", "schlafzimmer"), (("lamp", 0.86, 0.80, 0.44), ("bed", 0.40, 0.92, 0.40))),
    (
        ("kitchen", "cafe", "café", "restaurant", "dining", "bakery", "table"),
        (
            ("plant", 0.09, 0.78, 0.28),
            ("chair", 0.26, 0.88, 0.44),
            ("desk", 0.55, 0.92, 0.34),
            ("fruit", 0.50, 0.605, 0.14),
            ("cup", 0.64, 0.605, 0.10),
        ),
    ),
    (
        ("office", "desk", "workspace", "study"),
        (
            ("plant", 0.10, 0.80, 0.34),
            ("desk", 0.52, 0.92, 0.34),
            ("laptop", 0.50, 0.605, 0.20),
            ("cup", 0.70, 0.605, 0.09),
            ("chair", 0.84, 0.93, 0.46),
        ),
    ),
    (("bathroom",), (("plant", 0.10, 0.78, 0.28), ("bathtub", 0.52, 0.90, 0.34))),
    (
        ("library", "bookshop"),
        (("bookshelf", 0.30, 0.78, 0.62), ("lamp", 0.88, 0.84, 0.46), ("chair", 0.70, 0.92, 0.44)),
    ),
    (("",), (("lamp", 0.88, 0.79, 0.46), ("plant", 0.09, 0.84, 0.34), ("sofa", 0.46, 0.90, 0.30))),
)  # fmt: skip

# Furniture behind a person, by words of the prompt: name, foot and height as fractions of the image.
_BEHIND: tuple[tuple[tuple[str, ...], tuple[str, float, float]], ...] = (
    (("kitchen", "restaurant", "bakery"), ("stove", 0.80, 0.30)),
    (("hospital",), ("bed", 0.80, 0.26)),
    (("library", "bookshop", "office"), ("bookshelf", 0.76, 0.56)),
    (("classroom",), ("blackboard", 0.58, 0.36)),
    (("bathroom",), ("bathtub", 0.80, 0.22)),
    (("",), ("plant", 0.74, 0.30)),
)

RowT = TypeVar("RowT")
FURNITURE = frozenset({"sofa", "bed", "chair", "lamp", "plant", "laptop"})
# Positions (x and foot) beside the widest piece of furniture.
_SIDES = ((0.09, 0.84), (0.88, 0.80), (0.26, 0.76), (0.74, 0.76))


def furnish(stage: SceneStage) -> None:
    """Add furniture to a room without other subjects, or one piece behind a person."""
    shown = [s for s in stage.scene.subjects if s.name not in stage.scene.avoid]
    others = [s for s in shown if s.name not in FURNITURE]
    is_busy = any(shapes.library()[s.name].stand in shapes.INDOORS for s in others)
    if is_busy or (len(shown) == 1 and not stage.scene.places):
        return
    text = stage.scene.prompt.casefold()
    across = 0.30 if stage.layout.light[0] > 0.5 else 0.70
    _draw(stage, "painting", across, 0.47, 0.24)
    if others:
        name, foot, tall = _by_words(_BEHIND, text)
        _draw(stage, name, 0.07 if across < 0.5 else 0.93, foot, tall)
    elif shown:
        _arrange(stage, [(s.name, s.color) for s in shown for _ in range(s.count)])
    elif _is_plain_room(stage) and "empty" not in text:
        for name, x, foot, tall in _by_words(_ROOMS, text):
            _draw(stage, name, x, foot, tall)


def _is_plain_room(stage: SceneStage) -> bool:
    return bool(stage.scene.places) and not stage.scene.letters and not stage.scene.avoid


def _by_words(rows: Iterable[tuple[tuple[str, ...], RowT]], text: str) -> RowT:
    """Return the first row with a word of the text; the last row has the empty word."""
    return next(row for words, row in rows if any(word in text for word in words))


def _arrange(stage: SceneStage, items: list[tuple[str, str | None]]) -> None:
    """Place the named furniture: the widest piece in the middle, the others beside and behind it."""
    stage.notes["furnished"] = 1.0
    widest = ["sofa", "bed", "laptop", "chair", "lamp", "plant"]
    (first, tint), *others = sorted(items, key=lambda each: widest.index(each[0]))
    placements = [(_SIDES[at % len(_SIDES)], name, color) for at, (name, color) in enumerate(others)]
    for (x, foot), name, color in sorted(placements, key=lambda each: each[0][1]):
        _draw(stage, name, x, foot, min(0.46, shapes.library()[name].size * 0.84), color)
    _draw(stage, first, 0.47, 0.91, min(0.5, shapes.library()[first].size), tint)


def _draw(stage: SceneStage, name: str, x: float, foot: float, tall: float, color: str | None = None) -> None:
    columns = np.concatenate([part.outline[:, 0] for part in shapes.library()[name].parts])
    wide = max(abs(float(columns.max()) - 50), abs(float(columns.min()) - 50)) / 100
    high = min(tall * stage.height, 0.30 * stage.width / max(wide, 0.2))
    at = float(np.clip(x * stage.width, wide * high, stage.width - wide * high))
    spot = subjects.SubjectSpot(at, foot * stage.height, high, depth=0.5)
    subjects.draw(stage, name, spot, color, grounded=name != "painting")


# -- isometric views -------------------------------------------------------------------------------

Box = tuple[float, float, float, float, float, float, str]

_BEDROOM: tuple[Box, ...] = (
    (0.0, 0.0, -0.3, 8.0, 8.0, 0.3, "#c99a66"),
    (1.6, 1.6, 0.0, 4.6, 4.6, 0.06, "#c9705f"),
    (0.1, 0.1, 0.0, 0.5, 2.2, 3.4, "#8a5f3c"),
    (0.6, 0.3, 1.0, 0.1, 1.8, 0.12, "#e0a84a"),
    (0.6, 0.3, 2.0, 0.1, 1.8, 0.12, "#5f9a8a"),
    (3.0, 0.2, 0.0, 3.4, 2.2, 0.5, "#7a5234"),
    (3.0, 0.2, 0.5, 3.4, 2.2, 0.45, "#f1ece2"),
    (4.1, 0.15, 0.95, 2.35, 2.3, 0.14, "#5f86b8"),
    (3.15, 0.5, 0.95, 0.7, 1.6, 0.24, "#ffffff"),
    (0.2, 4.2, 1.4, 1.6, 3.0, 0.16, "#a8743f"),
    (0.3, 4.4, 0.0, 0.2, 0.2, 1.4, "#6f4a2a"),
    (1.5, 6.8, 0.0, 0.2, 0.2, 1.4, "#6f4a2a"),
    (0.5, 5.0, 1.56, 0.16, 1.3, 0.9, "#2c3140"),
    (2.2, 5.2, 0.0, 0.9, 0.9, 0.85, "#4f8a7c"),
    (6.7, 0.4, 0.0, 0.8, 0.8, 0.8, "#b8684a"),
    (6.8, 0.5, 0.8, 0.6, 0.6, 1.2, "#4f9a52"),
)
_TOWN = ("#e8c9a0", "#d98f6c", "#8fb8c9", "#c9b2d6", "#a8c98f", "#f0d68a", "#c9ccd2")


def isometric(stage: SceneStage) -> None:
    """Paint a room with two walls, or a block of a town, on a plain background."""
    rng = stage.rng("isometric")
    ground = rgb(("#e9d8c4", "#cfdde6", "#d9d3e6", "#d6e2cf")[int(rng.integers(4))])
    pool = distance(stage.shape, (stage.width / 2, stage.height / 2)) / np.float32(max(stage.shape))
    stage.image[:] = np.clip(ground * (1.06 - 0.35 * pool)[..., None], 0, 1)
    stage.depth[:] = 0.4
    inside = "interior" in stage.scene.places
    view = (stage.width / 2, stage.height * (0.50 if inside else 0.40), stage.unit * (6.0 if inside else 5.6))
    shadow = np.array([_at(view, x, y, -0.5) for x, y in ((-0.3, -0.3), (8.6, 0), (8.6, 8.6), (0, 8.6))])
    over(stage.image, rgb("#3a3540"), blur(fill(stage.shape, [shadow]), stage.unit * 2) * np.float32(0.28))
    if inside:
        _walls(stage, view)
        boxes: Sequence[Box] = _BEDROOM
    else:
        boxes = _town(rng)
    for box in boxes:
        _box(stage, view, box)
    stage.ground = 0.9
    stage.step("isometric")


def _at(view: tuple[float, float, float], x: float, y: float, z: float) -> tuple[float, float]:
    return view[0] + (x - y) * 0.866 * view[2], view[1] + ((x + y) * 0.5 - z) * view[2] - view[2] * 1.6


def _face(
    stage: SceneStage,
    view: tuple[float, float, float],
    corners: Sequence[tuple[float, float, float]],
    tone: Color,
) -> None:
    outline: NDArray[Any] = np.array([_at(view, *corner) for corner in corners], np.float32)
    over(stage.image, tone, fill(stage.shape, [outline]))


def _box(stage: SceneStage, view: tuple[float, float, float], box: Box) -> None:
    """Draw a box: left face in half light, right face in shade, top in light."""
    x, y, z, wide, deep, high, text = box
    tone, white, dark = rgb(text), rgb("#fff6e6"), rgb("#2a2440")
    right, back, top = x + wide, y + deep, z + high
    _face(
        stage,
        view,
        [(x, back, z), (right, back, z), (right, back, top), (x, back, top)],
        mix(tone, dark, 0.12),
    )
    _face(
        stage,
        view,
        [(right, y, z), (right, back, z), (right, back, top), (right, y, top)],
        mix(tone, dark, 0.34),
    )
    _face(
        stage,
        view,
        [(x, y, top), (right, y, top), (right, back, top), (x, back, top)],
        mix(tone, white, 0.22),
    )


def _walls(stage: SceneStage, view: tuple[float, float, float]) -> None:
    """Draw two walls, each with a window."""
    tone = rgb(("#8fb0b8", "#d9a890", "#a8b890", "#b0a0c4")[int(stage.rng("walls").integers(4))])
    light = mix(tone, rgb("#fff6e6"), 0.25)
    _face(stage, view, [(0, 0, 0), (8, 0, 0), (8, 0, 5), (0, 0, 5)], light)
    _face(stage, view, [(0, 0, 0), (0, 8, 0), (0, 8, 5), (0, 0, 5)], tone)
    night = stage.palette.dark
    pane, frame = rgb("#2a3a6a" if night else "#cfeaf6"), rgb("#f4efe6")
    for rim, color in ((0.16, frame), (0.0, pane)):
        near, far, low, high = 3.2 - rim, 6.2 + rim, 2.2 - rim, 4.2 + rim
        _face(stage, view, [(near, 0, low), (far, 0, low), (far, 0, high), (near, 0, high)], color)
        near, far, low = 4.6 - rim, 6.8 + rim, 2.9 - rim
        _face(stage, view, [(0, near, low), (0, far, low), (0, far, high), (0, near, high)], color)
    _face(stage, view, [(4.64, 0, 2.2), (4.76, 0, 2.2), (4.76, 0, 4.2), (4.64, 0, 4.2)], frame)


def _town(rng: np.random.Generator) -> list[Box]:
    """Return houses on a grid of streets with windows, trees and roofs, the farthest first."""
    boxes: list[Box] = [(0.0, 0.0, -0.4, 8.4, 8.4, 0.4, "#8f949c")]
    for x in range(4):
        for y in range(4):
            left, near = 0.3 + x * 2.1, 0.3 + y * 2.1
            boxes.append((left, near, 0.0, 1.5, 1.5, 0.08, "#a9c78f"))
            if rng.random() < 0.2:
                boxes += [
                    (left + a, near + b, 0.08, 0.4, 0.4, 0.9, "#4f9a52")
                    for a in (0.2, 0.9)
                    for b in (0.2, 0.9)
                ]
                continue
            high = float(rng.uniform(0.9, 3.6)) * (1.25 - 0.12 * (x + y))
            tone = _TOWN[int(rng.integers(len(_TOWN)))]
            boxes.append((left + 0.1, near + 0.1, 0.08, 1.3, 1.3, high, tone))
            z = 0.35
            while z < high - 0.25:
                boxes += [
                    (left + 0.22 + a, near + 1.40, z, 0.24, 0.01, 0.26, "#4a6178") for a in (0.0, 0.41, 0.82)
                ]
                boxes += [
                    (left + 1.40, near + 0.22 + a, z, 0.01, 0.24, 0.26, "#5a7188") for a in (0.0, 0.41, 0.82)
                ]
                z += 0.5
            boxes.append((left + 0.4, near + 0.4, high + 0.08, 0.5, 0.5, 0.2, "#8c6f5f"))
    return boxes
