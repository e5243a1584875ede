"""Prices of time on hardware, and the charge of a run: never more than the hold."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import CostBreakdown, LineItem
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.clock import HOUR_US
from sixfold.core.database import Rows

CONTAINER_TIME = "container-time"  # the price row of what is paid by the time of its run
CHILDREN = "children"  # that of what is paid by the runs that it orders
TOKENS = "tokens"  # that of what is paid by what a language model read and wrote


def run_time(us: int, hour_micros: int) -> LineItem:
    """A time on hardware at a price per hour."""
    return LineItem("run_ms", us, hour_micros, HOUR_US)


@dataclass(frozen=True, slots=True)
class HardwareRate:
    """The hardware that a run is paid for: its id, and its price in micro-dollars an hour."""

    hardware: str
    hour_micros: int

    def price(self, limit_seconds: float) -> PriceRow:
        """What is held for a run that may take `limit_seconds`."""
        line = run_time(round(limit_seconds * 1_000_000), self.hour_micros)
        micros = charges.total((line,))
        text = f"{money.format_usd(self.hour_micros)} USD per hour"
        return PriceRow(micros, money.credits_for(micros), text, "time", self.hour_micros, (line,))


class RunRates(Protocol):
    """Which hardware a model runs on, and what an hour of it costs."""

    def hardware_rate(self, model: str, hardware: str | None) -> HardwareRate:
        """The hire of `model` on `hardware`, or on its own where None; raises `InvalidInput`."""
        ...


class FlatRates:
    """The same hardware for every model; for tests, and for servers without a catalogue of hardware."""

    def __init__(self, hire: HardwareRate, own: Mapping[str, HardwareRate] | None = None) -> None:
        self._hire = hire
        self._own = own or {}

    def hardware_rate(self, model: str, hardware: str | None) -> HardwareRate:
        """Its own hire where it has one."""
        return self._own.get(model, self._hire)


@dataclass(frozen=True, slots=True)
class RunCharge:
    """What is captured, in micro-dollars, the credits shown for it, and the lines that add up to it.

    `list_micros` is the list price where less is charged.
    """

    micros: int
    credits: int
    breakdown: CostBreakdown
    list_micros: int | None = None

    @classmethod
    def of(cls, lines: Iterable[LineItem], held: int) -> RunCharge:
        """Charge the sum of lines, but no more than was held."""
        breakdown = charges.of(lines, held)
        return cls(breakdown.amount, money.credits_for(breakdown.amount), breakdown)

    @classmethod
    def of_children(cls, rows: Rows) -> RunCharge:
        """Charge what children cost, by rows of `prediction_children_costs`."""
        ran = [row for row in rows if row["runs"]]
        paid = charges.grouped((row["model"], row["cost"], row["runs"]) for row in ran)
        free = charges.grouped((row["model"], row["list_price"] or 0, row["runs"]) for row in ran)
        lines = (*paid, *charges.waived(free))[: charges.MOST_LINES]
        charged = cls.of(lines, rows[0]["price"])
        if rows[0]["parent_list_price"] is None:
            return charged
        costs = [row["cost"] if row["list_price"] is None else row["list_price"] for row in ran]
        listed = sum(cost * row["runs"] for cost, row in zip(costs, ran, strict=True))
        return replace(charged, list_micros=min(listed, rows[0]["parent_list_price"]))


class PriceEstimator(Protocol):
    """What is held for a model whose price no table has; raises what `Pipeline.quote` does.

    `model` is a `catalog.Model`, which this module is too low to know.
    """

    def __call__(self, model: Any, values: Mapping[str, Any], /, *, charged: bool) -> PriceRow:
        """The price for checked inputs."""
        ...


class Preparer(Protocol):
    """Does beforehand, in slices, what takes long of a quote that follows at once."""

    def __call__(self, model: Any, given: Mapping[str, Any], /, *, charged: bool) -> Awaitable[None]:
        """Prepare the quote for inputs as they were given."""
        ...


async def prepare_nothing(_model: Any, _given: Mapping[str, Any], *, charged: bool) -> None:
    """Where every quote is quick."""


def unpriced(model: Any, _values: Mapping[str, Any], *, charged: bool) -> PriceRow:
    """Where nothing knows what a model would cost."""
    del charged
    raise errors.EngineUnavailable(f"Nothing here knows what {model.name} would cost.")
