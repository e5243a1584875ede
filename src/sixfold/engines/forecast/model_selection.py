"""Which form foretells a series best: each is tried where the answer is known, and so is their mean."""

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
_MOST_VALUES = 1200  # the newest; what lies before says little, and every pass costs
_WINDOWS = 4
_SHORT = 8
_WEIGHT = 10.0  # of the belief that the forms' own spread is right, in values of a backtest
_ROUNDS = 9  # of the search in a backtest, which only compares


@dataclass(frozen=True)
class SelectedForecast:
    """What is foretold: the mean and the spread at each step, on the scale of the reckoning."""

    mean: Values
    spread: Values


@dataclass
class BacktestTrial:
    """How a way of foretelling did where the answer is known."""

    errors: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    standard: list[float] = field(default_factory=list)

    def note(
        self, told: SelectedForecast, truth: Values, back: Callable[[Values], Values], forward: Values
    ) -> None:
        """One window."""
        mean = back(told.mean)
        self.errors += list(np.abs(mean - truth))
        self.relative += list(2 * np.abs(mean - truth) / np.maximum(np.abs(mean) + np.abs(truth), 1e-12))
        self.standard += list((forward - told.mean) / np.maximum(told.spread, 1e-12))

    @property
    def mae(self) -> float:
        """The mean absolute error."""
        return float(np.mean(self.errors))


@dataclass(frozen=True)
class Forecast:
    """The answer: the mean, the bounds of each level, what made it and how it did before."""

    mean: Values
    bounds: Mapping[float, tuple[Values, Values]]
    model: str
    season: int
    backtest: Mapping[str, Any] | None


def forecast(
    values: Values, horizon: int, season: int, levels: Sequence[float], progress: Callable[[float], None]
) -> Forecast:
    """How evenly spaced, whole values go on."""
    values = values[-max(_MOST_VALUES, 3 * season) :]
    if float(np.ptp(values)) <= 1e-12 * float(np.abs(values).max()):
        flat = np.full(horizon, float(values[-1]))
        return Forecast(flat, dict.fromkeys(levels, (flat, flat)), "constant", 1, None)
    season = season if 1 < season <= values.size // 2 else 1
    logged = _wants_logarithms(values, season)
    scaled = np.log(values) if logged else values
    back: Callable[[Values], Values] = np.exp if logged else _same
    progress(0.1)
    forms = _forms(scaled, season)
    progress(0.3)
    trials, windows, reach = _tried(forms, scaled, values, horizon, back)
    progress(0.7)
    chosen = (
        min(trials, key=lambda name: trials[name].mae * (0.97 if name.startswith(COMBINED) else 1))
        if trials
        else ""
    )
    members = [form for form in forms if not chosen or _is_in(form, chosen)]
    told = _joined([_told(form, scaled, horizon, fitting.ROUNDS) for form in members])
    factor = _factor(trials[chosen], windows) if trials else 1.0
    spread = told.spread * factor * math.sqrt(1 + 1 / values.size)
    reaches = {level: NormalDist().inv_cdf(0.5 + level / 200) * spread for level in levels}
    bounds = {level: (back(told.mean - by), back(told.mean + by)) for level, by in reaches.items()}
    name = chosen or (
        members[0].name if len(members) == 1 else COMBINED + ", ".join(form.name for form in members)
    )
    tested = _backtest(trials, chosen, levels, (windows, reach), factor) if trials else None
    return Forecast(back(told.mean), bounds, name, season, tested)


def _same(values: Values) -> Values:
    return values


def _is_in(form: ForecastModel, chosen: str) -> bool:
    return form.name == chosen or (
        chosen.startswith(COMBINED) and form.name in chosen.removeprefix(COMBINED).split(" + ")
    )


def _wants_logarithms(values: Values, season: int) -> bool:
    """Whether a positive series is better told by its logarithms: by likelihood, of one form on both."""
    if values.min() <= 0 or values.size < _SHORT:
        return False
    form = ExponentialSmoothing("A", season)
    plain = fitting.fit(form, values, _ROUNDS).score
    logged = fitting.fit(form, np.log(values), _ROUNDS).score + 2 * float(np.log(values).sum())
    return logged < plain


def _forms(values: Values, season: int) -> list[ForecastModel]:
    """The forms that are tried: one that repeats, Theta, the best of smoothing, complex smoothing."""
    naive: ForecastModel = SeasonalNaive(season) if season > 1 else SeasonalNaive(1, "naive")
    if values.size < _SHORT:
        return [naive, ThetaModel(1)] if values.size > 3 else [naive]
    kinds: list[ForecastModel] = [
        ExponentialSmoothing(trend, period) for trend in ("N", "A", "Ad") for period in {1, season}
    ]
    smooth = min(kinds, key=lambda form: fitting.fit(form, values, _ROUNDS).score)
    return [naive, ThetaModel(season), smooth, ComplexSmoothing(season)]


def _told(form: ForecastModel, values: Values, horizon: int, rounds: int) -> SelectedForecast:
    return SelectedForecast(*fitting.fit(form, values, rounds).ahead(horizon))


def _joined(told: Sequence[SelectedForecast]) -> SelectedForecast:
    """The mean of several; their spread as that of errors that go together."""
    return SelectedForecast(
        np.mean([one.mean for one in told], axis=0), np.mean([one.spread for one in told], axis=0)
    )


def _tried(
    forms: Sequence[ForecastModel],
    scaled: Values,
    values: Values,
    horizon: int,
    back: Callable[[Values], Values],
) -> tuple[dict[str, BacktestTrial], int, int]:
    """Each form and their means at origins in the past; with how many of them, and how far they reached."""
    season = max(form.season for form in forms)
    reach = max(1, min(horizon, values.size // 5, 2 * season if season > 1 else 12))
    least = max(2 * season + 2, values.size // 2, 6)
    windows = min(_WINDOWS, (values.size - least) // reach)
    trials: dict[str, BacktestTrial] = {}
    for window in range(windows, 0, -1):
        origin = values.size - window * reach
        truth, forward = values[origin : origin + reach], scaled[origin : origin + reach]
        told = {form.name: _told(form, scaled[:origin], reach, _ROUNDS) for form in forms}
        for name, one in (told | _means(told)).items():
            trials.setdefault(name, BacktestTrial()).note(one, truth, back, forward)
    return trials, windows, reach


def _means(told: Mapping[str, SelectedForecast]) -> dict[str, SelectedForecast]:
    """The means of the clever forms: of each two, and of all."""
    clever = [name for name in told if "naive" not in name]
    groups = (
        [clever[:2], clever[1:], clever[::2], clever] if len(clever) > 2 else [clever] * (len(clever) > 1)
    )
    return {COMBINED + " + ".join(group): _joined([told[name] for name in group]) for group in groups}


def _factor(trial: BacktestTrial, windows: int) -> float:
    """How much wider the spread has to be than the forms say, as the backtest shows it."""
    errors = np.clip(np.array(trial.standard), -6, 6)
    count = min(errors.size, 6.0 * windows)  # errors of one window go together
    return float(np.clip(np.sqrt((count * np.mean(errors**2) + _WEIGHT) / (count + _WEIGHT)), 0.85, 2.0))


def _backtest(
    trials: Mapping[str, BacktestTrial],
    chosen: str,
    levels: Sequence[float],
    seen: tuple[int, int],
    factor: float,
) -> dict[str, Any]:
    """What the answer says of the trials."""
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
