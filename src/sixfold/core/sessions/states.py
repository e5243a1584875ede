"""The state machine of a session: states, events, and the table of transitions.

    requested ──start──▶ starting ──ready──▶ ready ──input──▶ active ⇄ idle
        │ ╲                 │ ╲──fail──▶ failed ◀──lose── all of them
        └──close────────────┴──close──▶ closing ◀──close── ready, active, idle
                                           └──end──▶ closed

An idle session without input for longer is paused: it stays idle, does not run steps and is not charged.
Closed and failed are terminal.
"""

from __future__ import annotations

from enum import StrEnum


class SessionState(StrEnum):
    REQUESTED = "requested"
    STARTING = "starting"
    READY = "ready"
    ACTIVE = "active"
    IDLE = "idle"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


class SessionEvent(StrEnum):
    START = "start"
    READY = "ready"
    INPUT = "input"
    REST = "rest"
    PAUSE = "pause"
    CLOSE = "close"
    END = "end"
    FAIL = "fail"
    LOSE = "lose"


TERMINAL = frozenset({SessionState.CLOSED, SessionState.FAILED})

TRANSITIONS: dict[tuple[SessionState, SessionEvent], SessionState] = {
    (SessionState.REQUESTED, SessionEvent.START): SessionState.STARTING,
    (SessionState.REQUESTED, SessionEvent.CLOSE): SessionState.CLOSING,
    (SessionState.REQUESTED, SessionEvent.LOSE): SessionState.FAILED,
    (SessionState.STARTING, SessionEvent.READY): SessionState.READY,
    (SessionState.STARTING, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.STARTING, SessionEvent.CLOSE): SessionState.CLOSING,
    (SessionState.STARTING, SessionEvent.LOSE): SessionState.FAILED,
    (SessionState.READY, SessionEvent.INPUT): SessionState.ACTIVE,
    (SessionState.READY, SessionEvent.REST): SessionState.IDLE,
    (SessionState.READY, SessionEvent.CLOSE): SessionState.CLOSING,
    (SessionState.READY, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.READY, SessionEvent.LOSE): SessionState.FAILED,
    (SessionState.ACTIVE, SessionEvent.REST): SessionState.IDLE,
    (SessionState.ACTIVE, SessionEvent.CLOSE): SessionState.CLOSING,
    (SessionState.ACTIVE, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.ACTIVE, SessionEvent.LOSE): SessionState.FAILED,
    (SessionState.IDLE, SessionEvent.INPUT): SessionState.ACTIVE,
    (SessionState.IDLE, SessionEvent.PAUSE): SessionState.IDLE,
    (SessionState.IDLE, SessionEvent.CLOSE): SessionState.CLOSING,
    (SessionState.IDLE, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.IDLE, SessionEvent.LOSE): SessionState.FAILED,
    (SessionState.CLOSING, SessionEvent.END): SessionState.CLOSED,
    (SessionState.CLOSING, SessionEvent.LOSE): SessionState.CLOSED,
}
