"""The forms that a forecast can take, each as an innovations recursion over many sets of parameters at once.

A form says how its state begins, what it expects next, and how an error changes it (Hyndman et al. 2008).
Arrays of shape (sets,) or (season, sets) hold one column for each set, so that a search over parameters costs
one pass over the series for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sixfold.engines.forecast import seasonality as seasons
from sixfold.engines.forecast.series import Values

Array = NDArray[np.float64]
State = dict[str, Any]


class ForecastModel(Protocol):
    """One model, not yet fitted. `low` and `high` bound its parameters."""

    @property
    def name(self) -> str:
        """What it is called in the answer."""
        ...

    @property
    def season(self) -> int:
        """Steps of a season; 1 for none."""
        ...

    @property
    def low(self) -> tuple[float, ...]:
        """The least of each parameter."""
        ...

    @property
    def high(self) -> tuple[float, ...]:
        """The most of each."""
        ...

    @property
    def states(self) -> int:
        """How many numbers its beginning takes from the series."""
        ...

    @property
    def free(self) -> int:
        """How many of its parameters matter."""
        ...

    def begin(self, sets: Array, values: Values) -> State:
        """The state before the first value."""
        ...

    def ahead(self, sets: Array, state: State, at: int) -> Array:
        """What is expected at step `at`."""
        ...

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        """Change the state by what came."""
        ...


@dataclass(frozen=True)
class ExponentialSmoothing:
    """Exponential smoothing with additive errors: level, and as chosen trend, damping and season."""

    trend: str  # N, A or Ad
    season: int
    low: tuple[float, ...] = (0.01, 1e-4, 0.8, 1e-4, -3.0, -3.0)
    high: tuple[float, ...] = (0.99, 0.6, 0.98, 0.6, 3.0, 3.0)

    @property
    def name(self) -> str:
        """ETS(error, trend, season)."""
        return f"ETS(A,{self.trend},{'A' if self.season > 1 else 'N'})"

    @property
    def states(self) -> int:
        """Level, trend and phases."""
        return 1 + (self.trend != "N") + (self.season - 1 if self.season > 1 else 0)

    @property
    def free(self) -> int:
        """How many of the parameters matter."""
        return 1 + (self.trend != "N") + (self.trend == "Ad") + (self.season > 1)

    def begin(self, sets: Array, values: Values) -> State:
        """By a line through the first two seasons, moved by the last two parameters."""
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
        """Level, damped trend and the phase."""
        damping = sets[2] if self.trend == "Ad" else 1.0
        return state["level"] + damping * state["trend"] + state["phases"][at % len(state["phases"])]

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        """Each part takes its share of the error."""
        damping = sets[2] if self.trend == "Ad" else 1.0
        state["level"] = state["level"] + damping * state["trend"] + sets[0] * error
        if self.trend != "N":
            state["trend"] = damping * state["trend"] + sets[0] * sets[1] * error
        if self.season > 1:
            state["phases"][at % self.season] += sets[3] * (1 - sets[0]) * error


@dataclass(frozen=True)
class ComplexSmoothing:
    """Complex exponential smoothing (Svetunkov et al. 2022), with a season of its own where there is one."""

    season: int
    name: str = "CES"
    low: tuple[float, ...] = (0.05, 0.6, 0.0, 0.0)
    high: tuple[float, ...] = (1.9, 1.4, 1.4, 1.4)

    @property
    def states(self) -> int:
        """Both parts of the level, and of every phase."""
        return 2 + (2 * self.season if self.season > 1 else 0)

    @property
    def free(self) -> int:
        """Real and imaginary smoothing, twice with a season."""
        return 4 if self.season > 1 else 2

    def begin(self, sets: Array, values: Values) -> State:
        """The mean of the first season, and its phases."""
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
        """The real parts."""
        return state["level"] + state["phases"][at % len(state["phases"])]

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        """Real and imaginary parts turn into each other."""
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


@dataclass(frozen=True)
class ThetaModel:
    """The optimised Theta model (Fiorucci et al. 2016) on the series without its season."""

    season: int
    name: str = "Theta"
    low: tuple[float, ...] = (0.05, 1.0, -3.0)
    high: tuple[float, ...] = (0.99, 12.0, 3.0)

    @property
    def states(self) -> int:
        """Level, the line's two numbers, phases."""
        return 3 + (self.season - 1 if self.season > 1 else 0)

    @property
    def free(self) -> int:
        """Smoothing and theta."""
        return 2

    def begin(self, sets: Array, values: Values) -> State:
        """The line through the whole series; the level near the first value."""
        phases = seasons.phases(values, self.season)
        flat = values - np.resize(phases, values.size)
        slope, start = np.polyfit(np.arange(1, flat.size + 1), flat, 1)
        spread = float(np.std(np.diff(flat))) + 1e-12
        level = float(flat[: min(3, flat.size)].mean()) + sets[2] * spread
        return {"level": level, "slope": slope, "start": start, "phases": phases[:, None]}

    def ahead(self, sets: Array, state: State, at: int) -> Array:
        """The level, and the line's part of what smoothing has not yet caught up with."""
        kept = (1 - sets[0]) ** at
        drift = kept * state["start"] + (1 - kept * (1 - sets[0])) / sets[0] * state["slope"]
        return state["level"] + (1 - 1 / sets[1]) * drift + state["phases"][at % len(state["phases"])]

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        """The level follows the series itself."""
        value = self.ahead(sets, state, at) + error - state["phases"][at % len(state["phases"])]
        state["level"] = sets[0] * value + (1 - sets[0]) * state["level"]


@dataclass(frozen=True)
class SeasonalNaive:
    """What was a season ago, comes again; without a season, what was last."""

    season: int
    name: str = "seasonal naive"
    low: tuple[float, ...] = (0.0,)
    high: tuple[float, ...] = (1e-9,)
    states: int = 1
    free: int = 0

    def begin(self, sets: Array, values: Values) -> State:
        """The first season, by which nothing is judged."""
        head = values[: max(1, self.season)]
        return {"phases": np.repeat(head[:, None], sets.shape[1], 1)}

    def ahead(self, sets: Array, state: State, at: int) -> Array:
        """The same phase, last time."""
        return state["phases"][at % len(state["phases"])].copy()

    def after(self, sets: Array, state: State, at: int, error: Array) -> None:
        """Remember it."""
        state["phases"][at % len(state["phases"])] += error
