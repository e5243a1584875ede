"""The life of a session: states, events, and the one table that says what follows what.

    requested ──start──▶ starting ──ready──▶ ready ──input──▶ active ⇄ idle
        │ ╲                 │ ╲──fail──▶ failed ◀──lose── all of them
        └──close────────────┴──close──▶ closing ◀──close── ready, active, idle
                                           └──end──▶ closed

Closed and failed absorb.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a session stands."""

    REQUESTED = "requested"
    STARTING = "starting"
    READY = "ready"
    ACTIVE = "active"
    IDLE = "idle"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


class Event(StrEnum):
    """What can happen to a session."""

    START = "start"
    READY = "ready"
    INPUT = "input"
    REST = "rest"
    CLOSE = "close"
    END = "end"
    FAIL = "fail"
    LOSE = "lose"


TERMINAL = frozenset({State.CLOSED, State.FAILED})

TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.REQUESTED, Event.START): State.STARTING,
    (State.REQUESTED, Event.CLOSE): State.CLOSING,
    (State.REQUESTED, Event.LOSE): State.FAILED,
    (State.STARTING, Event.READY): State.READY,
    (State.STARTING, Event.FAIL): State.FAILED,
    (State.STARTING, Event.CLOSE): State.CLOSING,
    (State.STARTING, Event.LOSE): State.FAILED,
    (State.READY, Event.INPUT): State.ACTIVE,
    (State.READY, Event.REST): State.IDLE,
    (State.READY, Event.CLOSE): State.CLOSING,
    (State.READY, Event.FAIL): State.FAILED,
    (State.READY, Event.LOSE): State.FAILED,
    (State.ACTIVE, Event.REST): State.IDLE,
    (State.ACTIVE, Event.CLOSE): State.CLOSING,
    (State.ACTIVE, Event.FAIL): State.FAILED,
    (State.ACTIVE, Event.LOSE): State.FAILED,
    (State.IDLE, Event.INPUT): State.ACTIVE,
    (State.IDLE, Event.CLOSE): State.CLOSING,
    (State.IDLE, Event.FAIL): State.FAILED,
    (State.IDLE, Event.LOSE): State.FAILED,
    (State.CLOSING, Event.END): State.CLOSED,
    (State.CLOSING, Event.LOSE): State.CLOSED,
}
