"""What a run costs in the end: never more than was held for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.prices import Price
from sixfold.core.work.records import Prediction

CONTAINER_TIME = "container-time"  # the price row of what is paid by the time of its run
CHILDREN = "children"  # that of what is paid by the runs that it orders
TOKENS = "tokens"  # that of what is paid by what a language model read and wrote
_HOUR_US = 3_600_000_000
_PARTS = 1_000_000  # of a priced unit, which may be as long as a minute


@dataclass(frozen=True, slots=True)
class Hire:
    """The hardware that a run is paid for: its id, and its price in micro-dollars an hour."""

    hardware: str
    hour_micros: int

    def price(self, limit_seconds: float) -> Price:
        """What is held for a run that may take `limit_seconds`."""
        micros = -(-self.hour_micros * round(limit_seconds * 1_000_000) // _HOUR_US)
        text = f"{money.format_usd(self.hour_micros)} USD per hour"
        return Price(micros, money.credits_for(micros), text, "time", self.hour_micros)


class Rates(Protocol):
    """Which hardware a model runs on, and what an hour of it costs."""

    def hire(self, model: str, hardware: str | None) -> Hire:
        """The hire of `model` on `hardware`, or on its own where None; raises `InvalidInput`."""
        ...


class FlatRates:
    """The same hardware for every model; for tests, and for servers without a catalogue of hardware."""

    def __init__(self, hire: Hire, own: Mapping[str, Hire] | None = None) -> None:
        self._hire = hire
        self._own = own or {}

    def hire(self, model: str, hardware: str | None) -> Hire:
        """Its own hire where it has one."""
        return self._own.get(model, self._hire)


@dataclass(frozen=True, slots=True)
class Charge:
    """What is captured, in micro-dollars, and the credits shown for it."""

    micros: int
    credits: int

    @classmethod
    def of(cls, micros: int, held: int) -> Charge:
        """So much, but no more than was held."""
        least = min(micros, held)
        return cls(least, money.credits_for(least))


def charge(prediction: Prediction, run_us: int, billed: float | None) -> Charge | None:
    """What a successful run costs by its own meter; None where that is its price, or its children's sum.

    `billed` are the units that the engine told; a run that tells none costs what was held for it.
    """
    match prediction.meter:
        case "time":
            return Charge.of(-(-prediction.rate * run_us // _HOUR_US), prediction.price)
        case "units" if billed is not None:
            return Charge.of(-(-prediction.rate * round(billed * _PARTS) // _PARTS), prediction.price)
        case "children" if billed is not None:  # micro-dollars of what no child did
            return Charge.of(round(billed), prediction.price)
        case _:
            return None


class Appraiser(Protocol):
    """What is held for a model whose price no table has; raises what `Pipeline.quote` does.

    `model` is a `catalog.Model`, which this module is too low to know.
    """

    def __call__(self, model: Any, values: Mapping[str, Any], /, *, charged: bool) -> Price:
        """The price for checked inputs."""
        ...


def unpriced(model: Any, _values: Mapping[str, Any], *, charged: bool) -> Price:
    """Where nothing knows what a model would cost."""
    del charged
    raise errors.EngineUnavailable(f"Nothing here knows what {model.name} would cost.")
