"""The rate of client events."""

from __future__ import annotations

import pytest

from sixfold.api.gateway.openai.realtime.connection import EventPace


def test_events_beyond_the_rate_wait() -> None:
    moment = 100.0
    pace = EventPace(10, 20, clock=lambda: moment)
    delays = [pace.delay() for _ in range(30)]
    assert delays[:20] == [0.0] * 20
    assert delays[29] == pytest.approx(1.0)
    moment = 103.0
    assert pace.delay() == pytest.approx(0.0)
