"""Itemized charges: the counted units, the rate of each unit, and the resulting amount.

The amount is the sum of all lines, rounded up once to the next micro-dollar and limited to the amount of the
hold. A charge is stored as JSON with its gateway call, prediction or ledger entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, NamedTuple, NotRequired, TypedDict

import msgspec

from sixfold.core import money
from sixfold.core.clock import HOUR_US

PER_MILLION = 1_000_000
MINUTE_MS = 60_000
# Lines of a charge that is formatted in words; its JSON contains all lines.
_TEXT_LINES = 8
# Maximum number of lines of a stored charge.
MAX_LINES = 100


class ChargeLineSchema(TypedDict):
    """A line of a charge as JSON."""

    unit: str
    quantity: float
    rate_usd: Annotated[str, msgspec.Meta(description="USD for `per` units")]
    per: int
    list_rate_usd: NotRequired[Annotated[str, msgspec.Meta(description="The listed rate, where it differs")]]


class ChargeSchema(TypedDict):
    """A charge as JSON; fields are null if nothing was charged, and for rows written by older versions."""

    amount_usd: str
    sum: Annotated[str, msgspec.Meta(examples=["1,200 × 0.10/M + 300 × 0.40/M = 0.00024 USD"])]
    lines: list[ChargeLineSchema]
    limit_usd: NotRequired[
        Annotated[str, msgspec.Meta(description="What was held, where the sum is above it")]
    ]


class LineItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`quantity` units at `rate` micro-dollars for each `per` units.

    `list_rate` is the listed rate if a different rate was applied, otherwise None.
    """

    unit: str
    quantity: int
    rate: int
    per: int = 1
    list_rate: int | None = None


class CostBreakdown(msgspec.Struct, frozen=True, omit_defaults=True):
    """The charged `amount` and its lines; `limit` is set if the sum exceeded it.

    Both are in micro-dollars.

    In a response, they are named `amount_usd` and `limit_usd`.
    """

    amount: int
    lines: tuple[LineItem, ...] = ()
    limit: int | None = None


def total(lines: Sequence[LineItem]) -> int:
    """Return the sum of the lines in micro-dollars, rounded up once."""
    if not lines:
        return 0
    per, summed = lines[0].per, 0
    for line in lines:
        if line.per != per:
            summed, per = _exact((line.quantity * line.rate, line.per) for line in lines)
            break
        summed += line.quantity * line.rate
    return -(-summed // per)


def calculate(lines: Iterable[LineItem], limit: int | None = None) -> CostBreakdown:
    """Return the charge for the lines: their sum, limited to `limit` micro-dollars."""
    items = tuple(lines)
    amount = total(items)
    if limit is not None and amount > limit:
        return CostBreakdown(limit, items, limit)
    return CostBreakdown(amount, items)


def waive(lines: Iterable[LineItem]) -> tuple[LineItem, ...]:
    """Return the lines with a rate of 0 and the original rates as list rates."""
    return tuple(msgspec.structs.replace(line, rate=0, list_rate=line.rate) for line in lines)


def group_runs(runs: Iterable[tuple[str, int, int]]) -> tuple[LineItem, ...]:
    """Return a line for each (model, micro-dollars of one run, number of runs), most expensive first.

    Lines beyond `MAX_LINES` are combined into one line `others`.
    """
    by_cost = sorted(runs, key=lambda run: run[1] * run[2], reverse=True)
    lines = [LineItem(model, count, micros) for model, micros, count in by_cost if micros]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES - 1 :] = [LineItem("others", 1, total(lines[MAX_LINES - 1 :]))]
    return tuple(lines)


