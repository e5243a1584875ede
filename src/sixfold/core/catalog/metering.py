"""Prices for time on hardware, and the charge of a run, which never exceeds its hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import CostBreakdown, LineItem
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.clock import HOUR_US
from sixfold.core.database import Rows

# The price row of models that are charged by run time.
CONTAINER_TIME = "container-time"
# The price row of models that are charged by the cost of the runs they start.
CHILDREN = "children"
# The price row of models that are charged by tokens.
TOKENS = "tokens"


def run_time(us: int, hour_micros: int) -> LineItem:
    """Return the line item for a time on hardware at a price per hour."""
    return LineItem("run_ms", us, hour_micros, HOUR_US)


class HardwareRate(msgspec.Struct, frozen=True):
    """The hardware that a run is charged for: its id, and its price in micro-dollars per hour."""

    hardware: str
    hour_micros: int

    def price(self, limit_seconds: float) -> PriceRow:
        """Return the price to hold for a run of up to `limit_seconds`."""
        line = run_time(round(limit_seconds * 1_000_000), self.hour_micros)
        micros = charges.total((line,))
        text = f"{money.format_usd(self.hour_micros)} USD per hour"
        return PriceRow(micros, money.credits_for(micros), text, "time", self.hour_micros, (line,))


class RunRates(Protocol):
    """Returns the hardware on which a model runs, and its price per hour."""

    def hardware_rate(self, model: str, hardware: str | None) -> HardwareRate:
        """Return the rate of `model` on `hardware` (None: the default); raises `InvalidInput`."""
        ...

    def is_charged_by_time(self, model: str) -> bool:
        """Return whether runs of `model` can be charged by time instead of a fixed price."""
        ...


class FlatRates:
    """A single rate for all models except those in `own`.

    It is used in tests, and on servers without a hardware catalog.
    """

    def __init__(self, hire: HardwareRate, own: Mapping[str, HardwareRate] | None = None) -> None:
        self._hire = hire
        self._own = own or {}

    def hardware_rate(self, model: str, hardware: str | None) -> HardwareRate:
        """Return the rate of `model`; `hardware` is ignored."""
        return self._own.get(model, self._hire)

    def is_charged_by_time(self, model: str) -> bool:
        """Return True, for all models."""
        del model
        return True


class RunCharge(msgspec.Struct, frozen=True):
    """The captured amount in micro-dollars, the credits displayed for it, and its line items.

    `list_micros` is the list price if less is charged.
    """

    micros: int
    credits: int
    breakdown: CostBreakdown
    list_micros: int | None = None

    @classmethod
    def of(cls, lines: Iterable[LineItem], held: int) -> RunCharge:
        """Charge the sum of `lines`, at most `held`."""
        breakdown = charges.calculate(lines, held)
        return cls(breakdown.amount, money.credits_for(breakdown.amount), breakdown)

    @classmethod
    def of_children(cls, rows: Rows) -> RunCharge:
        """Charge the cost of child runs, from rows of `prediction_children_costs`."""
        ran = [row for row in rows if row["runs"]]
        line_items = charges.group_runs((row["model"], row["cost"], row["runs"]) for row in ran)
        free = charges.group_runs((row["model"], row["list_price"] or 0, row["runs"]) for row in ran)
        lines = (*line_items, *charges.waive(free))[: charges.MAX_LINES]
        charge = cls.of(lines, rows[0]["price"])
        if rows[0]["parent_list_price"] is None:
            return charge
        costs = [row["cost"] if row["list_price"] is None else row["list_price"] for row in ran]
        list_micros = sum(cost * row["runs"] for cost, row in zip(costs, ran, strict=True))
        return replace(charge, list_micros=min(list_micros, rows[0]["parent_list_price"]))


class PriceEstimator(Protocol):
    """Prices a model without a fixed price; raises `InvalidInput` or `EngineUnavailable`.

    `model` is a `catalog.models.Model`, which this module cannot import.
    """

    def __call__(self, model: Any, values: Mapping[str, Any], /, *, charged: bool) -> PriceRow: ...


class PreparedQuote(NamedTuple):
    """The validated inputs and the price of a run, as functions that return them or raise their errors."""

    inputs: Callable[[], dict[str, Any]]
    price: Callable[[], PriceRow]


class Preparer(Protocol):
    """Does the slow part of a quote in slices, so that the quote itself is fast."""

    def __call__(
        self, model: Any, inputs: Mapping[str, Any], /, *, charged: bool
    ) -> Awaitable[Mapping[str, Any] | PreparedQuote]:
        """Return the prepared quote for inputs that are not validated yet, or the inputs if it is fast."""
        ...


async def prepare_nothing(
    _model: Any, inputs: Mapping[str, Any], *, charged: bool
) -> Mapping[str, Any] | PreparedQuote:
    """Return the inputs, for models whose quotes are fast."""
    del charged
    return inputs


def unpriced(model: Any, _values: Mapping[str, Any], *, charged: bool) -> PriceRow:
    """Raise `EngineUnavailable`, for models without a price."""
    del charged
    raise errors.EngineUnavailable(f"{model.name} has no price on this server: choose another model.")
