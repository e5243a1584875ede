"""Fitting of a model to a series, and forecasts with the fitted model."""

from __future__ import annotations

import copy

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.forecast.models import ForecastModel, State
from sixfold.engines.forecast.series import Values

Array = NDArray[np.float64]

_SETS, _BEST = 48, 10  # the candidates of a round, and those from which the next round is sampled
ROUNDS = 16
_SEED = 5


class FittedModel(msgspec.Struct, frozen=True):
    """A fitted model with its state after the last value; `score` is AICc, where lower is better."""

    model: ForecastModel
    sets: Array  # shape (parameters, 1)
    state: State
    length: int
    sigma: float
    score: float

    def ahead(self, horizon: int) -> tuple[Values, Values]:
        """Return the mean and the standard deviation of the error at each step."""
        mean, shocked = (self._path(horizon, shock) for shock in (0.0, 1.0))
        weights = np.concatenate(([1.0], np.clip(shocked - mean, -50, 50)[1:]))
        return mean, self.sigma * np.sqrt(np.cumsum(weights**2))

    def _path(self, horizon: int, shock: float) -> Values:
        state = copy.deepcopy(self.state)
        out = np.zeros(horizon)
        for step in range(horizon):
            at = self.length + step
            out[step] = float(np.ravel(self.model.ahead(self.sets, state, at))[0])
            self.model.after(self.sets, state, at, np.array([shock if step == 0 else 0.0]))
        return out


def fit(
    model: ForecastModel, values: Values, rounds: int = ROUNDS, start: Array | None = None
) -> FittedModel:
    """Fit parameters by least squares with the cross-entropy method, starting near `start` if it is set.

    The result is deterministic.
    """
    rng = np.random.default_rng(_SEED)
    low, high = np.array(model.low)[:, None], np.array(model.high)[:, None]
    center, spread = (low + high) / 2, (high - low) / 2.5
    if start is not None:
        center, spread = start, (high - low) / 12
    best, lowest = center, np.inf
    for _ in range(rounds if model.free else 1):
        sets = np.clip(center + spread * rng.standard_normal((low.size, _SETS)), low, high)
        sets[:, 0] = best[:, 0]
        losses = _losses(model, sets, values)
        order = np.argsort(losses, kind="stable")[:_BEST]
        if losses[order[0]] < lowest:
            best, lowest = sets[:, order[:1]].copy(), float(losses[order[0]])
        center = sets[:, order].mean(1, keepdims=True)
        spread = sets[:, order].std(1, keepdims=True) * 1.1 + (high - low) * 1e-4
    errors, state = _run(model, best, values)
    scored = errors[_warm_up(model, values) :, 0]
    count = scored.size
    parameters_used = model.free + 1
    sigma = float(np.sqrt((scored**2).sum() / max(1, count - parameters_used)))
    return FittedModel(
        model, best, state, values.size, sigma, _score(scored, model.free + model.states, values.size)
    )


def _warm_up(model: ForecastModel, values: Values) -> int:
    """Return the number of first errors to ignore, because the state was initialized with those values."""
    return min(max(1, model.season) if model.name == "seasonal naive" else 0, values.size - 1)


def _losses(model: ForecastModel, sets: Array, values: Values) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        errors, _ = _run(model, sets, values)
        losses = (errors[_warm_up(model, values) :] ** 2).sum(0)
    return np.where(np.isfinite(losses), losses, np.inf)


def _run(model: ForecastModel, sets: Array, values: Values) -> tuple[Array, State]:
    state = model.begin(sets, values)
    errors = np.zeros((values.size, sets.shape[1]))
    for at in range(values.size):
        error = values[at] - model.ahead(sets, state, at)
        errors[at] = error
        model.after(sets, state, at, error)
    return errors, state


def _score(errors: Values, parameters: int, count: int) -> float:
    mean = max(float((errors**2).mean()), 1e-300)
    degrees = max(1, count - parameters - 2)
    return count * float(np.log(mean)) + 2 * parameters * (1 + (parameters + 1) / degrees)
