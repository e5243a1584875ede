"""The usage chart: a stacked column for each day, with the most expensive model or key at the bottom."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sixfold.core.accounts.ledger_queries import Spending

SPANS = (14, 30, 90)
_HUES = ("hosting", "media", "gateway", "memory", "workflows", "imagekit")
_OTHERS = "others"
# Height of the chart in SVG units; the width is 700.
_HEIGHT = 110


class SpendingSegment(msgspec.Struct, frozen=True):
    """The segment of one model, key or kind in a column, in chart units."""

    hue: str
    y: float
    height: float


class SpendingColumn(msgspec.Struct, frozen=True):
    """The column of one day, in chart units; `day` is its start in µs, `micros` its total."""

    day: int
    micros: int
    x: float
    width: float
    labelled: bool
    segments: tuple[SpendingSegment, ...]


class SpendingChart(msgspec.Struct, frozen=True):
    """The columns, the legend as (color, label, µUSD), the total and the highest day."""

    columns: tuple[SpendingColumn, ...]
    legend: tuple[tuple[str, str, int], ...]
    total: int
    highest: int


def chart(spending: Spending) -> SpendingChart:
    """Return the chart of an account's spending; the five most expensive labels have separate colors."""
    colors = dict(zip(list(spending.models)[: len(_HUES) - 1], _HUES, strict=False))
    legend = [(hue, name, spending.models[name]) for name, hue in colors.items()]
    if others := sum(micros for name, micros in spending.models.items() if name not in colors):
        legend.append((_HUES[-1], _OTHERS, others))
    sums = {day: sum(max(0, micros) for micros in models.values()) for day, models in spending.days.items()}
    highest, step = max(*sums.values(), 1), 700 / len(spending.days)
    label_step = -(-len(spending.days) // 14)
    columns = [
        SpendingColumn(
            day,
            sum(models.values()),
            round(step * index + 0.12 * step, 2),
            round(0.76 * step, 2),
            (len(spending.days) - 1 - index) % label_step == 0,
            _segments(models, colors, highest),
        )
        for index, (day, models) in enumerate(spending.days.items())
    ]
    return SpendingChart(tuple(columns), tuple(legend), spending.total, max(sums.values()))


def _segments(
    models: Mapping[str, int], colors: Mapping[str, str], highest: int
) -> tuple[SpendingSegment, ...]:
    by_hue = dict.fromkeys((*colors.values(), _HUES[-1]), 0)
    for name, micros in models.items():
        by_hue[colors.get(name, _HUES[-1])] += max(0, micros)
    segments: list[SpendingSegment] = []
    bottom = 125.0
    for hue, micros in by_hue.items():
        height = _HEIGHT * micros / highest
        bottom -= height
        if micros:
            segments.append(SpendingSegment(hue, round(bottom, 2), round(max(height, 0.6), 2)))
    return tuple(segments)
