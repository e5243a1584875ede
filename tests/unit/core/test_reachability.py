"""The state of a server by the results of its probes."""

from __future__ import annotations

from sixfold.core.reachability import BUSY_SECONDS, Outage, Reachability

START = 1_790_000_000.0


class Clock:
    """A clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def reachability(clock: Clock, failures: int = 2) -> Reachability:
    return Reachability(failures, clock=clock, wall_clock=clock)


def test_one_failed_probe_of_a_ready_server_is_not_an_outage() -> None:
    state = reachability(clock := Clock())
    state.record_response()
    state.record_failure("could not be reached")
    assert (state.outage, state.state) == (None, "ready")
    state.record_response()
    state.record_failure("could not be reached")
    clock.now += 15
    state.record_failure("disconnected")
    assert state.outage == Outage(START, "disconnected")
    assert state.outage is not None
    assert state.outage.clause == "has not responded since 2026-09-21 14:13 UTC"
    assert state.state == "absent"
    state.record_response()
    assert (state.outage, state.state) == (None, "ready")


def test_first_failed_probe_of_an_unknown_server_is_an_outage() -> None:
    state = reachability(Clock())
    assert state.state == "ready"
    state.record_failure("did not respond in time", is_slow=True)
    assert (state.state, state.was_ready) == ("slow", False)
    assert state.outage is not None


def test_timeouts_are_an_outage_after_two_minutes_without_calls() -> None:
    state = reachability(clock := Clock())
    state.record_response()
    clock.now += BUSY_SECONDS - 1
    state.record_failure("did not respond in time", is_slow=True)
    assert state.outage is None
    clock.now += 1
    state.record_failure("did not respond in time", is_slow=True, is_busy=True)
    assert state.outage is None
    state.record_failure("did not respond in time", is_slow=True)
    assert state.outage == Outage(START + BUSY_SECONDS - 1, "did not respond in time")
