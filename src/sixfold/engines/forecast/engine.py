"""The forecast engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.forecast import model_selection, seasonality, series
from sixfold.engines.forecast.series import Values


class ForecastEngine:
    """Forecasts `horizon` values of `series`, with an interval for each of `levels`."""

    name = "forecasting"
    version = "4"

    def run(self, task: Task, context: Context) -> Result:
        """Return `mean`, `intervals`, `model`, `season_length`, `seasons` and `backtest`.

        `backtest` is null for a short series.
        """
        values = series.read(task.inputs["series"])
        interpolated = series.fill_gaps(values, 1)
        period = int(task.inputs.get("season_length") or 0)
        longer = 0
        if not period:
            period = seasonality.length(interpolated)
            longer = seasonality.second(interpolated, period)
        complete = series.fill_gaps(values, period)
        horizon, levels = int(task.inputs["horizon"]), list(task.inputs["levels"])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            result = model_selection.forecast(complete, horizon, period, levels, context.progress, longer)
        context.log(f"{complete.size} values, season {', '.join(map(str, result.seasons))}: {result.model}")
        intervals = {
            f"{level:g}": {"lower": _json_numbers(lower), "upper": _json_numbers(upper)}
            for level, (lower, upper) in result.bounds.items()
        }
        data: dict[str, Any] = {
            "mean": _json_numbers(result.mean),
            "intervals": intervals,
            "model": result.model,
            "season_length": result.season,
            "seasons": list(result.seasons),
            "backtest": result.backtest,
        }
        return Result(data=data, quality="full")


def _json_numbers(values: Values) -> list[float]:
    """Return finite numbers with ten significant digits."""
    return [float(f"{value:.10g}") for value in np.nan_to_num(values, posinf=1e300, neginf=-1e300)]
