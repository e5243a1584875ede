"""Charts of forecasts: round ticks, times, gaps, backtests, and values that cannot be drawn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sixfold.ui.predictions import chart_axes, forecast_chart

START = datetime(2026, 5, 4, tzinfo=UTC)


def forecast(count: int, **more: Any) -> dict[str, Any]:
    mean = [float(at) for at in range(count)]
    bounds = {"lower": [each - 1 for each in mean], "upper": [each + 1 for each in mean]}
    return {"mean": mean, "intervals": {"80": bounds}, "backtest": None} | more


def chart(series: list[Any], data: dict[str, Any]) -> forecast_chart.ForecastChart:
    drawn = forecast_chart.chart("forecast", {"series": series}, data)
    assert drawn is not None
    return drawn


@pytest.mark.parametrize(
    ("lowest", "highest", "texts"),
    [
        (12, 43, ["10", "20", "30", "40", "50"]),
        (-3, 4, ["−4", "−2", "0", "2", "4"]),
        (0.12, 0.14, ["0.120", "0.125", "0.130", "0.135", "0.140"]),
        (801, 1615, ["800", "1,000", "1,200", "1,400", "1,600", "1,800"]),
        (7, 7, ["6.0", "6.5", "7.0", "7.5", "8.0"]),
        (-1e300, 1e300, ["-1e+300", "-5e+299", "0", "5e+299", "1e+300"]),
    ],
)
def test_ticks_of_values_are_round(lowest: float, highest: float, texts: list[str]) -> None:
    assert [tick.text for tick in chart_axes.value_axis(lowest, highest).ticks] == texts


@pytest.mark.parametrize(
    ("step", "count", "texts"),
    [
        (timedelta(minutes=5), 24, ["4 May", "00:30", "01:00", "01:30", "02:00"]),
        (timedelta(hours=1), 60, ["4 May", "12:00", "5 May", "12:00", "6 May", "12:00"]),
        (timedelta(days=1), 30, ["4 May", "11 May", "18 May", "25 May", "1 Jun"]),
        (timedelta(days=7), 100, ["Jul 2026", "Jan 2027", "Jul 2027", "Jan 2028"]),
        (timedelta(days=365), 40, ["2030", "2040", "2050", "2060"]),
    ],
)
def test_ticks_of_dates_are_starts_of_periods(step: timedelta, count: int, texts: list[str]) -> None:
    series = [{"t": (START + at * step).isoformat(), "y": at} for at in range(count)]
    assert [tick.text for tick in chart(series, forecast(3)).x_ticks] == texts


def test_months_continue_after_the_series_and_gaps_interrupt_it() -> None:
    months = ["2025-11", "2025-12", "2025-08", "2025-09"]
    drawn = chart([{"t": month, "y": at} for at, month in enumerate(months)], forecast(2))
    labels = [row.label for row in drawn.rows]
    assert labels == ["Aug 2025", "Sep 2025", "Nov 2025", "Dec 2025", "Jan 2026", "Feb 2026"]
    assert (drawn.series.count("M"), drawn.time_name) == (2, "Time")


def test_backtest_is_beside_the_values_that_it_forecasts() -> None:
    result = {"windows": 2, "horizon": 2, "mae": 0.5, "smape": 4.0, "coverage": {"80": 0.75}}
    data = forecast(2, backtest=result | {"mean": [2.5, 3.5, 4.5, 5.5]})
    drawn = chart([0, 1, 2, 3, None, 5, None], data)
    assert [row.cells[-1] for row in drawn.rows] == ["", "", "2.5", "3.5", "4.5", "5.5", "", ""]
    # The value that is missing has a forecast without an error.
    assert [path.count("M") for path in (drawn.tested, drawn.errors)] == [2, 4]
    assert drawn.errors.count("L") == 3
    assert "error 0.5 (4 %) in 2 forecasts of 2 values; 75 % within the 80 % interval" in drawn.backtest
    assert len(chart([None, "x", 1, 2], data).rows) == 4
    stored_by_an_older_engine = chart([0, 1, 2, 3], forecast(2, backtest=result))
    assert (stored_by_an_older_engine.tested, stored_by_an_older_engine.tested_range) == ("", None)


@pytest.mark.parametrize(
    "series",
    [
        [],
        [1],
        [{"t": 5, "y": 1}, {"t": 5.5, "y": None}, {"t": 6, "y": 3}],
        [{"t": "9999-11-01", "y": 1}, {"t": "9999-12-01", "y": 2}],
        [{"t": "never", "y": 1}, {"t": True, "y": 2}],
        [{"t": "2026-01-31", "y": 1}, {"t": "2026-02-28", "y": 2}, {"t": "2026-03-31", "y": 2}],
        [1, "text", {}, 1e300, -1e300],
        list(range(20_000)),
    ],
)
def test_unusual_series_are_drawn(series: list[Any]) -> None:
    drawn = chart(series, forecast(3))
    assert len(drawn.rows) == min(240, len(series)) + 3
    assert all(0 <= float(row.x) <= 100 for row in drawn.rows)


def test_results_without_numbers_are_not_drawn() -> None:
    assert forecast_chart.chart("forecast", {}, {"mean": []}) is None
    assert forecast_chart.chart("forecast", {}, {"mean": ["x"]}) is None
    assert forecast_chart.chart("embeddings", {}, forecast(3)) is None


@pytest.mark.parametrize(
    "series",
    [
        [5e-324, 0.0],
        [1.7e308, -1.7e308],
        [1, 10**400],
        [{"t": 10**400, "y": 1}, {"t": 10**400 + 1, "y": 2}],
        [{"t": -1.7e308, "y": 1}, {"t": 1.7e308, "y": 2}],
    ],
)
def test_numbers_outside_of_the_range_of_a_float_are_not_drawn(series: list[Any]) -> None:
    assert forecast_chart.chart("forecast", {"series": series}, forecast(0, mean=[series[0]])) is None


@pytest.mark.parametrize(
    "times",
    [
        [f"9999-12-{day}" for day in range(28, 32)],
        ["2026-01-01T00:00:00+14:00", "9999-12-31T23:00:00-12:00"],
        ["2026-01-01T00:00:00-12:00", "0001-01-01T00:00:00+12:00"],
    ],
)
def test_times_outside_of_the_range_of_dates_are_numbered(times: list[str]) -> None:
    drawn = chart([{"t": time, "y": at} for at, time in enumerate(times)], forecast(2))
    assert [row.label for row in drawn.rows] == [str(at + 1) for at in range(len(times) + 2)]
