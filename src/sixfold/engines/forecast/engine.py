"""How a series goes on, as a model of the catalogue."""

from __future__ import annotations

from typing import Any

import numpy as np

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.forecast import model_selection, seasonality, series
from sixfold.engines.forecast.series import Values


class ForecastEngine:
    """Foretells `horizon` values of `series`, with an interval for each of `levels`."""

    name = "forecasting"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """`mean`, `intervals`, `model`, `season_length` and a `backtest`: null for a short series."""
        values = series.read(task.inputs["series"])
        rough = series.filled(values, 1)
        period = int(task.inputs.get("season_length") or seasonality.length(rough))
        whole = series.filled(values, period)
        horizon, levels = int(task.inputs["horizon"]), list(task.inputs["levels"])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = model_selection.forecast(whole, horizon, period, levels, context.progress)
        context.log(f"{whole.size} values, season {found.season}: {found.model}")
        intervals = {
            f"{level:g}": {"lower": _plain(lower), "upper": _plain(upper)}
            for level, (lower, upper) in found.bounds.items()
        }
        data: dict[str, Any] = {
            "mean": _plain(found.mean),
            "intervals": intervals,
            "model": found.model,
            "season_length": found.season,
            "backtest": found.backtest,
        }
        return Result(data=data, quality="full")


def _plain(values: Values) -> list[float]:
    """Numbers of JSON: finite, with the digits that mean something."""
    return [float(f"{value:.10g}") for value in np.nan_to_num(values, posinf=1e300, neginf=-1e300)]
