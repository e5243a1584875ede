"""Pricing rules in addition to the price table: free hardware, workflow quotes, and charges of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import charges, ledger
from sixfold.core.accounts.charges import LineItem
from sixfold.core.accounts.prices import PriceRow, PriceTable
from sixfold.core.catalog import metering
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.metering import RunCharge
from sixfold.core.catalog.models import Catalog, EngineSpec, Model
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions.events import Event, EventBus, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest, PriceQuote

N = TypeVar("N", int, float)
# Unit of an amount that the engine reports.
_RUN = "run"
# Units are counted in millionths, because a priced unit may be as long as a minute.
_PARTS = 1_000_000
# Maximum number of workflows in a quote cache.
_MAX_TABLES = 10_000


def charged_price(
    price: PriceRow, catalog: Catalog, model: Model, engine: EngineSpec, values: Mapping[str, Any]
) -> PriceRow:
    """Return the price that is charged: 0 if the server's own hardware serves the inputs and is free."""
    is_free = catalog.prices.own_hardware_free and catalog.is_own(model, engine, values)
    return price.waive() if is_free else price


def is_waived(catalog: Catalog, terms: SelectionPolicy, model: Model) -> bool:
    """Return whether a default request for a model is free because the server's own hardware serves it."""
    if not catalog.prices.own_hardware_free:
        return False
    try:
        return catalog.is_own(model, model.choose({}, terms)[0], {})
    except (errors.EngineUnavailable, errors.InvalidInput):
        return False


def quote_project(
    catalog: Catalog, model: Model, quote: PriceQuote, sources: Mapping[str, MediaSource]
) -> PriceQuote:
    """Return the quote of a video project, priced by the actual lengths of its files."""
    if not model.projects:
        return quote
    values = model.measured(quote.values, {name: source.seconds for name, source in sources.items()})
    price = charged_price(catalog.price(model, values), catalog, model, quote.engine, values)
    return msgspec.structs.replace(quote, values=values, price=price)


def in_words(
    catalog: Catalog, terms: SelectionPolicy, model: Model, *, by_time: bool = False
) -> tuple[str, str | None]:
    """Return the price of a typical request in words, and the list price if the request is free.

    `by_time` is for requests that specify hardware, which are charged by time.
    """
    price_text = catalog.price_text(model, by_time=by_time)
    return ("free on this server", price_text) if is_waived(catalog, terms, model) else (price_text, None)


def check_max_price(request: PredictionRequest, quote: PriceQuote) -> None:
    """Raise `EngineUnavailable` for a child that costs more than its parent's hold for that child.

    This happens if a free engine was available when the workflow was quoted, but now only a provider is.
    """
    if request.max_price is not None and quote.price.micros > request.max_price:
        hold = money.format_usd(request.max_price)
        cost = f"{request.model} would cost {quote.price.cost} USD with the engine {quote.engine.name}"
        raise errors.EngineUnavailable(f"{cost}, but only {hold} USD is held for it")


def check_still_own(prediction: Prediction, *, is_own: bool) -> None:
    """Raise `EngineUnavailable` for a free run if not only own model servers can serve it any more."""
    if prediction.list_price is not None and not is_own:
        raise errors.EngineUnavailable(
            f"{prediction.model} was accepted free of charge, but now a provider's model would be called"
        )


class QuoteCache:
    """The price tables that were in force when the running workflows were quoted."""

    def __init__(self, catalog: Catalog, bus: EventBus) -> None:
        self._catalog = catalog
        self._tables: dict[str, PriceTable] = {}
        bus.watchers.append(self._forget)

    def store(self, prediction: Prediction) -> None:
        """Store the current price table for an accepted workflow."""
        if prediction.meter != metering.CHILDREN or prediction.is_terminal:
            return
        if len(self._tables) >= _MAX_TABLES:
            del self._tables[next(iter(self._tables))]
        self._tables[prediction.id] = self._catalog.prices

    def using(self, prediction_id: str) -> AbstractContextManager[None]:
        """Return a context manager that prices children with the price table of their workflow's quote."""
        return self._catalog.at(self._tables.get(prediction_id))

    def _forget(self, prediction_id: str, event: Event) -> None:
        if isinstance(event, StateChanged) and event.prediction.is_terminal:
            self._tables.pop(prediction_id, None)


def plausible(amount: N | None) -> N | None:
    """Return the amount that an engine reports, or None if it is negative, not a number or too large."""
    return amount if amount is not None and 0 <= amount <= ledger.MAX_BALANCE else None


def final_charge(
    prediction: Prediction, run_us: int, billed: float | None, lines: Sequence[LineItem] = ()
) -> RunCharge | None:
    """Return the charge of a successful metered run, or None if the price or children's costs apply.

    `billed` is the number of units that the engine reports; if it is None or not `plausible`, the held amount
    is charged. `lines` itemize `billed` if it is an amount in micro-dollars.
    """
    metered_line = _metered(prediction, run_us, plausible(billed), lines)
    if metered_line is None:
        return None
    if prediction.list_price is None:
        return RunCharge.of(metered_line, prediction.price)
    list_charge = charges.calculate(metered_line, prediction.list_price)
    return RunCharge(0, 0, charges.calculate(charges.waive(list_charge.lines)), list_charge.amount)


def _metered(
    prediction: Prediction, run_us: int, billed: float | None, lines: Sequence[LineItem]
) -> Sequence[LineItem] | None:
    match prediction.meter:
        case "time":
            return (metering.run_time(run_us, prediction.rate),)
        case "units" if billed is not None:
            metered = LineItem(_unit(prediction), round(billed * _PARTS), prediction.rate, _PARTS)
            return _itemized(metered, lines)
        case "children" if billed is not None:
            # `billed` is the amount in micro-dollars without the charges of children.
            return _itemized(LineItem(_RUN, 1, round(billed)), lines)
        case _:
            return None


def _unit(prediction: Prediction) -> str:
    quoted = prediction.charge.lines if prediction.charge is not None else ()
    return quoted[0].unit if quoted else _RUN


def _itemized(metered_line: LineItem, lines: Sequence[LineItem]) -> Sequence[LineItem]:
    valid = 0 < len(lines) <= charges.MAX_LINES and all(line.rate >= 0 <= line.quantity for line in lines)
    return lines if valid and charges.total(lines) == charges.total((metered_line,)) else (metered_line,)
