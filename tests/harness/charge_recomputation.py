"""Recomputes a charge from what the API shows of it, in exact fractions and by no code of the product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any


def recomputed(charge: Mapping[str, Any]) -> int:
    """Micro-dollars: the sum of quantity times rate, rounded up once, and no more than the limit."""
    summed = sum(
        Fraction(Decimal(str(line["quantity"]))) * micros(line["rate_usd"]) / line["per"]
        for line in charge["lines"]
    )
    limit = charge.get("limit_usd")
    return math.ceil(summed) if limit is None else min(math.ceil(summed), micros(limit))


def micros(usd: str) -> int:
    """Micro-dollars of an amount in USD."""
    return int(Decimal(usd) * 1_000_000)
