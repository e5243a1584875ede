"""Amounts as integer micro-dollars, and their conversion from and to decimal strings."""

from __future__ import annotations

from decimal import Decimal, DecimalException
from typing import Annotated

import msgspec

MICROS_PER_USD = 1_000_000
MICROS_PER_CREDIT = 10_000
Usd = Annotated[str, msgspec.Meta(description="USD as decimal text")]


def parse_usd(text: str) -> int:
    """Parse a decimal string such as `0.007` to micro-dollars.

    Raises `ValueError` for more than six decimals or 64 bits.
    """
    try:
        micros = Decimal(text) * MICROS_PER_USD
    except DecimalException:
        raise ValueError(f"{text[:100]!r} is not an amount in USD") from None
    if not micros.is_finite() or abs(micros) >= 2**63 or micros != micros.to_integral_value():
        raise ValueError(f"{text[:100]!r} is not an amount in USD with at most six decimals")
    return int(micros)


def format_usd(micros: int) -> str:
    """Format micro-dollars with two or more decimals, without further trailing zeros: `0.007`, `0.30`."""
    sign = "-" if micros < 0 else ""
    whole, fraction = divmod(abs(micros), MICROS_PER_USD)
    decimals = f"{fraction:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{decimals}"


def credits_for(micros: int) -> int:
    """Return the credits displayed for a price: 1 credit is 0.01 USD, rounded up."""
    return -(-micros // MICROS_PER_CREDIT)


def short_usd(micros: int) -> str:
    """Format micro-dollars with two significant digits below a dollar, and cents above: `0.0012`, `9.69`."""
    places = 2
    while places < 6 and 0 < abs(micros) < 10 ** (7 - places):
        places += 1
    step = 10 ** (6 - places)
    return format_usd(round(micros / step) * step)
