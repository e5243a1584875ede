"""A form and a series: the parameters that fit, what they foretell, and how far that spreads."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sixfold.engines.forecast.models import ForecastModel, State
from sixfold.engines.forecast.series import Values

Array = NDArray[np.float64]

_SETS, _BEST = 48, 10
ROUNDS = 16
_SEED = 5


@dataclass(frozen=True)
class FittedModel:
    """A form with its parameters, after the last value. `score` is AICc: lower is better."""

    form: ForecastModel
    sets: Array  # shape (parameters, 1)
    state: State
    length: int
    sigma: float
    score: float

    def ahead(self, horizon: int) -> tuple[Values, Values]:
        """What is expected at each step, and the standard deviation of its error."""
        mean, shocked = (self._path(horizon, shock) for shock in (0.0, 1.0))
        weights = np.concatenate(([1.0], np.clip(shocked - mean, -50, 50)[1:]))
        return mean, self.sigma * np.sqrt(np.cumsum(weights**2))

    def _path(self, horizon: int, shock: float) -> Values:
        state = copy.deepcopy(self.state)
        out = np.zeros(horizon)
        for step in range(horizon):
            at = self.length + step
            out[step] = float(np.ravel(self.form.ahead(self.sets, state, at))[0])
            self.form.after(self.sets, state, at, np.array([shock if step == 0 else 0.0]))
        return out


def fit(form: ForecastModel, values: Values, rounds: int = ROUNDS) -> FittedModel:
    """The best parameters by least squares, found by the cross-entropy method; always the same ones."""
    rng = np.random.default_rng(_SEED)
    low, high = np.array(form.low)[:, None], np.array(form.high)[:, None]
    centre, spread = (low + high) / 2, (high - low) / 2.5
    best, least = centre, np.inf
    for _ in range(rounds if form.free else 1):
        sets = np.clip(centre + spread * rng.standard_normal((low.size, _SETS)), low, high)
        sets[:, 0] = best[:, 0]
        losses = _losses(form, sets, values)
        order = np.argsort(losses, kind="stable")[:_BEST]
        if losses[order[0]] < least:
            best, least = sets[:, order[:1]].copy(), float(losses[order[0]])
        centre = sets[:, order].mean(1, keepdims=True)
        spread = sets[:, order].std(1, keepdims=True) * 1.1 + (high - low) * 1e-4
    errors, state = _run(form, best, values)
    judged = errors[_unjudged(form, values) :, 0]
    count = judged.size
    taken = form.free + 1
    sigma = float(np.sqrt((judged**2).sum() / max(1, count - taken)))
    return FittedModel(
        form, best, state, values.size, sigma, _score(judged, form.free + form.states, values.size)
    )


def _unjudged(form: ForecastModel, values: Values) -> int:
    """How many first errors say nothing, as the state began with those values."""
    return min(max(1, form.season) if form.name == "seasonal naive" else 0, values.size - 1)


def _losses(form: ForecastModel, sets: Array, values: Values) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        errors, _ = _run(form, sets, values)
        losses = (errors[_unjudged(form, values) :] ** 2).sum(0)
    return np.where(np.isfinite(losses), losses, np.inf)


def _run(form: ForecastModel, sets: Array, values: Values) -> tuple[Array, State]:
    state = form.begin(sets, values)
    errors = np.zeros((values.size, sets.shape[1]))
    for at in range(values.size):
        error = values[at] - form.ahead(sets, state, at)
        errors[at] = error
        form.after(sets, state, at, error)
    return errors, state


def _score(errors: Values, parameters: int, count: int) -> float:
    mean = max(float((errors**2).mean()), 1e-300)
    room = max(1, count - parameters - 2)
    return count * float(np.log(mean)) + 2 * parameters * (1 + (parameters + 1) / room)
