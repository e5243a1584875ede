"""Counts and log lines of rejected requests."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from sixfold.web import metrics, refusals
from sixfold.web.refusals import Callers, Refusals


def test_log_has_a_line_a_minute_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sixfold.server")
    result = Refusals()
    for number in range(1_000):
        result.add("rate", "192.0.2.1" if number % 2 else f"198.51.100.{number % 250}")
    result.add("not_configured", "192.0.2.9", "This is not set up on this server.")
    for moment in range(59):
        result.log(float(moment))
        result.add("rate", "192.0.2.7")
    assert len(caplog.records) == 2
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "Refused 1000 requests beyond the rate limit since the last log line with this reason, at least "
    )
    assert first.endswith("of 192.0.2.1")
    assert second.endswith("at least 1 of 192.0.2.9; the last: This is not set up on this server.")
    result.log(60.0)
    result.log(3600.0)
    assert [record.__dict__["count"] for record in caplog.records] == [1000, 1, 59]
    assert result.totals["rate"] == 1059


def test_callers_finds_the_busiest_of_many_in_bounded_memory() -> None:
    callers = Callers()
    for number in range(100_000):
        callers.add(f"caller {number}")
        if number % 10 == 0:
            callers.add("busy")
    assert len(callers._counts) <= 64
    assert callers.busiest()[0] == "busy"


def test_metrics_have_every_reason_from_the_start() -> None:
    registry = CollectorRegistry()
    registry.register(metrics._RefusedCounter())
    text = generate_latest(registry).decode()
    for reason in refusals.REASONS:
        assert f'sixfold_refused_total{{reason="{reason}"}}' in text
    for reason in ("too_many", "silent", "slow_headers", "slow_body"):
        assert f'sixfold_connections_refused_total{{reason="{reason}"}}' in text
