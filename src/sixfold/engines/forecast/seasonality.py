"""The season length of a series, by autocorrelation, and the seasonal component of each phase."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sixfold.engines.forecast.series import Values

_MAX_LAG, _MAX_SECOND_LAG = 400, 700
_COMMON = (4, 7, 12, 24, 48, 52, 96, 168, 336, 365, 672)
_MIN_CORRELATION = 0.3
_REPEATS = 4  # required of a season that is not in `_COMMON`
_SLOW_REPEATS = 8  # required of a season that is not visible in the changes between values
_NEAR_COMMON = 0.04  # a measured season within this relative distance is replaced by the common one
_GAIN = 0.9  # fraction of the variance that a season may leave in the seasons that it was not measured on


def length(values: Values) -> int:
    """Return the season length in steps, or 1 without a season that fits twice into the series."""
    changes = np.diff(values)
    correlation = _autocorrelation(values, _MAX_LAG)
    flat = _without_trend(values) if correlation.size else values
    season = _best_lag(
        values,
        correlation,
        lambda lag: _repeats(changes, lag) or (values.size >= _SLOW_REPEATS * lag and _explains(flat, lag)),
    )
    return 1 if values.size < 3 * season and _is_level_shift(values, season) else season


def _autocorrelation(values: Values, longest: int) -> Values:
    """Return the autocorrelation without the trend at lags 1, 2, …; empty for a short or flat series."""
    count = values.size
    max_lag = min(longest, count // 2)
    flat = _without_trend(values) if count >= 6 else values
    power = float(flat @ flat)
    if max_lag < 2 or count < 6 or power <= 1e-20 * float(values @ values):
        return np.zeros(0)
    return np.array(
        [float(flat[lag:] @ flat[:-lag]) / power * count / (count - lag) for lag in range(1, max_lag + 1)]
    )


def _best_lag(values: Values, correlation: Values, accept: Callable[[int], bool]) -> int:
    """Return the shortest of the accepted lags with nearly the highest correlation, or 1."""
    count = values.size
    threshold = max(_MIN_CORRELATION, 3.0 / np.sqrt(count))  # the highest of many lags reaches this by chance
    candidates = {
        lag: float(correlation[lag - 1]) + 0.03 * (lag in _COMMON)
        for lag in range(2, correlation.size + 1)
        if _peak(correlation, lag)
        and correlation[lag - 1] > threshold
        and (lag in _COMMON or count >= _REPEATS * lag)
        and accept(lag)
    }
    if not candidates:
        return 1
    best = max(candidates.values())
    found = next(lag for lag in sorted(candidates) if candidates[lag] > 0.85 * best)
    # The peak of a long season is flat, so noise shifts it away from the common length.
    near = (lag for lag in _COMMON if abs(lag - found) <= _NEAR_COMMON * found and lag <= correlation.size)
    high = 0.9 * float(correlation[found - 1])
    return next((lag for lag in near if correlation[lag - 1] > high and accept(lag)), found)


def _repeats(changes: Values, lag: int) -> bool:
    """Return whether the changes between values repeat after `lag`; those of a random walk do not."""
    centered = changes - changes.mean()
    power = float(centered @ centered)
    return float(centered[lag:] @ centered[:-lag]) > 2 * power / np.sqrt(changes.size)


def second(values: Values, season: int) -> int:
    """Return the length of a longer season beside `season`, such as the week in hourly values, or 0."""
    if season < 2:
        return 0
    residuals = values - np.resize(phases(values, season), values.size)
    correlation = _autocorrelation(residuals, _MAX_SECOND_LAG)
    longest = residuals.size // 3
    found = _best_lag(
        residuals, correlation, lambda lag: season < lag <= longest and _explains(residuals, lag)
    )
    if found == 1:
        return 0
    # If the size of the first season changes, its multiples correlate as much as the season itself.
    is_multiple = found % season == 0 and correlation[season - 1] > 0.85 * correlation[found - 1]
    return 0 if is_multiple else found


def _explains(residuals: Values, season: int) -> bool:
    """Return whether the mean of the other seasons predicts a season, for three quarters of the seasons.

    This test finds slow seasons, which are not visible in the changes that `_repeats` compares. A random walk
    does not pass it.
    """
    repeats = residuals[residuals.size % season :].reshape(-1, season)
    repeats = repeats - repeats.mean(axis=1, keepdims=True)
    others = (repeats.sum(axis=0) - repeats) / (len(repeats) - 1)
    left = ((repeats - others) ** 2).mean(axis=1) / (repeats**2).mean(axis=1)
    return float(np.quantile(left, 0.75)) < _GAIN


def phases(values: Values, season: int) -> Values:
    """Return the seasonal component of each phase, with mean 0, starting with the phase of `values[0]`."""
    if season < 2:
        return np.zeros(max(1, season))
    residuals = values - smooth(values, season)
    means = np.array(
        [
            np.nanmean(residuals[at::season]) if np.isfinite(residuals[at::season]).any() else 0.0
            for at in range(season)
        ]
    )
    return means - means.mean()


def smooth(values: Values, season: int) -> Values:
    """Return the centered mean over a season, NaN at the ends."""
    window = np.ones(season + 1 - season % 2)
    if season % 2 == 0:
        window[0] = window[-1] = 0.5
    half = window.size // 2
    out = np.full(values.size, np.nan)
    if values.size >= window.size:
        out[half : values.size - half] = np.convolve(values, window / window.sum(), "valid")
    return out


def _is_level_shift(values: Values, season: int) -> bool:
    """Return whether a single level shift explains a series better than a line with barely two seasons.

    The residuals of a line through a level shift resemble two seasons of half the length.
    """
    count, places = values.size, np.arange(values.size)
    flat = values - np.polyval(np.polyfit(places, values, 1), places)
    rounds = np.array([flat[at::season].mean() for at in range(season)])[places % season]
    stepped = min(at * values[:at].var() + (count - at) * values[at:].var() for at in range(1, count))
    scores = [
        count * np.log(max(float(left), 1e-12 * float(values @ values)) / count) + 2 * parameters
        for left, parameters in ((stepped, 3), (((flat - rounds) ** 2).sum(), season + 1))
    ]
    return bool(scores[0] < scores[1])


def _without_trend(values: Values) -> Values:
    places = np.linspace(-1, 1, values.size)
    degree = 2 if values.size >= 24 else 1
    return values - np.polynomial.polynomial.polyval(
        places, np.polynomial.polynomial.polyfit(places, values, degree)
    )


def _peak(correlation: Values, lag: int) -> bool:
    around = correlation[max(0, lag - 2) : lag + 1]
    return bool(correlation[lag - 1] >= around.max() and correlation[lag - 1] > 0)
