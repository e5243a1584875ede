"""Selection of the best forecast model by backtests of each model and of means of several models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.engines.forecast import arima, fitting, seasonality
from sixfold.engines.forecast.arima import ArimaModel
from sixfold.engines.forecast.models import (
    ComplexSmoothing,
    ExponentialSmoothing,
    ForecastModel,
    SeasonalNaive,
    ThetaModel,
)
from sixfold.engines.forecast.series import Values

Candidate = ForecastModel | ArimaModel

COMBINED = "mean of "
_MAX_VALUES = 800  # only the newest are used: older values add little, and each pass takes time
_MAX_COMPARED = 400  # values used to compare models of one kind
_WINDOWS = 4
_SHORT = 8
_WEIGHT = 10.0  # prior weight of the spread that the models predict, in values of a backtest
# Errors of real series have heavier tails than the normal distribution: Student's t with 4 degrees of
# freedom, scaled so that 80 % intervals do not change.
_SCALE = 0.836
_ROUNDS = 9  # rounds of a search in a backtest, which only compares models
_LATER_ROUNDS = 4  # rounds of a search that starts from earlier parameters


class SelectedForecast(msgspec.Struct, frozen=True):
    """A forecast: the mean and the standard deviation at each step, on the scale of the models."""

    mean: Values
    spread: Values


class BacktestTrial(msgspec.Struct):
    """The forecasts and the errors of one model in the backtest."""

    means: list[float] = []
    errors: list[float] = []
    relative: list[float] = []
    standard: list[float] = []

    def add(
        self, forecasts: SelectedForecast, truth: Values, back: Callable[[Values], Values], forward: Values
    ) -> None:
        mean = back(forecasts.mean)
        self.means += [float(each) for each in mean]
        self.errors += list(np.abs(mean - truth))
        self.relative += list(2 * np.abs(mean - truth) / np.maximum(np.abs(mean) + np.abs(truth), 1e-12))
        self.standard += list((forward - forecasts.mean) / np.maximum(forecasts.spread, 1e-12))

    @property
    def mae(self) -> float:
        """The mean absolute error."""
        return float(np.mean(self.errors))


class Forecast(msgspec.Struct, frozen=True):
    """The result: the mean, the bounds of each level, the model's name, the season and the backtest."""

    mean: Values
    bounds: Mapping[float, tuple[Values, Values]]
    model: str
    seasons: tuple[int, ...]
    backtest: Mapping[str, Any] | None

    @property
    def season(self) -> int:
        """The shortest season."""
        return self.seasons[0]


def forecast(
    values: Values,
    horizon: int,
    season: int,
    levels: Sequence[float],
    progress: Callable[[float], None],
    longer: int = 0,
) -> Forecast:
    """Forecast a series of evenly spaced values without gaps; `longer` is the length of a second season."""
    if longer:
        residuals = values - np.resize(seasonality.phases(values, season), values.size)
        extra = np.resize(seasonality.phases(residuals, longer), values.size + horizon)
        past, ahead = extra[: values.size], extra[values.size :]
        flat = forecast(values - past, horizon, season, levels, progress)
        bounds = {level: (low + ahead, high + ahead) for level, (low, high) in flat.bounds.items()}
        tested = flat.backtest and {
            **flat.backtest,
            "mean": _rounded(
                mean + by
                for mean, by in zip(flat.backtest["mean"], past[-len(flat.backtest["mean"]) :], strict=True)
            ),
        }
        return replace(
            flat, mean=flat.mean + ahead, bounds=bounds, seasons=(*flat.seasons, longer), backtest=tested
        )
    values = values[-max(_MAX_VALUES, 3 * season) :]
    if float(np.ptp(values)) <= 1e-12 * float(np.abs(values).max()):
        flat = np.full(horizon, float(values[-1]))
        return Forecast(flat, dict.fromkeys(levels, (flat, flat)), "constant", (1,), None)
    season = season if 1 < season <= values.size // 2 else 1
    logged = _prefers_logarithms(values, season)
    scaled = np.log(values) if logged else values
    back: Callable[[Values], Values] = np.exp if logged else _identity
    progress(0.1)
    models = _candidates(scaled, season)
    fitter = _Fitter()
    progress(0.3)
    trials, windows, reach = _backtests(models, fitter, scaled, values, horizon, back)
    progress(0.7)
    selected = (
        min(trials, key=lambda name: trials[name].mae * (0.97 if name.startswith(COMBINED) else 1))
        if trials
        else ""
    )
    members = [model for model in models if not selected or _is_in(model, selected)]
    forecasts = _average([fitter.forecast(model, scaled, horizon) for model in members])
    factor = _factor(trials[selected], windows) if trials else 1.0
    spread = forecasts.spread * factor * math.sqrt(1 + 1 / values.size)
    reaches = {level: _quantile(level) * spread for level in levels}
    bounds = {level: (back(forecasts.mean - by), back(forecasts.mean + by)) for level, by in reaches.items()}
    name = selected or (
        members[0].name if len(members) == 1 else COMBINED + ", ".join(model.name for model in members)
    )
    tested = _backtest(trials, selected, levels, (windows, reach), factor) if trials else None
    return Forecast(back(forecasts.mean), bounds, name, (season,), tested)


def _identity(values: Values) -> Values:
    return values


def _is_in(model: Candidate, choice: str) -> bool:
    return model.name == choice or (
        choice.startswith(COMBINED) and model.name in choice.removeprefix(COMBINED).split(" + ")
    )


