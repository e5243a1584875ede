"""Strips of colors for the vectors of embeddings, and a table of their similarities."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement, groupby
from typing import Any, cast

import msgspec

# The vectors that are drawn, and the cells of a strip: one for each dimension, or for several neighbors.
_MAX_VECTORS, _MAX_CELLS = 12, 512
# Longer vectors are not drawn: the table of 12 vectors of this length takes up to 40 ms of the event loop.
_MAX_DIMENSIONS = 8192
# Opacities of a color.
_LEVELS = 8
_MAX_LABEL = 80
# With two vectors, each is the most similar to the other.
_FEW = 2
_DIGITS = 4
# Larger numbers are not drawn: their squares could exceed a float.
_LARGEST = 1e100


class VectorStrip(msgspec.Struct, frozen=True):
    """A vector: its text, if the page may show it, its norm, and a path for each color and opacity.

    `cells` are the values of the strip; a cell for several dimensions has their largest value.
    """

    label: str
    norm: float
    paths: Sequence[tuple[str, float, str]]
    cells: Sequence[float]


class VectorStrips(msgspec.Struct, frozen=True):
    """The first vectors of a result, with the cosine of the angle between each two of them."""

    strips: Sequence[VectorStrip]
    count: int
    dimensions: int
    cell_dimensions: int
    similarities: Sequence[Sequence[float]]

    @property
    def width(self) -> int:
        """The number of cells of a strip."""
        return len(self.strips[0].cells)

    @property
    def nearest(self) -> list[int]:
        """The index of the most similar other vector for each vector of several; -1 for only two."""
        rows = self.similarities if len(self.strips) > _FEW else ()
        others = [
            [value if at != row else -math.inf for at, value in enumerate(values)]
            for row, values in enumerate(rows)
        ]
        return [values.index(max(values)) for values in others] or [-1] * len(self.strips)


def draw(_model: str, inputs: Mapping[str, Any], data: Mapping[str, Any]) -> VectorStrips | None:
    """Return the strips of the vectors in `embeddings`, or None for other data."""
    rows = data.get("embeddings")
    count = len(cast("list[Any]", rows)) if isinstance(rows, list) else 0
    vectors = [_vector(row) for row in cast("list[Any]", rows)[:_MAX_VECTORS]] if count else []
    if not vectors or not vectors[0] or len({len(vector) for vector in vectors}) != 1:
        return None
    per_cell = -(-len(vectors[0]) // _MAX_CELLS)
    cells = [_cells(vector, per_cell) for vector in vectors]
    largest = max(abs(value) for row in cells for value in row) or 1.0
    norms = [math.hypot(*vector) for vector in vectors]
    labels = _labels(inputs.get("texts"), len(vectors))
    return VectorStrips(
        strips=[
            VectorStrip(label, norm, _paths(row, largest), [round(value, _DIGITS) for value in row])
            for label, norm, row in zip(labels, norms, cells, strict=True)
        ],
        count=count,
        dimensions=len(vectors[0]),
        cell_dimensions=per_cell,
        similarities=_similarities(vectors, norms),
    )


def _vector(row: object) -> list[float]:
    """Return the numbers of a row, or an empty list if one of them cannot be drawn."""
    values = cast("list[Any]", row) if isinstance(row, list) else []
    can_draw = len(values) <= _MAX_DIMENSIONS and all(
        type(value) in (int, float) and abs(value) <= _LARGEST for value in values
    )
    return [float(value) for value in values] if can_draw else []


def _cells(vector: Sequence[float], per_cell: int) -> list[float]:
    return [max(vector[at : at + per_cell], key=abs) for at in range(0, len(vector), per_cell)]


def _labels(texts: object, count: int) -> list[str]:
    items = cast("list[Any]", texts)[:count] if isinstance(texts, list) else []
    lines = [" ".join(str(text).split()) for text in items]
    shortened = [line if len(line) <= _MAX_LABEL else f"{line[:_MAX_LABEL]}…" for line in lines]
    return shortened if len(shortened) == count else [""] * count


def _paths(cells: Sequence[float], largest: float) -> list[tuple[str, float, str]]:
    """Return the paths of a strip one unit high: color, opacity and the runs of equal cells.

    The square root makes most values visible although a few are much larger.
    """
    levels = [
        int(math.copysign(math.ceil(_LEVELS * math.sqrt(abs(value) / largest)), value)) for value in cells
    ]
    paths: dict[int, list[str]] = {}
    at = 0
    for level, run in groupby(levels):
        length = len(list(run))
        paths.setdefault(level, []).append(f"M{at} 0h{length}v1h-{length}z")
        at += length
    return [
        ("more" if level > 0 else "less", abs(level) / _LEVELS, "".join(parts))
        for level, parts in sorted(paths.items())
        if level
    ]


def _similarities(vectors: Sequence[Sequence[float]], norms: Sequence[float]) -> list[list[float]]:
    """Return the cosines of all pairs, each of which is calculated once."""
    rows = [[0.0] * len(vectors) for _ in vectors]
    for row, column in combinations_with_replacement(range(len(vectors)), 2):
        product = norms[row] * norms[column]
        cosine = sum(map(operator.mul, vectors[row], vectors[column])) / product if product else 0.0
        rows[row][column] = rows[column][row] = cosine
    return rows
