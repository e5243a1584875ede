"""The steady clock, and time formats."""

from __future__ import annotations

import time

import pytest

from sixfold.core import clock, ids


@pytest.mark.parametrize("days", [-2, 2])
def test_change_of_the_system_clock_moves_no_lease(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    steady = clock.steady_clock()
    before = steady()
    wall = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: wall + days * 86_400 * 10**9)
    after = steady()
    assert 0 <= after - before < clock.HOUR_US


def test_time_is_formatted_as_rfc_3339_in_utc() -> None:
    assert clock.rfc3339(1_795_208_645_123_456) == "2026-11-20T21:04:05.123Z"
    assert clock.rfc3339(None) is None


def test_ids_sort_by_their_creation_time(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[str] = []
    for second in range(5):
        monkeypatch.setattr(ids, "now_us", lambda second=second: second * clock.SECOND_US)
        results.append(ids.new("pred"))
    assert results == sorted(results)
    assert len(set(results)) == 5
    assert all(len(name) == len("pred_") + 36 for name in results)
