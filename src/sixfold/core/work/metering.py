"""What a run costs in the end: never more than was held for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import CostBreakdown, LineItem
from sixfold.core.accounts.prices import Price
from sixfold.core.clock import HOUR_US
from sixfold.core.work.records import Prediction

CONTAINER_TIME = "container-time"  # the price row of what is paid by the time of its run
CHILDREN = "children"  # that of what is paid by the runs that it orders
TOKENS = "tokens"  # that of what is paid by what a language model read and wrote
_RUN = "run"  # the unit of what is told as an amount
_PARTS = 1_000_000  # of a priced unit, which may be as long as a minute


def run_time(us: int, hour_micros: int) -> LineItem:
    """A time on hardware at a price per hour."""
    return LineItem("run_ms", us, hour_micros, HOUR_US)


@dataclass(frozen=True, slots=True)
class Hire:
    """The hardware that a run is paid for: its id, and its price in micro-dollars an hour."""

    hardware: str
    hour_micros: int

    def price(self, limit_seconds: float) -> Price:
        """What is held for a run that may take `limit_seconds`."""
        line = run_time(round(limit_seconds * 1_000_000), self.hour_micros)
        micros = charges.total((line,))
        text = f"{money.format_usd(self.hour_micros)} USD per hour"
        return Price(micros, money.credits_for(micros), text, "time", self.hour_micros, (line,))


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
    """What is captured, in micro-dollars, the credits shown for it, and the lines that add up to it."""

    micros: int
    credits: int
    breakdown: CostBreakdown

    @classmethod
    def of(cls, lines: Iterable[LineItem], held: int) -> Charge:
        """Charge the sum of lines, but no more than was held."""
        breakdown = charges.of(lines, held)
        return cls(breakdown.amount, money.credits_for(breakdown.amount), breakdown)


def charge(
    prediction: Prediction, run_us: int, billed: float | None, lines: Sequence[LineItem] = ()
) -> Charge | None:
    """What a successful run costs by its own meter; None where that is its price, or its children's sum.

    `billed` are the units that the engine told; a run that tells none costs what was held for it. `lines` add
    up to it where it is an amount, in micro-dollars.
    """
    match prediction.meter:
        case "time":
            return Charge.of((run_time(run_us, prediction.rate),), prediction.price)
        case "units" if billed is not None:
            metered = LineItem(_unit(prediction), round(billed * _PARTS), prediction.rate, _PARTS)
            return Charge.of(_itemized(metered, lines), prediction.price)
        case "children" if billed is not None:  # micro-dollars of what no child did
            return Charge.of(_itemized(LineItem(_RUN, 1, round(billed)), lines), prediction.price)
        case _:
            return None


def _unit(prediction: Prediction) -> str:
    """The unit that a prediction is priced by, from what was quoted for it."""
    quoted = prediction.charge.lines if prediction.charge is not None else ()
    return quoted[0].unit if quoted else _RUN


def _itemized(metered: LineItem, lines: Sequence[LineItem]) -> Sequence[LineItem]:
    """The lines of an amount that the engine told, or that amount where they do not add up to it."""
    told = 0 < len(lines) <= charges.MOST_LINES and all(line.rate >= 0 <= line.quantity for line in lines)
    return lines if told and charges.total(lines) >= charges.total((metered,)) else (metered,)


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
