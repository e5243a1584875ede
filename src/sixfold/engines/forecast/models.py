"""The forecast models, as innovations recursions over many parameter sets at once.

A model defines its initial state, its prediction of the next value, and how an error updates the state
(Hyndman et al. 2008). Arrays of shape (sets,) or (season, sets) have one column for each set: a search over
parameters needs a single pass over the series.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.forecast import seasonality as seasons
from sixfold.engines.forecast.series import Values

Array = NDArray[np.float64]
State = dict[str, Any]


class ForecastModel(Protocol):
    """A model that is not fitted yet; `low` and `high` are the bounds of its parameters."""

    @property
    def name(self) -> str:
        """The name in the result."""
        ...

    @property
    def season(self) -> int:
        """The season length in steps, or 1 without a season."""
        ...

    @property
    def low(self) -> tuple[float, ...]:
        """The lower bound of each parameter."""
        ...

    @property
    def high(self) -> tuple[float, ...]:
        """The upper bound of each parameter."""
        ...

    @property
    def states(self) -> int:
        """The number of initial states estimated from the series."""
        ...

    @property
    def free(self) -> int:
        """The number of free parameters."""
        ...

    def begin(self, sets: Array, values: Values) -> State:
        """Return the state before the first value."""
        ...

    def ahead(self, sets: Array, state: State, at: int) -> Array:
        """Return the expected value at step `at`."""
        ...

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        """Update the state with the error of a step."""
        ...


class ExponentialSmoothing(msgspec.Struct, frozen=True):
    """Exponential smoothing with additive errors: a level, and optionally a trend, damping and a season."""

    trend: str  # N, A or Ad
    season: int
    low: tuple[float, ...] = (0.01, 1e-4, 0.8, 1e-4, -3.0, -3.0)
    high: tuple[float, ...] = (0.99, 0.6, 0.98, 0.6, 3.0, 3.0)

    @property
    def name(self) -> str:
        """The name in ETS notation (error, trend, season)."""
        return f"ETS(A,{self.trend},{'A' if self.season > 1 else 'N'})"

    @property
    def states(self) -> int:
        return 1 + (self.trend != "N") + (self.season - 1 if self.season > 1 else 0)

    @property
    def free(self) -> int:
        return 1 + (self.trend != "N") + (self.trend == "Ad") + (self.season > 1)

    def begin(self, sets: Array, values: Values) -> State:
        phases = seasons.phases(values, self.season)
        flat = values - np.resize(phases, values.size)
        head = flat[: max(4, min(flat.size, 2 * self.season if self.season > 1 else 10))]
        slope, level = np.polyfit(np.arange(head.size), head, 1) if head.size > 1 else (0.0, head[0])
        spread = float(np.std(np.diff(flat))) + 1e-12
        start = level - slope if self.trend != "N" else head.mean()
        return {
            "level": start + sets[4] * spread,
            "trend": (slope + sets[5] * spread * 0.1) if self.trend != "N" else np.zeros_like(sets[0]),
            "phases": np.repeat(phases[:, None], sets.shape[1], 1),
        }

    def ahead(self, sets: Array, state: State, at: int) -> Array:
        damping = sets[2] if self.trend == "Ad" else 1.0
        return state["level"] + damping * state["trend"] + state["phases"][at % len(state["phases"])]

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        damping = sets[2] if self.trend == "Ad" else 1.0
        state["level"] = state["level"] + damping * state["trend"] + sets[0] * error
        if self.trend != "N":
            state["trend"] = damping * state["trend"] + sets[0] * sets[1] * error
        if self.season > 1:
            state["phases"][at % self.season] += sets[3] * (1 - sets[0]) * error


class ComplexSmoothing(msgspec.Struct, frozen=True):
    """Complex exponential smoothing (Svetunkov et al. 2022), optionally with a season."""

    season: int
    name: str = "CES"
    low: tuple[float, ...] = (0.05, 0.6, 0.0, 0.0)
    high: tuple[float, ...] = (1.9, 1.4, 1.4, 1.4)

    @property
    def states(self) -> int:
        return 2 + (2 * self.season if self.season > 1 else 0)

    @property
    def free(self) -> int:
        return 4 if self.season > 1 else 2

    def begin(self, sets: Array, values: Values) -> State:
        width = self.season if self.season > 1 else min(10, values.size)
        level = float(values[:width].mean())
        count = sets.shape[1]
        phases = values[:width] - level if self.season > 1 else np.zeros(1)
        return {
            "level": np.full(count, level),
            "hidden": np.full(count, level / 1.1),
            "phases": np.repeat(phases[:, None], count, 1),
            "shades": np.repeat(phases[:, None] / 1.1, count, 1),
        }

    def ahead(self, sets: Array, state: State, at: int) -> Array:
        return state["level"] + state["phases"][at % len(state["phases"])]

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        state["level"], state["hidden"] = _turned(state["level"], state["hidden"], sets[0], sets[1], error)
        if self.season > 1:
            place = at % self.season
            state["phases"][place], state["shades"][place] = _turned(
                state["phases"][place], state["shades"][place], sets[2], sets[3], error
            )


def _turned(real: Array, hidden: Array, first: Array, second: Array, error: Array) -> tuple[Array, Array]:
    return (
        real - (1 - second) * hidden + (first - second) * error,
        real + (1 - first) * hidden + (first + second) * error,
    )


class ThetaModel(msgspec.Struct, frozen=True):
    """The optimized Theta model (Fiorucci et al. 2016) on the seasonally adjusted series."""

    season: int
    name: str = "Theta"
    low: tuple[float, ...] = (0.05, 1.0, -3.0)
    high: tuple[float, ...] = (0.99, 12.0, 3.0)

    @property
    def states(self) -> int:
        return 3 + (self.season - 1 if self.season > 1 else 0)

    @property
    def free(self) -> int:
        return 2

    def begin(self, sets: Array, values: Values) -> State:
        phases = seasons.phases(values, self.season)
        flat = values - np.resize(phases, values.size)
        slope, start = np.polyfit(np.arange(1, flat.size + 1), flat, 1)
        spread = float(np.std(np.diff(flat))) + 1e-12
        level = float(flat[: min(3, flat.size)].mean()) + sets[2] * spread
        return {"level": level, "slope": slope, "start": start, "phases": phases[:, None]}

    def ahead(self, sets: Array, state: State, at: int) -> Array:
        weight = (1 - sets[0]) ** at
        drift = weight * state["start"] + (1 - weight * (1 - sets[0])) / sets[0] * state["slope"]
        return state["level"] + (1 - 1 / sets[1]) * drift + state["phases"][at % len(state["phases"])]

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        value = self.ahead(sets, state, at) + error - state["phases"][at % len(state["phases"])]
        state["level"] = sets[0] * value + (1 - sets[0]) * state["level"]


class SeasonalNaive(msgspec.Struct, frozen=True):
    """Repeats the last season, or the last value without a season."""

    season: int
    name: str = "seasonal naive"
    low: tuple[float, ...] = (0.0,)
    high: tuple[float, ...] = (1e-9,)
    states: int = 1
    free: int = 0

    def begin(self, sets: Array, values: Values) -> State:
        head = values[: max(1, self.season)]
        return {"phases": np.repeat(head[:, None], sets.shape[1], 1)}

    def ahead(self, sets: Array, state: State, at: int) -> Array:
        return state["phases"][at % len(state["phases"])].copy()

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        state["phases"][at % len(state["phases"])] += error
