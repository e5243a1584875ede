"""Select the best forecast model by backtesting each model and means of several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from sixfold.engines.forecast import fitting
from sixfold.engines.forecast.models import (
    ComplexSmoothing,
    ExponentialSmoothing,
    ForecastModel,
    SeasonalNaive,
    ThetaModel,
)
from sixfold.engines.forecast.series import Values

COMBINED = "mean of "
_MAX_VALUES = 1200  # the newest; older values add little and each pass takes time
_WINDOWS = 4
_SHORT = 8
_WEIGHT = 10.0  # prior weight of the models' own spread, in values of a backtest
_ROUNDS = 9  # of the search in a backtest, which only compares


@dataclass(frozen=True)
class SelectedForecast:
    """A forecast: the mean and the standard deviation at each step, on the scale of the models."""

    mean: Values
    spread: Values


@dataclass
class BacktestTrial:
    """The errors of one model in the backtest."""

    errors: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    standard: list[float] = field(default_factory=list)

    def add(
        self, forecasts: SelectedForecast, truth: Values, back: Callable[[Values], Values], forward: Values
    ) -> None:
        """Add the errors of one window."""
        mean = back(forecasts.mean)
        self.errors += list(np.abs(mean - truth))
        self.relative += list(2 * np.abs(mean - truth) / np.maximum(np.abs(mean) + np.abs(truth), 1e-12))
        self.standard += list((forward - forecasts.mean) / np.maximum(forecasts.spread, 1e-12))

    @property
    def mae(self) -> float:
        """The mean absolute error."""
        return float(np.mean(self.errors))


@dataclass(frozen=True)
class Forecast:
    """The result: the mean, the bounds of each level, the model's name, the season and the backtest."""

    mean: Values
    bounds: Mapping[float, tuple[Values, Values]]
    model: str
    season: int
    backtest: Mapping[str, Any] | None


def forecast(
    values: Values, horizon: int, season: int, levels: Sequence[float], progress: Callable[[float], None]
) -> Forecast:
    """Forecast a series of evenly spaced values without gaps."""
    values = values[-max(_MAX_VALUES, 3 * season) :]
    if float(np.ptp(values)) <= 1e-12 * float(np.abs(values).max()):
        flat = np.full(horizon, float(values[-1]))
        return Forecast(flat, dict.fromkeys(levels, (flat, flat)), "constant", 1, None)
    season = season if 1 < season <= values.size // 2 else 1
    logged = _prefers_logarithms(values, season)
    scaled = np.log(values) if logged else values
    back: Callable[[Values], Values] = np.exp if logged else _identity
    progress(0.1)
    models = _candidates(scaled, season)
    progress(0.3)
    trials, windows, reach = _backtests(models, scaled, values, horizon, back)
    progress(0.7)
    chosen = (
        min(trials, key=lambda name: trials[name].mae * (0.97 if name.startswith(COMBINED) else 1))
        if trials
        else ""
    )
    members = [model for model in models if not chosen or _is_in(model, chosen)]
    forecasts = _average([_forecast_with(model, scaled, horizon, fitting.ROUNDS) for model in members])
    factor = _factor(trials[chosen], windows) if trials else 1.0
    spread = forecasts.spread * factor * math.sqrt(1 + 1 / values.size)
    reaches = {level: NormalDist().inv_cdf(0.5 + level / 200) * spread for level in levels}
    bounds = {level: (back(forecasts.mean - by), back(forecasts.mean + by)) for level, by in reaches.items()}
    name = chosen or (
        members[0].name if len(members) == 1 else COMBINED + ", ".join(model.name for model in members)
    )
    tested = _backtest(trials, chosen, levels, (windows, reach), factor) if trials else None
    return Forecast(back(forecasts.mean), bounds, name, season, tested)


def _identity(values: Values) -> Values:
    return values


