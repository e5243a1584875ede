"""Pictures of results that are data, for lists: forecasts as charts, vectors as strips, others as text.

They have a transparent background, and colors that are readable on light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sixfold.core.media.drawings import Drawing, Label, Point, Shape
from sixfold.ui.predictions import forecast_chart, vector_strips
from sixfold.ui.predictions.forecast_chart import ForecastChart
from sixfold.ui.predictions.vector_strips import VectorStrips

_SIDE, _MARGIN, _CHART_HEIGHT = 320.0, 24.0, 200.0
_SERIES, _TESTED, _MEAN, _BAND = "#8a857c", "#cc8a3d", "#4f8fd6", "#4f8fd6"
# Opacities of the intervals, the widest first.
_OPACITIES = ("30", "50", "70")
_POSITIVE, _NEGATIVE, _NAME, _VALUE = "#2f9c8c", "#cc5a42", "#8a857c", "#5b8fb9"
_MAX_ROWS, _MAX_COLUMNS = 12, 24
# The lines of a picture, their characters and size, and the mean width of a character relative to it.
_LINES, _CHARS, _SIZE, _LEADING, _CHAR_WIDTH = 9, 27, 18.0, 30.0, 0.5
_MAX_TEXT_CHARS = 1_000
_NUMBERS = re.compile(r"-?[0-9.]+")


def draw(model: str, inputs: Mapping[str, Any], data: Mapping[str, Any]) -> Drawing | None:
    """Return the picture of a result, or None for a result without data."""
    if not data:
        return None
    chart = forecast_chart.chart(model, inputs, data)
    if chart is not None:
        return _chart(chart)
    strips = vector_strips.draw(model, inputs, data)
    return _text(data) if strips is None else _strips(strips)


def _chart(chart: ForecastChart) -> Drawing:
    across, down = (_SIDE - 2 * _MARGIN) / chart.size, _CHART_HEIGHT / chart.size
    top = (_SIDE - _CHART_HEIGHT) / 2

    def lines(path: str) -> list[tuple[Point, ...]]:
        parts = [[float(each) for each in _NUMBERS.findall(part)] for part in path.split("M")]
        return [
            tuple((_MARGIN + x * across, top + y * down) for x, y in zip(part[::2], part[1::2], strict=False))
            for part in parts
            if part
        ]

    bands = [
        Shape(points, f"{_BAND}{opacity}")
        for (_, path), opacity in zip(chart.bands.items(), _OPACITIES, strict=False)
        for points in lines(path)
    ]
    series = [Shape(points, _SERIES, 3.0) for points in lines(chart.series)]
    tested = [Shape(points, _TESTED, 2.5) for points in lines(chart.tested)]
    mean = [Shape(points, _MEAN, 4.0) for points in lines(chart.mean)]
    return Drawing(_SIDE, _SIDE, (*bands, *series, *tested, *mean))


def _strips(strips: VectorStrips) -> Drawing:
    """Return a grid, in which each vector has one or more rows."""
    rows_each = max(1, _MAX_ROWS // len(strips.strips))
    rows = [row for strip in strips.strips for row in _rows(strip.cells, rows_each)]
    columns = max(len(row) for row in rows)
    largest = max(abs(value) for row in rows for value in row) or 1.0
    across, down = (_SIDE - 2 * _MARGIN) / columns, (_SIDE - 2 * _MARGIN) / len(rows)
    shapes: list[Shape] = []
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            x, y = _MARGIN + column * across, _MARGIN + at * down
            corners = ((x, y), (x + across, y), (x + across, y + down), (x, y + down))
            opacity = round(255 * (abs(value) / largest) ** 0.5)
            shapes.append(Shape(corners, f"{_POSITIVE if value > 0 else _NEGATIVE}{opacity:02x}"))
    return Drawing(_SIDE, _SIDE, tuple(shapes))


def _rows(cells: Sequence[float], count: int) -> list[list[float]]:
    """Return the cells in rows; a cell for several values has the largest of them."""
    columns = min(_MAX_COLUMNS, max(1, -(-len(cells) // count)))
    per_cell = max(1, -(-len(cells) // (count * columns)))
    values = [max(cells[at : at + per_cell], key=abs) for at in range(0, len(cells), per_cell)]
    return [values[at : at + columns] for at in range(0, len(values), columns)]


def _text(data: Mapping[str, Any]) -> Drawing:
    """Return the first fields with their values."""
    labels: list[Label] = []
    for at, (name, value) in enumerate(list(data.items())[:_LINES]):
        y = _MARGIN + at * _LEADING
        text = f"{str(name)[:_CHARS]}: "
        labels.append(Label(_MARGIN, y, text, _SIZE, _NAME))
        rest = _CHARS - len(text)
        if rest > 0:
            x = _MARGIN + len(text) * _SIZE * _CHAR_WIDTH
            labels.append(Label(x, y, _in_words(value)[:rest], _SIZE, _VALUE))
    return Drawing(_SIDE, _SIDE, labels=tuple(labels))


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(cast('list[Any]', value))} items"
    if isinstance(value, dict):
        return f"{len(cast('dict[str, Any]', value))} fields"
    # All words of a long text would take several times its memory.
    text = value if isinstance(value, str) else str(value)
    return " ".join(text[:_MAX_TEXT_CHARS].split())
