"""Rates of requests, of accounts and of addresses."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.web import refusals
from sixfold.web.admission import RequestRates


def _read_spent(rates: RequestRates, key: str, count: int) -> int:
    """Return how many of `count` requests are accepted."""
    accepted = 0
    for _ in range(count):
        try:
            rates.spend(key)
        except errors.TooManyRequests:
            continue
        accepted += 1
    return accepted


def test_burst_of_ten_seconds_precedes_the_rate_limit() -> None:
    now = 100.0
    rates = RequestRates(4, "A test", lambda: now)
    before = refusals.recorder().totals["rate"]
    assert _read_spent(rates, "x", 50) == 40
    assert refusals.recorder().totals["rate"] == before + 10
    assert _read_spent(rates, "y", 1) == 1
    now += 2
    assert _read_spent(rates, "x", 50) == 8
    with pytest.raises(errors.TooManyRequests, match="4 requests per second") as excinfo:
        rates.spend("x")
    assert excinfo.value.retry_after == 1


def test_rate_of_zero_disables_the_limit() -> None:
    assert _read_spent(RequestRates(0, "A test"), "x", 10_000) == 10_000


def test_flood_of_keys_does_not_reset_other_keys() -> None:
    now = 0.0
    rates = RequestRates(1, "A test", lambda: now, max_keys=100)
    assert _read_spent(rates, "owner", 20) == 10
    accepted = sum(_read_spent(rates, f"flood {number}", 1) for number in range(1_000))
    # The listed keys, and one limit for all other keys.
    assert accepted == 99 + 10
    assert _read_spent(rates, "owner", 1) == 0
    assert len(rates._due) == 101
    now = 20.0
    assert _read_spent(rates, "new", 20) == 10
