"""The chart of a forecast: its axes, series, mean, intervals and backtest, and the table of their values."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from sixfold.ui.predictions import chart_axes
from sixfold.ui.predictions.chart_axes import Axis, Timeline

MODEL = "forecast"
# Paths are drawn in a box of this size, which the page stretches.
SIZE = 1000
# The last values of a longer series are drawn.
_MAX_VALUES, _MAX_MEAN = 240, 480
# A longer distance between two times, in intervals, interrupts the line.
_MAX_DISTANCE = 1.5
Point = tuple[float, float | None]


class ChartTick(msgspec.Struct, frozen=True):
    """A mark of an axis in percent of it; `anchor` keeps its text inside."""

    at: str
    text: str
    anchor: str = "middle"


class ChartRow(msgspec.Struct, frozen=True):
    """A row of the table: its label, its place in the chart in percent, and its cells."""

    label: str
    x: str
    y: str
    cells: tuple[str, ...]


class ForecastChart(msgspec.Struct, frozen=True):
    """Paths in a square of `size`; `bands` are the intervals by level, the widest first.

    `tested` is the forecasts of the backtest, `errors` the lines from them to the actual values, and
    `tested_range` the left edge and the width of the tested values in percent.
    """

    series: str
    mean: str
    bands: dict[str, str]
    tested: str
    errors: str
    tested_range: tuple[str, str] | None
    x_ticks: tuple[ChartTick, ...]
    y_ticks: tuple[ChartTick, ...]
    time_name: str
    columns: tuple[str, ...]
    rows: tuple[ChartRow, ...]
    description: str
    backtest: str
    size: int = SIZE


class _Values(msgspec.Struct, frozen=True):
    """What a chart shows, as points of a place and a value."""

    timeline: Timeline
    series: list[Point]
    mean: list[Point]
    bands: dict[str, tuple[list[Point], list[Point]]]
    windows: list[list[Point]]

    @property
    def every_point(self) -> list[tuple[float, float]]:
        bounds = itertools.chain.from_iterable(itertools.chain.from_iterable(self.bands.values()))
        points = itertools.chain(self.series, self.mean, bounds, *self.windows)
        return [(x, y) for x, y in points if y is not None]


def chart(model: str, inputs: Mapping[str, Any], data: Mapping[str, Any]) -> ForecastChart | None:
    """Return the chart of a forecast, or None for other results and for values that cannot be drawn."""
    if model != MODEL:
        return None
    try:
        return _chart(_read(inputs, data), inputs, data)
    except (ArithmeticError, ValueError):
        # Numbers outside of the range of a float, or times outside of that of dates.
        return None


def _chart(values: _Values, inputs: Mapping[str, Any], data: Mapping[str, Any]) -> ForecastChart | None:
    points = values.every_point
    if not values.mean or not points:
        return None
    x_axis = chart_axes.time_axis(values.timeline, min(x for x, _ in points), max(x for x, _ in points))
    y_axis = chart_axes.value_axis(min(y for _, y in points), max(y for _, y in points))

    def line(points: Iterable[Point]) -> str:
        return _line(points, x_axis, y_axis)

    series = _with_gaps(values.series, values.timeline.interval)
    tested = list(itertools.chain.from_iterable(values.windows))
    actual = dict(values.series)
    # The forecast is connected with the last value of the series, and a backtest with the value before it.
    return ForecastChart(
        series=line(series),
        mean=line([*values.series[-1:], *values.mean]),
        bands={
            level: line([*upper, *reversed(lower)]) + "Z" for level, (lower, upper) in values.bands.items()
        },
        tested="".join(line(window) for window in values.windows),
        errors="".join(line([(x, actual.get(x)), (x, y)]) for x, y in tested),
        tested_range=_range(tested, x_axis),
        x_ticks=_ticks(x_axis),
        y_ticks=tuple(
            ChartTick(f"{100 - y_axis.percent(each.place):.2f}", each.text) for each in y_axis.ticks
        ),
        time_name="Time" if any(chart_axes.time_of(each) is not None for each in _list(inputs)) else "Number",
        columns=(
            "Series",
            "Forecast",
            *(f"{level} % interval" for level in reversed(values.bands)),
            "Backtest",
        ),
        rows=tuple(_rows(values, x_axis, y_axis)),
        description=f"{len(values.series)} values of the series and {len(values.mean)} forecast values, "
        f"between {min(y for _, y in points):.4g} and {max(y for _, y in points):.4g}",
        backtest=_backtest(data),
    )


def _list(inputs: Mapping[str, Any]) -> list[Any]:
    found = inputs.get("series")
    return cast("list[Any]", found) if isinstance(found, list) else []


def _read(inputs: Mapping[str, Any], data: Mapping[str, Any]) -> _Values:
    """Return the values with their places: those of a sorted series, and evenly spaced ones after it."""
    all_points = _sorted(_list(inputs))
    while all_points and _number(all_points[-1]) is None:
        all_points.pop()
    points = list(itertools.dropwhile(lambda each: _number(each) is None, all_points[-_MAX_VALUES:]))
    times = [chart_axes.time_of(each) for each in points]
    timeline = chart_axes.read_timeline(times, len(all_points) - len(points) + 1)
    series = list(zip(timeline.places, map(_number, points), strict=True))
    mean = _numbers(data.get("mean"))[:_MAX_MEAN]
    try:
        ahead = [timeline.step(at + 1) for at in range(len(mean))]
    except (OverflowError, ValueError):  # a date after the year 9999
        timeline = chart_axes.read_timeline([None] * len(points), len(all_points) - len(points) + 1)
        series = list(zip(timeline.places, map(_number, points), strict=True))
        ahead = [timeline.step(at + 1) for at in range(len(mean))]
    return _Values(
        timeline,
        series,
        list(zip(ahead, mean, strict=True)),
        {
            level: (list(zip(ahead, lower, strict=False)), list(zip(ahead, upper, strict=False)))
            for level, (lower, upper) in _intervals(data).items()
        },
        _windows(data, timeline),
    )


def _sorted(points: list[Any]) -> list[Any]:
    """Return the points in the order of their times."""
    times = [chart_axes.time_of(each) for each in points]
    keys: list[Any] = list(chart_axes.read_dates(times))
    if not keys and all(chart_axes.is_number(time) for time in times):
        keys = times
    return [points[at] for at in sorted(range(len(points)), key=keys.__getitem__)] if keys else list(points)


def _windows(data: Mapping[str, Any], timeline: Timeline) -> list[list[Point]]:
    """Return the forecasts of each window of the backtest, at the places of the values that they forecast."""
    found = data.get("backtest")
    result = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    tested, reach = _numbers(result.get("mean")), result.get("horizon")
    if not isinstance(reach, int) or reach < 1:
        return []
    windows: list[list[Point]] = []
    for start in range(0, len(tested), reach):
        places = [_nearest(timeline, timeline.step(start + at + 1 - len(tested))) for at in range(reach)]
        windows.append(
            [(place, y) for place, y in zip(places, tested[start:], strict=False) if place is not None]
        )
    return [window for window in windows if window]


def _nearest(timeline: Timeline, place: float) -> float | None:
    """Return the place of the value that is less than half an interval away, or None."""
    at = bisect.bisect_left(timeline.places, place)
    near = timeline.places[max(0, at - 1) : at + 1]
    best = min(near, key=lambda each: abs(each - place), default=None)
    return best if best is not None and abs(best - place) < timeline.interval / 2 else None


def _with_gaps(series: list[Point], interval: float) -> list[Point]:
    """Insert a gap between two values that are further apart than the others."""
    result: list[Point] = []
    for at, point in enumerate(series):
        if at and point[0] - series[at - 1][0] > _MAX_DISTANCE * interval:
            result.append((point[0], None))
        result.append(point)
    return result


def _intervals(data: Mapping[str, Any]) -> dict[str, tuple[list[float | None], list[float | None]]]:
    """Return the lower and upper values of each level, the widest first."""
    found = data.get("intervals")
    levels = cast("dict[str, dict[str, Any]]", found) if isinstance(found, dict) else {}
    return {
        level: (_numbers(bounds.get("lower"))[:_MAX_MEAN], _numbers(bounds.get("upper"))[:_MAX_MEAN])
        for level, bounds in sorted(levels.items(), key=lambda each: -float(each[0]))
    }


def _numbers(value: object) -> list[float | None]:
    return [_number(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []


def _number(item: object) -> float | None:
    """Return a number; objects have it as `y`."""
    number = cast("dict[str, Any]", item).get("y") if isinstance(item, dict) else item
    return float(number) if isinstance(number, int | float) and math.isfinite(number) else None


def _line(points: Iterable[Point], x_axis: Axis, y_axis: Axis) -> str:
    """Return a path through the points, interrupted at each missing value."""
    parts: list[str] = []
    command = "M"
    for x, y in points:
        if y is None:
            command = "M"
            continue
        left, top = SIZE / 100 * x_axis.percent(x), SIZE / 100 * (100 - y_axis.percent(y))
        parts.append(f"{command}{left:.1f} {top:.1f}")
        command = "L"
    return "".join(parts)


def _range(tested: list[Point], x_axis: Axis) -> tuple[str, str] | None:
    if not tested:
        return None
    left, right = (x_axis.percent(each[0]) for each in (tested[0], tested[-1]))
    return f"{left:.2f}", f"{right - left:.2f}"


def _ticks(axis: Axis) -> tuple[ChartTick, ...]:
    ticks = ((axis.percent(each.place), each.text) for each in axis.ticks)
    return tuple(
        ChartTick(f"{at:.2f}", text, "start" if at < 8 else "end" if at > 92 else "middle")
        for at, text in ticks
    )


def _rows(values: _Values, x_axis: Axis, y_axis: Axis) -> Iterable[ChartRow]:
    tested = dict(itertools.chain.from_iterable(values.windows))
    empty = [""] * len(values.bands)
    for x, y in values.series:
        cells = (_text(y), "", *empty, _text(tested.get(x)))
        yield _row(values.timeline, x_axis, y_axis, (x, y), cells)
    for at, (x, y) in enumerate(values.mean):
        bounds = [
            f"{_text(lower[at][1])} to {_text(upper[at][1])}" if at < min(len(lower), len(upper)) else ""
            for lower, upper in reversed(values.bands.values())
        ]
        yield _row(values.timeline, x_axis, y_axis, (x, y), ("", _text(y), *bounds, ""))


def _row(timeline: Timeline, x_axis: Axis, y_axis: Axis, point: Point, cells: tuple[str, ...]) -> ChartRow:
    x, y = point
    top = "" if y is None else f"{100 - y_axis.percent(y):.2f}"
    return ChartRow(timeline.label(x), f"{x_axis.percent(x):.2f}", top, cells)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


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
    windows, reach = found.get("windows", 0), found.get("horizon", 0)
    relative = f" ({found['smape']:.3g} %)" if "smape" in found else ""
    return (
        f"Backtest: mean absolute error {found['mae']:.3g}{relative} in {windows} "
        f"forecast{'' if windows == 1 else 's'} of {reach} value{'' if reach == 1 else 's'}; {inside}."
    )
