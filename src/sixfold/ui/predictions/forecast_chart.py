"""The chart of a forecast: its series, its mean and its intervals, as paths of an SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import msgspec

MODEL = "forecast"
_WIDTH, _HEIGHT = 720, 280
_MARGIN = 8
# The last values of a longer series are drawn.
_MAX_VALUES, _MAX_MEAN = 240, 480


class ForecastChart(msgspec.Struct, frozen=True):
    """Paths in a box of `width` by `height`; `bands` are the intervals by level, the widest first."""

    series: str
    mean: str
    bands: dict[str, str]
    description: str
    backtest: str
    width: int = _WIDTH
    height: int = _HEIGHT


def chart(model: str, inputs: Mapping[str, Any], data: Mapping[str, Any]) -> ForecastChart | None:
    """Return the chart of a forecast, or None for other results and for values that cannot be drawn."""
    if model != MODEL:
        return None
    mean = _values(data.get("mean"))[:_MAX_MEAN]
    series = _values(inputs.get("series"))[-_MAX_VALUES:]
    intervals = _intervals(data)
    all_values = [
        value
        for values in (series, mean, *chain(*intervals.values()))
        for value in values
        if value is not None
    ]
    if not mean or not all_values:
        return None
    lowest, highest = min(all_values), max(all_values)
    across = (_WIDTH - 2 * _MARGIN) / max(1, len(series) + len(mean) - 1)
    down = (_HEIGHT - 2 * _MARGIN) / ((highest - lowest) or 1.0)

    def points(values: Sequence[float | None], start: int) -> list[tuple[float, float] | None]:
        return [
            None
            if each is None
            else (_MARGIN + (start + at) * across, _HEIGHT - _MARGIN - (each - lowest) * down)
            for at, each in enumerate(values)
        ]

    first = len(series)
    # The forecast is connected with the last value of the series.
    connected_mean = [*series[-1:], *mean]
    return ForecastChart(
        series=_line(points(series, 0)),
        mean=_line(points(connected_mean, first - len(series[-1:]))),
        bands={
            level: _line([*points(upper, first), *reversed(points(lower, first))]) + "Z"
            for level, (lower, upper) in intervals.items()
        },
        description=f"{len(series)} values of the series and {len(mean)} forecast values, "
        f"between {lowest:.4g} and {highest:.4g}",
        backtest=_backtest(data),
    )


def _intervals(data: Mapping[str, Any]) -> dict[str, tuple[list[float | None], list[float | None]]]:
    """Return the lower and upper values of each level, the widest first."""
    found = data.get("intervals")
    levels = cast("dict[str, dict[str, Any]]", found) if isinstance(found, dict) else {}
    return {
        level: (_values(bounds.get("lower"))[:_MAX_MEAN], _values(bounds.get("upper"))[:_MAX_MEAN])
        for level, bounds in sorted(levels.items(), key=lambda each: -float(each[0]))
    }


def _values(value: object) -> list[float | None]:
    """Return the numbers of a list; objects have them as `y`."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    numbers = [cast("dict[str, Any]", item).get("y") if isinstance(item, dict) else item for item in items]
    return [float(number) if isinstance(number, int | float) else None for number in numbers]


def _line(points: Iterable[tuple[float, float] | None]) -> str:
    """Return a path through the points, interrupted at each None."""
    parts: list[str] = []
    command = "M"
    for point in points:
        if point is None:
            command = "M"
            continue
        parts.append(f"{command}{point[0]:.1f} {point[1]:.1f}")
        command = "L"
    return "".join(parts)


def _backtest(data: Mapping[str, Any]) -> str:
    """Return the result of the backtest in words, or "" for a short series."""
    result = data.get("backtest")
    if not isinstance(result, dict):
        return ""
    found = cast("dict[str, Any]", result)
    coverage = cast("dict[str, float]", found.get("coverage", {}))
    inside = ", ".join(
        f"{100 * share:.0f} % within the {level} % interval" for level, share in coverage.items()
    )
    return f"Backtest: mean absolute error {found['mae']:.3g}; {inside}."