def _is_in(model: ForecastModel, chosen: str) -> bool:
    return model.name == chosen or (
        chosen.startswith(COMBINED) and model.name in chosen.removeprefix(COMBINED).split(" + ")
    )


def _prefers_logarithms(values: Values, season: int) -> bool:
    """Return whether the logarithms of a positive series fit better, by likelihood of one model."""
    if values.min() <= 0 or values.size < _SHORT:
        return False
    model = ExponentialSmoothing("A", season)
    plain = fitting.fit(model, values, _ROUNDS).score
    logged = fitting.fit(model, np.log(values), _ROUNDS).score + 2 * float(np.log(values).sum())
    return logged < plain


def _candidates(values: Values, season: int) -> list[ForecastModel]:
    """Return the candidates: seasonal naive, Theta, the best exponential smoothing, complex smoothing."""
    naive: ForecastModel = SeasonalNaive(season) if season > 1 else SeasonalNaive(1, "naive")
    if values.size < _SHORT:
        return [naive, ThetaModel(1)] if values.size > 3 else [naive]
    kinds: list[ForecastModel] = [
        ExponentialSmoothing(trend, period) for trend in ("N", "A", "Ad") for period in {1, season}
    ]
    smooth = min(kinds, key=lambda model: fitting.fit(model, values, _ROUNDS).score)
    return [naive, ThetaModel(season), smooth, ComplexSmoothing(season)]


def _forecast_with(model: ForecastModel, values: Values, horizon: int, rounds: int) -> SelectedForecast:
    return SelectedForecast(*fitting.fit(model, values, rounds).ahead(horizon))


def _average(forecasts: Sequence[SelectedForecast]) -> SelectedForecast:
    """Average several forecasts; their errors are treated as fully correlated."""
    return SelectedForecast(
        np.mean([one.mean for one in forecasts], axis=0), np.mean([one.spread for one in forecasts], axis=0)
    )


def _backtests(
    models: Sequence[ForecastModel],
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
        forecasts = {model.name: _forecast_with(model, scaled[:origin], reach, _ROUNDS) for model in models}
        for name, one in (forecasts | _means(forecasts)).items():
            trials.setdefault(name, BacktestTrial()).add(one, truth, back, forward)
    return trials, windows, reach


def _means(forecasts: Mapping[str, SelectedForecast]) -> dict[str, SelectedForecast]:
    """Return the mean forecasts of each pair of models and of all models, except naive ones."""
    eligible = [name for name in forecasts if "naive" not in name]
    groups = (
        [eligible[:2], eligible[1:], eligible[::2], eligible]
        if len(eligible) > 2
        else [eligible] * (len(eligible) > 1)
    )
    return {COMBINED + " + ".join(group): _average([forecasts[name] for name in group]) for group in groups}


def _factor(trial: BacktestTrial, windows: int) -> float:
    """Return the factor by which the backtest widens the models' spread."""
    errors = np.clip(np.array(trial.standard), -6, 6)
    count = min(errors.size, 6.0 * windows)  # errors within a window are correlated
    return float(np.clip(np.sqrt((count * np.mean(errors**2) + _WEIGHT) / (count + _WEIGHT)), 0.85, 2.0))


def _backtest(
    trials: Mapping[str, BacktestTrial],
    chosen: str,
    levels: Sequence[float],
    seen: tuple[int, int],
    factor: float,
) -> dict[str, Any]:
    """Return the backtest in the result's format."""
    best = trials[chosen]
    within = {
        f"{level:g}": round(
            float(np.mean(np.abs(best.standard) <= factor * NormalDist().inv_cdf(0.5 + level / 200))), 3
        )
        for level in levels
    }
    return {
        "windows": seen[0],
        "horizon": seen[1],
        "mae": float(f"{best.mae:.6g}"),
        "smape": round(100 * float(np.mean(best.relative)), 3),
        "coverage": within,
        "models": {name: float(f"{trial.mae:.6g}") for name, trial in trials.items()},
    }
