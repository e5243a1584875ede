"""Parsing of a series into evenly spaced numbers, sorted by time, with gaps filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import UnusableInput

Values = NDArray[np.float64]

MIN_VALUES = 2
_MAX_STEPS = 20_000
_MIXED = "The series mixes numbers with objects that have t and y: use one form for all values."
_TOLERANCE = 0.34  # the maximum deviation of a time from the grid, as a fraction of a step


def read(points: Sequence[Any]) -> Values:
    """Return the values at even steps, NaN for gaps; raises `UnusableInput`."""
    values = _on_grid(points) if isinstance(points[0], Mapping) else _numbers(points)
    indices = np.flatnonzero(np.isfinite(values))
    if indices.size < MIN_VALUES:
        raise UnusableInput("A forecast requires a series of at least 2 values.")
    if np.abs(values[indices]).max() > 1e150:
        raise UnusableInput("The values of the series must be at most 1e150 in magnitude.")
    return values[indices[0] : indices[-1] + 1]


def fill_gaps(values: Values, season: int) -> Values:
    """Fill gaps by linear interpolation on top of the seasonal means."""
    finite = np.isfinite(values)
    if finite.all():
        return values
    positions = np.arange(values.size)
    usual = np.zeros(values.size)
    if season > 1:
        level = float(np.nanmean(values))
        phases = [values[at::season][finite[at::season]] for at in range(season)]
        usual = np.array([part.mean() - level if part.size else 0.0 for part in phases])[positions % season]
    flat = values - usual
    return np.interp(positions, positions[finite], flat[finite]) + usual


def _numbers(points: Sequence[Any]) -> Values:
    if any(isinstance(point, Mapping) for point in points):
        raise UnusableInput(_MIXED)
    return np.array([np.nan if point is None else float(point) for point in points])


def _on_grid(points: Sequence[Any]) -> Values:
    """Return the values of {t, y} points on the grid of their times."""
    if not all(isinstance(point, Mapping) for point in points):
        raise UnusableInput(_MIXED)
    raw_times = _times([point["t"] for point in points])
    values = np.array([np.nan if point["y"] is None else float(point["y"]) for point in points])
    order = np.argsort(raw_times, kind="stable")
    times, values = raw_times[order], values[order]
    if times.size < MIN_VALUES:
        return values
    steps = np.diff(times)
    if not steps.all():
        index = int(order[int(np.flatnonzero(steps == 0)[0]) + 1])
        raise UnusableInput(
            f"The series has more than one value for the time {str(points[index]['t'])[:40]}."
        )
    positions = (times - times[0]) / np.median(steps)
    grid = np.rint(positions)
    if np.abs(positions - grid).max() > _TOLERANCE or np.diff(grid).min() < 1:
        return values  # not evenly spaced: only the order is used
    if grid[-1] >= _MAX_STEPS:
        raise UnusableInput(f"The series must span at most {_MAX_STEPS:,} steps.")
    grid_values = np.full(int(grid[-1]) + 1, np.nan)
    grid_values[grid.astype(int)] = values
    return grid_values


def _times(moments: Sequence[Any]) -> Values:
    """Return times as numbers: dates in seconds, or in months if all are the same day of a month."""
    if all(isinstance(moment, int | float) for moment in moments):
        return np.array(moments, float)
    dates = [_date(str(moment)) for moment in moments]
    if len({(date.day, date.hour, date.minute) for date in dates}) == 1:
        return np.array([date.year * 12.0 + date.month for date in dates])
    return np.array([date.timestamp() for date in dates])


def _date(text: str) -> datetime:
    for iso_date in (text, f"{text}-01", f"{text}-01-01"):
        try:
            moment = datetime.fromisoformat(iso_date)
        except ValueError:
            continue
        return moment.replace(tzinfo=moment.tzinfo or UTC)
    raise UnusableInput(f"The time {text[:40]!r} must be a number or a date such as 2026-05-31.")
