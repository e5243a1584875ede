"""Claims: the oldest waiting predictions of an engine, leased to a server."""

from __future__ import annotations

from sixfold.core.database import Query, Transaction
from sixfold.core.predictions import webhooks
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import RunLease
from sixfold.core.predictions.states import PredictionEvent, PredictionState, follow


def claim(
    engine: str,
    lease: RunLease,
    limit: int,
    *,
    warm: bool,
    hardware: str | None = None,
    free_runs: int = 0,
) -> Transaction[tuple[Prediction, ...]]:
    """Take the oldest waiting predictions of an engine; `warm` when workers stand ready for them.

    `hardware` takes those only that are to run on it (empty: those that name none). `free_runs` limits the
    runs without a price that each account has at a time (0: no limit); the others stay in the queue.
    """
    wanted = {
        "state": follow(
            PredictionState.QUEUED, PredictionEvent.CLAIM_WARM if warm else PredictionEvent.CLAIM
        ),
        "holder": lease.holder,
        "lease": lease.life_us,
        "engine": engine,
        "limit": limit,
    }
    if free_runs:
        shared = {**wanted, "hardware": hardware, "free_runs": free_runs}
        rows = yield Query("prediction_claim_shared", shared)
    elif hardware is None:
        rows = yield Query("prediction_claim", wanted)
    else:
        rows = yield Query("prediction_claim_on", {**wanted, "hardware": hardware})
    claimed = tuple(sorted((Prediction.whole(row) for row in rows), key=lambda p: (p.created_at, p.id)))
    yield from webhooks.note_started(claimed)
    return claimed