def _prefers_logarithms(values: Values, season: int) -> bool:
    """Return whether the logarithms of a positive series fit better, by the likelihood of one model."""
    if values.min() <= 0 or values.size < _SHORT:
        return False
    model = ExponentialSmoothing("A", season)
    values = values[-max(_MAX_COMPARED, 3 * season) :]
    plain = fitting.fit(model, values, _ROUNDS).score
    logged = fitting.fit(model, np.log(values), _ROUNDS).score + 2 * float(np.log(values).sum())
    return logged < plain


def _candidates(values: Values, season: int) -> list[Candidate]:
    """Return seasonal naive, Theta, the best exponential smoothing, complex smoothing and ARIMA models."""
    naive: Candidate = SeasonalNaive(season) if season > 1 else SeasonalNaive(1, "naive")
    if values.size < _SHORT:
        return [naive, ThetaModel(1)] if values.size > 3 else [naive]
    kinds: list[ForecastModel] = [
        ExponentialSmoothing(trend, period) for trend in ("N", "A", "Ad") for period in {1, season}
    ]
    newest = values[-max(_MAX_COMPARED, 3 * season) :]
    smooth = min(kinds, key=lambda model: fitting.fit(model, newest, _ROUNDS).score)
    arima_model = arima.select(values, season)
    return [
        naive,
        ThetaModel(season),
        smooth,
        ComplexSmoothing(season),
        *((arima_model,) if arima_model else ()),
    ]


class _Fitter:
    """Fits models to growing parts of a series; each search starts from the previous parameters."""

    def __init__(self) -> None:
        self._sets: dict[str, Any] = {}

    def forecast(self, model: Candidate, values: Values, horizon: int) -> SelectedForecast:
        if isinstance(model, ArimaModel):
            return SelectedForecast(*model.forecast(values, horizon))
        start = self._sets.get(model.name)
        fitted = fitting.fit(model, values, _ROUNDS if start is None else _LATER_ROUNDS, start)
        self._sets[model.name] = fitted.sets
        return SelectedForecast(*fitted.ahead(horizon))


def _average(forecasts: Sequence[SelectedForecast]) -> SelectedForecast:
    """Average several forecasts; their errors are treated as fully correlated."""
    return SelectedForecast(
        np.mean([each.mean for each in forecasts], axis=0),
        np.mean([each.spread for each in forecasts], axis=0),
    )


def _backtests(
    models: Sequence[Candidate],
    fitter: _Fitter,
    scaled: Values,
    values: Values,
    horizon: int,
    back: Callable[[Values], Values],
) -> tuple[dict[str, BacktestTrial], int, int]:
    """Backtest the models and their means; returns the trials, the number of windows and their horizon."""
    season = max(model.season for model in models)
    reach = max(1, min(horizon, values.size // 5, 2 * season if season > 1 else 12))
    least = max(2 * season + 2, values.size // 2, 6)
    windows = min(_WINDOWS, (values.size - least) // reach)
    trials: dict[str, BacktestTrial] = {}
    for window in range(windows, 0, -1):
        origin = values.size - window * reach
        truth, forward = values[origin : origin + reach], scaled[origin : origin + reach]
        forecasts = {model.name: fitter.forecast(model, scaled[:origin], reach) for model in models}
        for name, candidate in (forecasts | _means(forecasts)).items():
            trials.setdefault(name, BacktestTrial()).add(candidate, truth, back, forward)
    return trials, windows, reach


def _means(forecasts: Mapping[str, SelectedForecast]) -> dict[str, SelectedForecast]:
    """Return the mean forecasts of each pair of models and of all models, except naive models."""
    eligible = [name for name in forecasts if "naive" not in name]
    groups = [*itertools.combinations(eligible, 2), *([tuple(eligible)] if len(eligible) > 2 else [])]
    return {COMBINED + " + ".join(group): _average([forecasts[name] for name in group]) for group in groups}


def _factor(trial: BacktestTrial, windows: int) -> float:
    """Return the factor by which the backtest widens the models' spread."""
    errors = np.clip(np.array(trial.standard), -6, 6)
    count = min(errors.size, 6.0 * windows)  # errors within a window are correlated
    return float(np.clip(np.sqrt((count * np.mean(errors**2) + _WEIGHT) / (count + _WEIGHT)), 0.85, 2.0))


def _quantile(level: float) -> float:
    """Return the half width of an interval of `level` percent for a spread of 1."""
    below = 0.5 + level / 200
    root = math.sqrt(4 * below * (1 - below))
    return _SCALE * 2 * math.sqrt(max(0.0, math.cos(math.acos(root) / 3) / root - 1))


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _backtest(
    trials: Mapping[str, BacktestTrial],
    chosen: str,
    levels: Sequence[float],
    seen: tuple[int, int],
    factor: float,
) -> dict[str, Any]:
    best = trials[chosen]
    within = {
        f"{level:g}": round(float(np.mean(np.abs(best.standard) <= factor * _quantile(level))), 3)
        for level in levels
    }
    return {
        "windows": seen[0],
        "horizon": seen[1],
        "mae": float(f"{best.mae:.6g}"),
        "smape": round(100 * float(np.mean(best.relative)), 3),
        "coverage": within,
        "mean": _rounded(best.means),
        "models": {name: float(f"{trial.mae:.6g}") for name, trial in trials.items()},
    }
