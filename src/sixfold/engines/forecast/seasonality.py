"""After how many values a series comes round, found by its likeness to itself, and what each phase adds."""

from __future__ import annotations

import numpy as np

from sixfold.engines.forecast.series import Values

_MOST = 400
_COMMON = (4, 7, 12, 24, 48, 52, 96, 168, 365)
_LEAST_LIKENESS = 0.3


def length(values: Values) -> int:
    """The season's length, 1 where there is none: at least two whole seasons must be there."""
    count = values.size
    most = min(_MOST, count // 2)
    if most < 2 or count < 6:
        return 1
    flat = _without_trend(values)
    power = float(flat @ flat)
    if power <= 1e-20 * float(values @ values):
        return 1
    likeness = np.array(
        [float(flat[lag:] @ flat[:-lag]) / power * count / (count - lag) for lag in range(1, most + 1)]
    )
    peaks = [lag for lag in range(2, most + 1) if _peak(likeness, lag)]
    least = max(_LEAST_LIKENESS, 3.0 / np.sqrt(count))  # what chance alone gives one of many lags
    able = {
        lag: float(likeness[lag - 1]) + 0.03 * (lag in _COMMON) for lag in peaks if likeness[lag - 1] > least
    }
    if not able:
        return 1
    best = max(able.values())
    found = next(lag for lag in sorted(able) if able[lag] > 0.85 * best)
    return 1 if count < 3 * found and _steps(values, found) else found


def phases(values: Values, season: int) -> Values:
    """What each phase of the season adds to the level, around 0; the first is that of `values[0]`."""
    if season < 2:
        return np.zeros(max(1, season))
    rest = values - _smooth(values, season)
    found = np.array(
        [np.nanmean(rest[at::season]) if np.isfinite(rest[at::season]).any() else 0.0 for at in range(season)]
    )
    return found - found.mean()


def _smooth(values: Values, season: int) -> Values:
    """The centred mean over a season; NaN where it does not reach."""
    window = np.ones(season + 1 - season % 2)
    if season % 2 == 0:
        window[0] = window[-1] = 0.5
    half = window.size // 2
    out = np.full(values.size, np.nan)
    if values.size >= window.size:
        out[half : values.size - half] = np.convolve(values, window / window.sum(), "valid")
    return out


def _steps(values: Values, season: int) -> bool:
    """Whether one step from a level to another tells a series better than a line and barely two seasons do.

    What lies beside a line through a step looks like two seasons of half its length.
    """
    count, places = values.size, np.arange(values.size)
    flat = values - np.polyval(np.polyfit(places, values, 1), places)
    rounds = np.array([flat[at::season].mean() for at in range(season)])[places % season]
    stepped = min(at * values[:at].var() + (count - at) * values[at:].var() for at in range(1, count))
    scores = [
        count * np.log(max(float(left), 1e-12 * float(values @ values)) / count) + 2 * taken
        for left, taken in ((stepped, 3), (((flat - rounds) ** 2).sum(), season + 1))
    ]
    return bool(scores[0] < scores[1])


def _without_trend(values: Values) -> Values:
    places = np.linspace(-1, 1, values.size)
    degree = 2 if values.size >= 24 else 1
    return values - np.polynomial.polynomial.polyval(
        places, np.polynomial.polynomial.polyfit(places, values, degree)
    )


def _peak(likeness: Values, lag: int) -> bool:
    around = likeness[max(0, lag - 2) : lag + 1]
    return bool(likeness[lag - 1] >= around.max() and likeness[lag - 1] > 0)
