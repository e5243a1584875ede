"""The price table in exact micro-dollars, and the operator's setting `[prices]` that overrides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, cast

import msgspec
from msgspec.structs import replace

from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import LineItem
from sixfold.core.money import Usd

Meter = Literal["fixed", "time", "units", "children"]

_MILLI = 1000
_PER_UNIT_CREDITS = frozenset({"image"})
_REQUEST = "request"


class PriceRow(msgspec.Struct, frozen=True):
    """The maximum price of a request: micro-dollars, the credits displayed for it, and a description.

    `meter` determines the captured amount: `fixed`, by the run's `time` or `units` (`rate` micro-dollars per
    hour or unit), or by the cost of its `children`. The `lines` add up to `micros` if the price is from a
    table. `list_micros` is the list price if less is charged, otherwise None.
    """

    micros: int
    credits: int
    text: str
    meter: Meter = "fixed"
    rate: int = 0
    lines: tuple[LineItem, ...] = ()
    list_micros: int | None = None

    @property
    def charge(self) -> str | None:
        """The itemized charge as stored, or None if it depends on the run."""
        return charges.encode(charges.calculate(self.lines)) if self.lines or not self.micros else None

    @property
    def cost(self) -> str:
        """The price in USD as a decimal string."""
        return money.format_usd(self.micros)

    def waive(self) -> PriceRow:
        """Return this price reduced to 0, with the original price as the list price."""
        if not self.micros:
            return self
        lines = charges.waive(self.lines)
        return replace(self, micros=0, credits=0, lines=lines, list_micros=self.micros)


FREE = PriceRow(0, 0, "free")


class ListPriceSchema(TypedDict, total=False):
    """The list price, if less is charged."""

    list_price: Usd


def list_price_field(micros: int | None) -> ListPriceSchema:
    """Return the response field `list_price`, or an empty mapping for None."""
    return {} if micros is None else {"list_price": money.format_usd(micros)}


class Rate(msgspec.Struct, frozen=True):
    """A row of the price table in micro-dollars. `by` names the input that selects one of `variants`."""

    per: str
    unit: int
    request: int
    by: str | None
    variants: Mapping[str, int]

    def price(self, quantity: int | float = 1, variant: str | None = None) -> PriceRow:
        """Return the price of `quantity` units (to the thousandth), rounded up to the micro-dollar."""
        unit = self.variants.get(variant or "", self.unit)
        milli_units = round(quantity * _MILLI)
        lines = [LineItem(self.per, milli_units, unit, _MILLI)]
        if self.request:
            lines.append(LineItem(_REQUEST, 1, self.request))
        micros = charges.total(lines)
        if self.per in _PER_UNIT_CREDITS:
            credits = money.credits_for(unit) * -(-milli_units // _MILLI) + money.credits_for(self.request)
        else:
            credits = money.credits_for(micros)
        return PriceRow(micros, credits, self._in_words(unit), lines=tuple(lines))

    @property
    def most_expensive(self) -> str | None:
        """The most expensive variant, or None if there are no variants."""
        return max(self.variants, key=self.variants.__getitem__, default=None)

    def metered(self, quantity: int | float, variant: str | None = None) -> PriceRow:
        """Return the price to hold for `quantity` units; the run's actual number of units is captured."""
        if self.request:
            raise ValueError("a rate that has a price per request cannot be metered")
        price = self.price(quantity, variant)
        return replace(price, meter="units", rate=self.variants.get(variant or "", self.unit))

    @property
    def text(self) -> str:
        """The rate in words, or a range if the variants have different rates."""
        units = sorted(set(self.variants.values())) or [self.unit]
        if len(units) == 1:
            return self._in_words(units[0])
        return f"{money.format_usd(units[0])} to {self._in_words(units[-1])}"

    def _in_words(self, unit: int) -> str:
        extra = f" plus {money.format_usd(self.request)} USD per request" if self.request else ""
        return f"{money.format_usd(unit)} USD per {self.per}{extra}"


class PriceTable:
    """All rates by name, from `data/prices.toml` and the operator's `[prices]`.

    If `own_hardware_free` is set, models that run on engines of this installation are free.
    """

    def __init__(self, rows: Mapping[str, Mapping[str, Any]], *, own_hardware_free: bool = False) -> None:
        self.own_hardware_free = own_hardware_free
        self._rates = {name: _rate(name, row) for name, row in rows.items()}

    def __getitem__(self, name: str) -> Rate:
        return self._rates[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rates

    def names(self) -> tuple[str, ...]:
        return tuple(self._rates)


def _rate(name: str, row: Mapping[str, Any]) -> Rate:
    usd = row["usd"]
    texts = cast("Mapping[str, str]", usd) if isinstance(usd, Mapping) else dict[str, str]()
    variants = {key: money.parse_usd(text) for key, text in texts.items()}
    unit = next(iter(variants.values())) if variants else money.parse_usd(str(cast("object", usd)))
    request = money.parse_usd(str(row.get("request_usd", "0")))
    if unit < 0 or request < 0 or any(amount < 0 for amount in variants.values()):
        raise ValueError(f"the price of {name} must not be negative")
    return Rate(per=row["per"], unit=unit, request=request, by=row.get("by"), variants=variants)


# -- the setting [prices] ----------------------------------------------------------------------------

_FIELDS = frozenset({"usd", "request_usd"})


class InvalidPrice(ValueError):
    """An invalid row of `[prices]`; the message contains the row, the field and the valid values."""


def apply_overrides(
    rows: Mapping[str, Mapping[str, Any]], own: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the bundled rows with the operator's rows merged in by variant; raises `InvalidPrice`."""
    merged = {name: dict(row) for name, row in rows.items()}
    for name, row in own.items():
        if name not in merged:
            raise InvalidPrice(f"[prices] has an unknown row {name!r}: use {', '.join(merged)}")
        if not isinstance(row, dict):
            raise InvalidPrice(f'[prices.{name}] must be a table such as {{ usd = "0.05" }} (got {row!r})')
        merged[name] |= _own_row(name, merged[name], cast("dict[str, Any]", row))
    return merged


def _own_row(name: str, bundled: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    where, before = f"[prices.{name}]", bundled["usd"]
    if unknown := sorted(set(row) - _FIELDS):
        raise InvalidPrice(f"{where} has an unknown field {unknown[0]!r}: use usd or request_usd")
    checked: dict[str, Any] = {}
    for field, value in row.items():
        if not isinstance(value, dict):
            _check_amount(f"{where} {field}", value)
            checked[field] = value
            continue
        if field != "usd" or not isinstance(before, dict):
            raise InvalidPrice(f"{where} {field} must be one amount in USD, not a table")
        base_row = cast("dict[str, Any]", before)
        variants = cast("dict[str, Any]", value)
        for variant, amount in variants.items():
            if variant not in base_row:
                raise InvalidPrice(
                    f"{where} usd has an unknown variant {variant!r}: use {', '.join(base_row)}"
                )
            _check_amount(f"{where} usd.{variant}", amount)
        checked[field] = {**base_row, **variants}
    return checked


def _check_amount(where: str, value: Any) -> None:
    try:
        micros = -1 if isinstance(value, bool) else money.parse_usd(str(value))
    except ValueError:
        micros = -1
    if micros < 0:
        raise InvalidPrice(f'{where} must be USD with at most six decimals, such as "0.05" (got {value!r})')
