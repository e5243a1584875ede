"""States and events of a prediction, and the table of transitions.

    queued ──claim──▶ starting ──ready──▶ running ──succeed──▶ succeeded
       │ ╲──claim_warm──────────────────▶    │ ╲───fail─────▶ failed
       │  ╲─expire──▶ expired                │
       └──cancel──▶ canceled ◀──stop── canceling ◀──cancel

Losing the lease (`lose`) requeues `starting` and `running`. `put_back` requeues a prediction that was claimed
for a worker that turned out to be busy; this does not count as an attempt. Terminal states are final, except
that a refund turns `succeeded` into `failed`.
"""

from __future__ import annotations

from enum import StrEnum


class PredictionState(StrEnum):
    """The state of a prediction."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    CANCELING = "canceling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"


class PredictionEvent(StrEnum):
    """An event that changes the state of a prediction."""

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


TERMINAL = frozenset(
    {PredictionState.SUCCEEDED, PredictionState.FAILED, PredictionState.CANCELED, PredictionState.EXPIRED}
)

TRANSITIONS: dict[tuple[PredictionState, PredictionEvent], PredictionState] = {
    (PredictionState.QUEUED, PredictionEvent.CLAIM): PredictionState.STARTING,
    (PredictionState.QUEUED, PredictionEvent.CLAIM_WARM): PredictionState.RUNNING,
    (PredictionState.QUEUED, PredictionEvent.CANCEL): PredictionState.CANCELED,
    (PredictionState.QUEUED, PredictionEvent.EXPIRE): PredictionState.EXPIRED,
    (PredictionState.STARTING, PredictionEvent.READY): PredictionState.RUNNING,
    (PredictionState.STARTING, PredictionEvent.FAIL): PredictionState.FAILED,
    (PredictionState.STARTING, PredictionEvent.LOSE): PredictionState.QUEUED,
    (PredictionState.STARTING, PredictionEvent.CANCEL): PredictionState.CANCELING,
    (PredictionState.RUNNING, PredictionEvent.SUCCEED): PredictionState.SUCCEEDED,
    (PredictionState.RUNNING, PredictionEvent.FAIL): PredictionState.FAILED,
    (PredictionState.RUNNING, PredictionEvent.LOSE): PredictionState.QUEUED,
    (PredictionState.RUNNING, PredictionEvent.PUT_BACK): PredictionState.QUEUED,
    (PredictionState.RUNNING, PredictionEvent.CANCEL): PredictionState.CANCELING,
    (PredictionState.SUCCEEDED, PredictionEvent.REFUND): PredictionState.FAILED,
    (PredictionState.CANCELING, PredictionEvent.STOP): PredictionState.CANCELED,
    (PredictionState.CANCELING, PredictionEvent.SUCCEED): PredictionState.SUCCEEDED,
    (PredictionState.CANCELING, PredictionEvent.FAIL): PredictionState.CANCELED,
    (PredictionState.CANCELING, PredictionEvent.LOSE): PredictionState.CANCELED,
    (PredictionState.CANCELING, PredictionEvent.PUT_BACK): PredictionState.CANCELED,
}


class IllegalTransition(Exception):
    """The event is not possible in the current state."""

    def __init__(self, state: PredictionState, event: PredictionEvent) -> None:
        super().__init__(f"the event {event} is not valid for a prediction in the state {state}")


def sources(event: PredictionEvent) -> tuple[PredictionState, ...]:
    """Return the states in which `event` is possible."""
    return tuple(state for state, happening in TRANSITIONS if happening is event)


def follow(state: PredictionState, event: PredictionEvent) -> PredictionState:
    """Return the state after `event`; raises `IllegalTransition`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None
