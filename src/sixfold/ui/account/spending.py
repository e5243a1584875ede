"""The spending chart: a stacked column for each day, with the most expensive model at the bottom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sixfold.core.accounts.ledger_queries import Spending

SPANS = (14, 30, 90)
_HUES = ("hosting", "media", "gateway", "memory", "workflows", "imagekit")
_OTHERS = "other models"
# Height of the chart in its own units; the width is 700.
_TALL = 110


@dataclass(frozen=True, slots=True)
class SpendingPeriod:
    """The segment of one model in a column, in chart units."""

    hue: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class SpendingColumn:
    """The column of one day, in chart units; `at` is the day, `micros` its total."""

    at: int
    micros: int
    x: float
    width: float
    labelled: bool
    stretches: tuple[SpendingPeriod, ...]


@dataclass(frozen=True, slots=True)
class SpendingPlot:
    """The columns, the legend as (color, model, µUSD), the total and the highest day."""

    columns: tuple[SpendingColumn, ...]
    legend: tuple[tuple[str, str, int], ...]
    total: int
    most: int


def plot(spent: Spending) -> SpendingPlot:
    """Return the chart of an account's spending; the five most expensive models have their own colors."""
    named = dict(zip(list(spent.models)[: len(_HUES) - 1], _HUES, strict=False))
    legend = [(hue, name, spent.models[name]) for name, hue in named.items()]
    if rest := sum(micros for name, micros in spent.models.items() if name not in named):
        legend.append((_HUES[-1], _OTHERS, rest))
    sums = {day: sum(max(0, micros) for micros in models.values()) for day, models in spent.days.items()}
    most, step = max(*sums.values(), 1), 700 / len(spent.days)
    every = -(-len(spent.days) // 14)
    columns = [
        SpendingColumn(
            day,
            sum(models.values()),
            round(step * at + 0.12 * step, 2),
            round(0.76 * step, 2),
            (len(spent.days) - 1 - at) % every == 0,
            _stretches(models, named, most),
        )
        for at, (day, models) in enumerate(spent.days.items())
    ]
    return SpendingPlot(tuple(columns), tuple(legend), spent.total, max(sums.values()))


def _stretches(models: Mapping[str, int], named: Mapping[str, str], most: int) -> tuple[SpendingPeriod, ...]:
    by_hue = dict.fromkeys((*named.values(), _HUES[-1]), 0)
    for name, micros in models.items():
        by_hue[named.get(name, _HUES[-1])] += max(0, micros)
    found: list[SpendingPeriod] = []
    floor = 125.0
    for hue, micros in by_hue.items():
        height = _TALL * micros / most
        floor -= height
        if micros:
            found.append(SpendingPeriod(hue, round(floor, 2), round(max(height, 0.6), 2)))
    return tuple(found)
