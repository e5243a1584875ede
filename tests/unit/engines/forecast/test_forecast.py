"""Forecasts of series with a known continuation, edge cases, and the coverage of intervals."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.forecast import arima, seasonality, series
from sixfold.engines.forecast.engine import ForecastEngine
from tests.unit.engines.engine_runs import RunContext


def run_forecast(folder: Path, values: Any, horizon: int = 12, **inputs: Any) -> dict[str, Any]:
    value = list(values) if not isinstance(values, np.ndarray) else values.tolist()
    task = Task("t", "forecast", {"series": value, "horizon": horizon, "levels": [80, 95], **inputs})
    return dict(ForecastEngine().run(task, RunContext(folder)).data)


def wave(count: int, period: int = 12) -> NDArray[np.float64]:
    return 10 * np.sin(np.arange(count) * 2 * np.pi / period)


def test_season_on_a_linear_trend_is_continued(tmp_path: Path) -> None:
    truth = 50 + 0.7 * np.arange(108) + wave(108)
    response = run_forecast(tmp_path, truth[:96])
    assert response["season_length"] == 12
    assert np.allclose(response["mean"], truth[96:], rtol=0.03)


def test_growing_season_is_continued(tmp_path: Path) -> None:
    at = np.arange(120)
    rng = np.random.default_rng(2)
    truth = 100 * np.exp(0.01 * at + 0.2 * np.sin(at * np.pi / 6) + 0.02 * rng.standard_normal(120))
    response = run_forecast(tmp_path, truth[:108])
    error = np.abs(np.array(response["mean"]) - truth[108:]) / truth[108:]
    assert error.mean() < 0.04
    assert np.array(response["intervals"]["95"]["lower"]).min() > 0


@pytest.mark.nightly
def test_interval_contains_the_truth_as_often_as_stated(tmp_path: Path) -> None:
    hits: dict[str, list[float]] = {"80": [], "95": []}
    for seed in range(14):
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal(92)
        truth = 100 + 3 * noise + (np.cumsum(2 * noise) if seed % 2 else wave(92))
        response = run_forecast(tmp_path, truth[:80])
        for level, bounds in response["intervals"].items():
            inside = (truth[80:] >= bounds["lower"]) & (truth[80:] <= bounds["upper"])
            hits[level].append(float(inside.mean()))
    assert np.mean(hits["80"]) == pytest.approx(0.80, abs=0.12)
    assert np.mean(hits["95"]) == pytest.approx(0.95, abs=0.06)


def test_intervals_contain_mean_and_widen_with_level_and_time(tmp_path: Path) -> None:
    values = np.cumsum(np.random.default_rng(1).standard_normal(90))
    response = run_forecast(tmp_path, values, levels=[50, 80, 99])
    assert list(response["intervals"]) == ["50", "80", "99"]
    widths = [
        np.subtract(response["intervals"][name]["upper"], response["intervals"][name]["lower"])
        for name in ("50", "80", "99")
    ]
    assert all((wide > narrow).all() for narrow, wide in itertools.pairwise(widths))
    assert (np.diff(widths[1]) >= -1e-9).all()
    assert widths[1][-1] > 1.5 * widths[1][0]


def test_backtest_reports_the_error_of_each_model(tmp_path: Path) -> None:
    response = run_forecast(tmp_path, 50 + wave(96) + np.random.default_rng(0).standard_normal(96))
    backtest = response["backtest"]
    assert backtest["windows"] >= 3
    assert response["model"] in backtest["models"]
    assert backtest["mae"] == backtest["models"][response["model"]]
    assert backtest["mae"] < backtest["models"]["seasonal naive"]
    assert set(backtest["coverage"]) == {"80", "95"}
    assert len(backtest["mean"]) == backtest["windows"] * backtest["horizon"]


def backtest_error(response: dict[str, Any], values: NDArray[np.float64]) -> float:
    """Return the mean absolute error of the forecasts that a backtest lists."""
    forecasts = np.array(response["backtest"]["mean"])
    return float(np.abs(forecasts - values[-forecasts.size :]).mean())


def test_backtest_forecasts_the_last_values_of_the_series(tmp_path: Path) -> None:
    values = 50 + wave(96) + np.random.default_rng(0).standard_normal(96)
    response = run_forecast(tmp_path, values)
    assert backtest_error(response, values) == pytest.approx(response["backtest"]["mae"], rel=1e-3)


@pytest.mark.parametrize(
    "values",
    [[1, 2], [3, 3, 3, 3], [5, -5, 5], [0.0] * 50, [-3, -2.5, -4, -3.5, -3], [1e9, 2e9, 1.5e9, 2.2e9]],
)
def test_short_flat_and_negative_series_are_forecast(tmp_path: Path, values: list[float]) -> None:
    response = run_forecast(tmp_path, values, horizon=5)
    lower, upper = (np.array(response["intervals"]["80"][side]) for side in ("lower", "upper"))
    assert np.isfinite(response["mean"]).all()
    assert (lower <= response["mean"]).all()
    assert (upper >= response["mean"]).all()
    assert len(response["mean"]) == 5


def test_constant_series_has_a_forecast_without_an_interval(tmp_path: Path) -> None:
    response = run_forecast(tmp_path, [7.0] * 30, horizon=1000)
    assert response["model"] == "constant"
    assert response["mean"] == [7.0] * 1000
    assert response["intervals"]["95"]["upper"][-1] == 7.0


def test_gaps_are_filled_by_season_and_neighbors(tmp_path: Path) -> None:
    truth = 50 + wave(108)
    holes: list[float | None] = list(truth[:96])
    for at in (5, 17, 18, 40, 41, 42, 77):
        holes[at] = None
    response = run_forecast(tmp_path, holes, season_length=12)
    assert np.allclose(response["mean"], truth[96:], atol=1.0)


def test_timestamps_order_values_and_reveal_gaps(tmp_path: Path) -> None:
    points = [
        {"t": f"{2015 + at // 12}-{at % 12 + 1:02d}-01", "y": 50 + value} for at, value in enumerate(wave(96))
    ]
    missing = [point for at, point in enumerate(points) if at not in (30, 31, 60)]
    shuffled = [*missing[50:], *missing[:50]]
    assert series.read(shuffled).size == 96
    assert np.isnan(series.read(shuffled)[[30, 31, 60]]).all()
    response = run_forecast(tmp_path, shuffled)
    assert response["season_length"] == 12
    assert np.allclose(response["mean"], 50 + wave(108)[96:], atol=1.0)


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([1], "at least 2"),
        ([None, 5, None], "at least 2"),
        ([{"t": 1, "y": 2}, {"t": 1, "y": 3}], "more than one value for the time 1"),
        ([{"t": "soon", "y": 2}, {"t": "later", "y": 3}], "must be a number or a date"),
        ([1, {"t": 1, "y": 2}], "mixes"),
        ([1, 1e200], "at most 1e150"),
    ],
)
def test_unusable_series_is_refused_with_a_sentence(tmp_path: Path, points: list[Any], says: str) -> None:
    with pytest.raises(UnusableInput, match=says):
        run_forecast(tmp_path, points)


@pytest.mark.parametrize("period", [4, 7, 12, 24])
def test_season_is_detected_and_noise_has_none(period: int) -> None:
    rng = np.random.default_rng(period)
    noise = rng.standard_normal(12 * period)
    assert seasonality.length(0.1 * np.arange(noise.size) + wave(noise.size, period) + 2 * noise) == period
    assert seasonality.length(noise) == 1


def test_step_is_not_detected_as_a_season(tmp_path: Path) -> None:
    response = run_forecast(tmp_path, [1.0] * 30 + [100.0] * 30, 5)
    assert (response["season_length"], np.allclose(response["mean"], 100, rtol=0.05)) == (1, True)
    assert seasonality.length(50 + 0.7 * np.arange(24) + wave(24)) == 12


@pytest.mark.parametrize(("level", "size"), [(0.0, 1e-9), (1e7, 1.0)])
def test_seasonality_is_found_in_small_numbers_and_changes(tmp_path: Path, level: float, size: float) -> None:
    truth = level + size * wave(132)
    response = run_forecast(tmp_path, truth[:120])
    assert response["season_length"] == 12
    assert np.allclose(response["mean"], truth[120:], rtol=0, atol=size)


def test_the_same_series_has_the_same_forecast(tmp_path: Path) -> None:
    values = 50 + wave(60) + np.random.default_rng(0).standard_normal(60)
    assert run_forecast(tmp_path, values) == run_forecast(tmp_path, values)


@pytest.mark.nightly
def test_two_seasons_are_found_and_continued(tmp_path: Path) -> None:
    at = np.arange(24 * 7 * 6)
    rng = np.random.default_rng(4)
    truth = 100 + wave(at.size, 24) + 8.0 * ((at // 24) % 7 >= 5) + rng.standard_normal(at.size)
    response = run_forecast(tmp_path, truth[:-48], horizon=48)
    assert response["seasons"] == [24, 168]
    error = backtest_error(response, truth[:-48])
    assert error == pytest.approx(response["backtest"]["mae"], rel=1e-3)
    assert np.abs(np.array(response["mean"]) - truth[-48:]).mean() < 1.5


@pytest.mark.parametrize(("season", "longer"), [(7, 365), (24, 168), (48, 336)])
def test_a_slow_season_is_found_at_its_common_length(season: int, longer: int) -> None:
    steps = np.arange(4000)
    noise = np.random.default_rng(season).normal(0, 2, steps.size)
    values = wave(steps.size, season) + 5 * np.sin(2 * np.pi * steps / longer) + noise
    assert (seasonality.length(values), seasonality.second(values, season)) == (season, longer)


def test_season_with_a_random_walk_or_growth_has_no_second_one() -> None:
    steps = np.arange(600)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        values = wave(steps.size) + np.cumsum(rng.normal(0, 0.3, steps.size))
        growing = 20 * np.exp(0.004 * steps + 0.02 * wave(steps.size)) + rng.normal(0, 1, steps.size)
        assert (seasonality.second(values, 12), seasonality.second(growing, 12)) == (0, 0)


def test_a_random_walk_has_no_season() -> None:
    for seed in range(5):
        assert seasonality.length(np.cumsum(np.random.default_rng(seed).standard_normal(300))) == 1


@pytest.mark.parametrize(
    ("ar", "ma", "differences"), [((0.7,), (), ()), ((), (0.6,), (1,)), ((0.5, -0.6), (), ())]
)
def test_arima_recovers_the_process_of_a_series(
    ar: tuple[float, ...], ma: tuple[float, ...], differences: tuple[int, ...]
) -> None:
    noise = np.random.default_rng(3).standard_normal(400)
    series_ = np.zeros(400)
    for at in range(2, 400):
        series_[at] = noise[at]
        series_[at] += sum(weight * series_[at - lag] for lag, weight in enumerate(ar, 1))
        series_[at] += sum(weight * noise[at - lag] for lag, weight in enumerate(ma, 1))
    series_ = np.cumsum(series_) if differences else series_
    model = arima.select(series_, 1)
    assert model is not None
    assert model.differences == differences
    _, spread = model.forecast(series_, 30)
    assert spread[0] == pytest.approx(1, rel=0.1)
    if not differences:
        assert spread[-1] == pytest.approx(series_.std(), rel=0.15)


def test_arima_is_chosen_where_it_forecasts_best(tmp_path: Path) -> None:
    noise = np.random.default_rng(8).standard_normal(240)
    values = np.zeros(240)
    for at in range(2, 240):
        values[at] = 1.6 * values[at - 1] - 0.9 * values[at - 2] + noise[at]
    response = run_forecast(tmp_path, 50 + values[:228], season_length=1)
    assert "ARIMA" in response["model"]
    assert response["backtest"]["models"]["ARIMA"] < response["backtest"]["models"]["Theta"]
