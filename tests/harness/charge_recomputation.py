"""Recomputation of a charge from its API representation, in exact fractions, without the product's code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any


def recomputed(charge: Mapping[str, Any]) -> int:
    """Return micro-dollars: the sum of quantity times rate, rounded up once, capped at the limit."""
    summed = sum(
        Fraction(Decimal(str(line["quantity"]))) * micros(line["rate_usd"]) / line["per"]
        for line in charge["lines"]
    )
    limit = charge.get("limit_usd")
    return math.ceil(summed) if limit is None else min(math.ceil(summed), micros(limit))


def micros(usd: str) -> int:
    """Convert an amount in USD to micro-dollars."""
    return int(Decimal(usd) * 1_000_000)
