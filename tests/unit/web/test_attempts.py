"""Attempts of any number of keys, in fixed memory."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.web.admission import Attempts


def _is_refused(attempts: Attempts, key: str) -> bool:
    try:
        attempts.spend(key)
    except errors.TooManyRequests:
        return True
    return False


def test_spend_over_the_limit_is_refused_until_the_window_ends() -> None:
    now = 0.0
    attempts = Attempts(2, 10, lambda: now)
    attempts.spend("x")
    now = 4.0
    attempts.spend("x")
    with pytest.raises(errors.TooManyRequests) as excinfo:
        attempts.spend("x")
    assert excinfo.value.retry_after == 6
    attempts.spend("y")
    now = 10.0
    attempts.spend("x")


def test_give_back_leaves_other_attempts_counted() -> None:
    attempts = Attempts(2, 10, lambda: 0.0)
    for _ in range(5):
        attempts.release(attempts.spend("x"))
    attempts.spend("x")
    attempts.spend("x")
    assert _is_refused(attempts, "x")


def test_give_back_of_an_earlier_window_changes_nothing() -> None:
    now = 0.0
    attempts = Attempts(1, 10, lambda: now)
    early = attempts.spend("x")
    now = 10.0
    attempts.spend("x")
    attempts.release(early)
    assert _is_refused(attempts, "x")


def test_flood_of_keys_loses_no_count_and_refuses_few() -> None:
    attempts = Attempts(5, 300, lambda: 0.0)
    for _ in range(5):
        attempts.spend("owner")
    for number in range(10_000):
        for _ in range(5):
            if _is_refused(attempts, f"flood {number}"):
                break
    assert _is_refused(attempts, "owner")
    assert sum(_is_refused(attempts, f"new {number}") for number in range(1_000)) < 20
