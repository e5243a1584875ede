"""ARIMA with a season: differences, then a regression on lags of the series and of its errors.

The coefficients come from the regression of Hannan and Rissanen (1982) and are refined by Gauss-Newton steps
on the sum of squared errors. A seasonal model is additive: its lags include the season and its neighbor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.forecast import seasonality
from sixfold.engines.forecast.series import Values

Array = NDArray[np.float64]

NAME = "ARIMA"
MIN_VALUES = 24
_MAX_LAG = 60  # for longer seasons, only the seasonal difference is used
_ORDERS = ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (1, 1), (2, 1), (1, 2), (2, 2))
_SEASONAL = ((0, 0), (1, 0), (0, 1))
_FINALISTS = 2
_STEPS = 6
_KPSS_LIMIT = 0.463  # the 5 % value of the test for a constant level
_SEASON_STRENGTH = 0.64  # above this value, the series is differenced by the season (Wang et al. 2006)
_MAX_ROOT = 0.995
_RIDGE = 1e-8


class ArimaModel(msgspec.Struct, frozen=True):
    """The orders of a model: differences at lags, lags of the series and of the errors, and a constant."""

    season: int
    differences: tuple[int, ...]
    ar: tuple[int, ...]
    ma: tuple[int, ...]
    constant: bool
    name: str = NAME

    @property
    def free(self) -> int:
        """The number of coefficients."""
        return len(self.ar) + len(self.ma) + self.constant

    def forecast(self, values: Values, horizon: int) -> tuple[Values, Values]:
        """Return the mean and the standard deviation of the error at each step."""
        fitted = _fit(self, _differenced(values, self.differences))
        if fitted is None:
            fitted = _Coefficients(self, np.zeros(self.free), np.diff(values), 1.0)
        return fitted.ahead(values, horizon)


class _Coefficients(msgspec.Struct, frozen=True):
    model: ArimaModel
    weights: Array
    errors: Values
    score: float  # AICc

    def ahead(self, values: Values, horizon: int) -> tuple[Values, Values]:
        model = self.model
        ar, ma, constant = _parts(model, self.weights)
        # 1 - a1 B - a2 B^2 ... of the series before the differences
        polynomial = _polynomial(model.ar, -ar)
        for lag in model.differences:
            polynomial = np.convolve(polynomial, _polynomial((lag,), np.array([-1.0])))
        past, errors = list(values), np.concatenate([self.errors, np.zeros(horizon)])
        start = self.errors.size
        impulse = np.zeros(horizon)
        for step in range(horizon):
            recent = np.array(past[: -polynomial.size : -1])
            moving = sum(
                w * errors[start + step - lag]
                for w, lag in zip(ma, model.ma, strict=True)
                if lag <= start + step
            )
            past.append(constant - float(polynomial[1 : recent.size + 1] @ recent) + float(moving))
            own = (
                1.0
                if step == 0
                else float(sum(w for w, lag in zip(ma, model.ma, strict=True) if lag == step))
            )
            reach = min(step, polynomial.size - 1)
            impulse[step] = own - float(polynomial[1 : reach + 1] @ impulse[step - reach : step][::-1])
        used = self.errors[_first(model) :] if self.errors.size > 2 * _first(model) else self.errors
        sigma = float(np.sqrt((used**2).sum() / max(1, used.size - model.free)))
        return np.array(past[values.size :]), sigma * np.sqrt(np.cumsum(impulse**2))


def select(values: Values, season: int) -> ArimaModel | None:
    """Return the orders with the lowest AICc, or None for a series that is too short."""
    if values.size < max(MIN_VALUES, 2 * season + 8):
        return None
    differences = _choose_differences(values, season)
    changes = _differenced(values, differences)
    guess = _long_errors(changes, season)
    mean, spread = float(changes.mean()), float(changes.std()) / np.sqrt(changes.size)
    constant = not differences or (len(differences) == 1 and bool(abs(mean) > 2 * spread))
    seasonal = season > 1 and season <= _MAX_LAG
    models = {
        ArimaModel(season, differences, _lags(p, P * season), _lags(q, Q * season), constant)
        for (p, q), (P, Q) in product(_ORDERS, _SEASONAL if seasonal else _SEASONAL[:1])
    }
    scored = [fitted for model in models if (fitted := _regress(model, changes, guess)) is not None]
    scored.sort(key=lambda fitted: (fitted.score, fitted.model.free, fitted.model.ar, fitted.model.ma))
    finalists = [
        refined for fitted in scored[:_FINALISTS] if (refined := _refine(fitted, changes)) is not None
    ]
    if not finalists:
        return ArimaModel(season, differences, (), (), constant)
    return min(finalists, key=lambda fitted: fitted.score).model


def _lags(order: int, season: int) -> tuple[int, ...]:
    """Return the lags 1 to `order`, and for a season its lag and, unless `order` is 0, the lag after it."""
    own = tuple(range(1, order + 1))
    if not season:
        return own
    return tuple(sorted({*own, season, *((season + 1,) if order else ())}))


def _choose_differences(values: Values, season: int) -> tuple[int, ...]:
    """Return the lags of the differences that make a series stationary."""
    lags: tuple[int, ...] = ()
    if season > 1 and values.size >= 3 * season:
        phases = np.resize(seasonality.phases(values, season), values.size)
        flat = values - seasonality.smooth(values, season)
        inside = np.isfinite(flat)
        residuals = (flat - phases)[inside]
        strength = 1 - residuals.var() / max(float(flat[inside].var()), 1e-300)
        if strength > _SEASON_STRENGTH:
            lags = (season,)
    changes = _differenced(values, lags)
    for _ in range(2 - len(lags)):
        if _kpss(changes) <= _KPSS_LIMIT:
            break
        lags = (*lags, 1)
        changes = _differenced(values, lags)
    return lags


def _kpss(values: Values) -> float:
    residuals = values - values.mean()
    count = residuals.size
    window = int(np.ceil(3 * np.sqrt(count) / 13))
    variance = float(residuals @ residuals) / count
    variance += sum(
        2 * (1 - lag / (window + 1)) * float(residuals[lag:] @ residuals[:-lag]) / count
        for lag in range(1, window + 1)
    )
    return float((np.cumsum(residuals) ** 2).sum()) / count**2 / max(variance, 1e-300)


def _differenced(values: Values, lags: Sequence[int]) -> Values:
    for lag in lags:
        values = values[lag:] - values[:-lag]
    return values


def _columns(values: Values, lags: Sequence[int]) -> Array:
    """Return the series delayed by each lag, one column per lag, with 0 before the first value."""
    columns = np.zeros((values.size, len(lags)))
    for at, lag in enumerate(lags):
        columns[lag:, at] = values[: values.size - lag]
    return columns


def _solve(columns: Array, values: Values) -> Array:
    gram = columns.T @ columns
    gram += np.eye(len(gram)) * _RIDGE * max(float(np.trace(gram)) / max(1, len(gram)), 1e-300)
    return np.asarray(np.linalg.solve(gram, columns.T @ values), np.float64)


def _long_errors(changes: Values, season: int) -> Values:
    """Return the errors of a long autoregression, as an estimate of the model's errors."""
    order = max(1, min(changes.size // 4, max(10, season + 2 if season <= _MAX_LAG else 10)))
    centered = changes - changes.mean()
    columns = _columns(centered, range(1, order + 1))
    errors = centered - columns @ _solve(columns[order:], centered[order:])
    errors[:order] = 0
    return errors


def _first(model: ArimaModel) -> int:
    return max((*model.ar, *model.ma, 0))


def _regress(model: ArimaModel, changes: Values, guess: Values) -> _Coefficients | None:
    columns = np.hstack(
        [_columns(changes, model.ar), _columns(guess, model.ma), np.ones((changes.size, int(model.constant)))]
    )
    begin = min(changes.size // 2, max(season_lag := _first(model), 1))
    if columns.shape[1] == 0:
        return _scored(model, np.zeros(0), changes, changes.size - season_lag)
    if changes.size - begin < 3 * columns.shape[1]:
        return None
    weights = _solve(columns[begin:], changes[begin:])
    return _scored(model, weights, changes - columns @ weights, changes.size - begin)


def _scored(model: ArimaModel, weights: Array, errors: Values, count: int) -> _Coefficients:
    used = errors[-count:]
    parameters = model.free + 1
    score = float(np.log(max(float((used**2).mean()), 1e-300)))
    penalty = 2 * parameters * (1 + (parameters + 1) / max(1, count - parameters - 1)) / count
    return _Coefficients(model, weights, errors, score + penalty)


def _fit(model: ArimaModel, changes: Values) -> _Coefficients | None:
    fitted = _regress(model, changes, _long_errors(changes, model.season))
    return None if fitted is None else _refine(fitted, changes)


def _refine(fitted: _Coefficients, changes: Values) -> _Coefficients | None:
    """Return the model after Gauss-Newton steps, or None if it is not stable."""
    model, weights = fitted.model, _stable(fitted.model, fitted.weights)
    if weights is None:
        return None
    begin = min(changes.size // 2, _first(model))
    inputs = np.hstack([_columns(changes, model.ar), np.ones((changes.size, int(model.constant)))])
    errors = _errors(model, weights, changes)
    for _ in range(_STEPS if model.ma else 0):
        raw = np.column_stack(
            [inputs[:, : len(model.ar)], _columns(errors, model.ma), inputs[:, len(model.ar) :]]
        )
        slopes = _filtered(raw, model.ma, _parts(model, weights)[1])
        step = _solve(slopes[begin:], errors[begin:])
        before = float((errors[begin:] ** 2).sum())
        candidates = [weights + share * step for share in (1.0, 0.5, 0.2)]
        pairs = [
            (each, _errors(model, each, changes)) for each in candidates if _stable(model, each) is not None
        ]
        better = [pair for pair in pairs if float((pair[1][begin:] ** 2).sum()) < before]
        if not better:
            break
        weights, errors = better[0]
        if float((errors[begin:] ** 2).sum()) > 0.9995 * before:
            break
    return _scored(model, weights, errors, changes.size - begin)


def _stable(model: ArimaModel, weights: Array) -> Array | None:
    """Return the coefficients if forecasts and errors stay bounded, else None."""
    ar, ma, _ = _parts(model, weights)
    if not np.isfinite(weights).all():
        return None
    for lags, signed in ((model.ar, -ar), (model.ma, ma)):
        if lags and np.abs(np.roots(_polynomial(lags, signed))).max(initial=0.0) > _MAX_ROOT:
            return None
    return weights


def _parts(model: ArimaModel, weights: Array) -> tuple[Array, Array, float]:
    ar, ma, seasonal_weights = np.split(weights, [len(model.ar), len(model.ar) + len(model.ma)])
    return ar, ma, float(seasonal_weights[0]) if seasonal_weights.size else 0.0


def _polynomial(lags: Sequence[int], weights: Array) -> Array:
    fitted = np.zeros(max(lags, default=0) + 1)
    fitted[0] = 1
    fitted[list(lags)] += weights
    return fitted


def _errors(model: ArimaModel, weights: Array, changes: Values) -> Values:
    ar, ma, constant = _parts(model, weights)
    raw = changes - _columns(changes, model.ar) @ ar - constant
    return _filtered(raw[:, None], model.ma, ma)[:, 0]


def _filtered(raw: Array, lags: Sequence[int], weights: Array) -> Array:
    """Return x with x[t] = raw[t] - the sum of weights times x[t - lag]."""
    if not lags:
        return raw
    longest = max(lags)
    padded = np.vstack([np.zeros((longest, raw.shape[1])), raw])
    pairs = [(lag, float(weight)) for lag, weight in zip(lags, weights, strict=True)]
    # With a lag of 1 each step depends on the previous one, so the loop cannot be vectorized.
    for at in range(longest, len(padded)):
        for lag, weight in pairs:
            padded[at] -= weight * padded[at - lag]
    return padded[longest:]
