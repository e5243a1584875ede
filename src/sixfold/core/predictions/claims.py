"""Claims: the oldest queued predictions of an engine, leased to a server."""

from __future__ import annotations

from sixfold.core.database import Query, Transaction
from sixfold.core.predictions import webhooks
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import RunLease
from sixfold.core.predictions.states import PredictionEvent, PredictionState, follow


def claim(
    engine: str, lease: RunLease, limit: int, *, warm: bool, hardware: str | None = None, free_runs: int = 0
) -> Transaction[tuple[Prediction, ...]]:
    """Claim the oldest queued predictions of an engine; `warm` is True if workers are ready.

    `hardware` selects predictions that request this hardware (empty: no particular hardware). `free_runs`
    limits how many free predictions each account runs at the same time (0: unlimited); other free predictions
    stay queued.
    """
    params = {
        "state": follow(
            PredictionState.QUEUED, PredictionEvent.CLAIM_WARM if warm else PredictionEvent.CLAIM
        ),
        "holder": lease.holder,
        "lease": lease.life_us,
        "engine": engine,
        "limit": limit,
    }
    if free_runs:
        rows = yield Query(
            "prediction_claim_shared", {**params, "hardware": hardware, "free_runs": free_runs}
        )
    elif hardware is None:
        rows = yield Query("prediction_claim", params)
    else:
        rows = yield Query("prediction_claim_on", {**params, "hardware": hardware})
    predictions = map(Prediction.from_row_unredacted, rows)
    claimed = tuple(sorted(predictions, key=lambda prediction: (prediction.created_at, prediction.id)))
    yield from webhooks.enqueue_started(claimed)
    return claimed