def _exact(terms: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the sum of fractions as a numerator and a denominator."""
    pairs = tuple(terms)
    common = math.lcm(1, *[per for _, per in pairs])
    return sum(amount * (common // per) for amount, per in pairs), common


# -- storage -----------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CostBreakdown).decode


def encode(charge: CostBreakdown) -> str:
    return _encode(charge).decode()


def decode(text: str | None) -> CostBreakdown | None:
    """Parse a stored charge; return None for a row without a charge."""
    # Rows of version 0.2 and older contain the limit as `most`.
    return None if text is None else _decode(text.replace('"most":', '"limit":'))


NOTHING = encode(CostBreakdown(0))


# -- display -----------------------------------------------------------------------------------------


class _UnitFormat(NamedTuple):
    """The display of a unit: `steps` stored units make one displayed unit."""

    steps: int
    word: str
    per: str


_FORMATS: Mapping[tuple[str, int], _UnitFormat] = {
    ("input_tokens", PER_MILLION): _UnitFormat(1, "", "M"),
    ("cached_tokens", PER_MILLION): _UnitFormat(1, " cached", "M"),
    ("cache_write_tokens", PER_MILLION): _UnitFormat(1, " cache-write", "M"),
    ("cache_write_1h_tokens", PER_MILLION): _UnitFormat(1, " 1-hour cache-write", "M"),
    ("image_input_tokens", PER_MILLION): _UnitFormat(1, " image", "M"),
    ("audio_input_tokens", PER_MILLION): _UnitFormat(1, " audio", "M"),
    ("output_tokens", PER_MILLION): _UnitFormat(1, "", "M"),
    ("reasoning_tokens", PER_MILLION): _UnitFormat(1, " reasoning", "M"),
    ("image_output_tokens", PER_MILLION): _UnitFormat(1, " image", "M"),
    ("audio_output_tokens", PER_MILLION): _UnitFormat(1, " audio", "M"),
    ("characters", PER_MILLION): _UnitFormat(1, " characters", "M"),
    ("images", 1): _UnitFormat(1, "", "image"),
    ("web_searches", 1): _UnitFormat(1, " searches", "search"),
    ("file_searches", 1): _UnitFormat(1, " file searches", "search"),
    ("code_containers", 1): _UnitFormat(1, " containers", "container"),
    ("preview_searches", 1): _UnitFormat(1, " preview searches", "search"),
    ("code_executions", 1): _UnitFormat(1, " code executions", "execution"),
    ("audio_seconds", MINUTE_MS): _UnitFormat(1000, " s", "min"),
    ("billed_usd", money.MICROS_PER_USD): _UnitFormat(money.MICROS_PER_USD, " USD billed", "USD"),
    ("run_ms", HOUR_US): _UnitFormat(1000, " ms", "h"),
}


def to_json(charge: CostBreakdown | None) -> ChargeSchema | None:
    """Return a charge as JSON: amounts as decimal strings in USD, and the sum in words.

    `limit_usd` is present if the hold limited the sum, and `list_rate_usd` if a line has a different list
    rate.
    """
    if charge is None:
        return None
    result: ChargeSchema = {
        "amount_usd": money.format_usd(charge.amount),
        "sum": in_words(charge) or "",
        "lines": [_line_to_json(line) for line in charge.lines],
    }
    if charge.limit is not None:
        result["limit_usd"] = money.format_usd(charge.limit)
    return result


def _line_to_json(line: LineItem) -> ChargeLineSchema:
    steps = _format(line).steps
    is_whole = line.quantity % steps == 0
    result: ChargeLineSchema = {
        "unit": line.unit,
        "quantity": line.quantity // steps if is_whole else line.quantity / steps,
        "rate_usd": money.format_usd(line.rate),
        "per": line.per // steps,
    }
    if line.list_rate is not None:
        result["list_rate_usd"] = money.format_usd(line.list_rate)
    return result


def in_words(charge: CostBreakdown | None) -> str | None:
    """Format a charge as `1,200 × 0.10/M + 300 × 0.40/M = 0.00024 USD`; return None for None."""
    if charge is None:
        return None
    priced = [line for line in charge.lines if line.rate] or charge.lines
    terms = [_term(line) for line in priced[:_TEXT_LINES]]
    if len(priced) > _TEXT_LINES:
        terms.append(f"{len(priced) - _TEXT_LINES} more")
    summed, common = _exact((line.quantity * line.rate, line.per) for line in charge.lines)
    micros = -(-summed // common)
    text = f"{money.format_usd(micros)} USD"
    if terms:
        text = f"{' + '.join(terms)} = {text}"
    if summed % common:
        text += ", rounded up"
    if charge.limit is not None:
        text += f", limited to the {money.format_usd(charge.limit)} USD held"
    return text + _list_price(charge.lines)


def _list_price(lines: Sequence[LineItem]) -> str:
    if all(line.list_rate is None for line in lines):
        return ""
    quantities = [(line.quantity * _listed(line), line.per) for line in lines]
    summed, common = _exact(quantities)
    return f" (list price {money.format_usd(-(-summed // common))} USD)"


def _listed(line: LineItem) -> int:
    return line.rate if line.list_rate is None else line.list_rate


def _term(line: LineItem) -> str:
    form = _format(line)
    return f"{_quantity(line.quantity, form.steps)}{form.word} × {money.format_usd(line.rate)}/{form.per}"


def _format(line: LineItem) -> _UnitFormat:
    return _FORMATS.get((line.unit, line.per)) or _UnitFormat(line.per, "", line.unit)


def _quantity(quantity: int, steps: int) -> str:
    """Format a quantity with all its decimals: `1,200`, `1.5`."""
    return f"{(Decimal(quantity) / steps).normalize():,f}"
