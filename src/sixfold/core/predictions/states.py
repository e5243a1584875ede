"""The life of a prediction: states, events, and the one table that says what follows what.

    queued ──claim──▶ starting ──ready──▶ running ──succeed──▶ succeeded
       │ ╲──claim_warm──────────────────▶    │ ╲───fail─────▶ failed
       │  ╲─expire──▶ expired                │
       └──cancel──▶ canceled ◀──stop── canceling ◀──cancel

A lost lease puts `starting` and `running` back into the queue, and `put_back` what was claimed for a worker
that is not free yet after all; that was no attempt. Terminal states absorb, but for a refund, which turns
`succeeded` into `failed`.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a prediction stands."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    CANCELING = "canceling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"


class Event(StrEnum):
    """What can happen to a prediction."""

    CLAIM = "claim"
    CLAIM_WARM = "claim_warm"
    READY = "ready"
    SUCCEED = "succeed"
    FAIL = "fail"
    LOSE = "lose"
    PUT_BACK = "put_back"
    CANCEL = "cancel"
    STOP = "stop"
    EXPIRE = "expire"
    REFUND = "refund"


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED, State.EXPIRED})

TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.QUEUED, Event.CLAIM): State.STARTING,
    (State.QUEUED, Event.CLAIM_WARM): State.RUNNING,
    (State.QUEUED, Event.CANCEL): State.CANCELED,
    (State.QUEUED, Event.EXPIRE): State.EXPIRED,
    (State.STARTING, Event.READY): State.RUNNING,
    (State.STARTING, Event.FAIL): State.FAILED,
    (State.STARTING, Event.LOSE): State.QUEUED,
    (State.STARTING, Event.CANCEL): State.CANCELING,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.LOSE): State.QUEUED,
    (State.RUNNING, Event.PUT_BACK): State.QUEUED,
    (State.RUNNING, Event.CANCEL): State.CANCELING,
    (State.SUCCEEDED, Event.REFUND): State.FAILED,
    (State.CANCELING, Event.STOP): State.CANCELED,
    (State.CANCELING, Event.SUCCEED): State.SUCCEEDED,
    (State.CANCELING, Event.FAIL): State.CANCELED,
    (State.CANCELING, Event.LOSE): State.CANCELED,
    (State.CANCELING, Event.PUT_BACK): State.CANCELED,
}


class IllegalTransition(Exception):
    """This event cannot happen in this state."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event} cannot happen to a prediction that is {state}")


def sources(event: Event) -> tuple[State, ...]:
    """The states in which `event` can happen."""
    return tuple(state for state, happening in TRANSITIONS if happening is event)


def follow(state: State, event: Event) -> State:
    """The state after `event`; raises `IllegalTransition`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None
