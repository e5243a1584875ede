"""Authorization of requests, and the principal of a stored prediction."""

from __future__ import annotations

from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.database import Transaction
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest


def check(order: PredictionRequest) -> None:
    """Raise `Forbidden` if the principal may not run this model.

    A child is allowed if a limit on models includes its own model or its parent's.
    """
    order.principal.require(rights.RUN)
    order.principal.permit(order.model, *(() if order.parent is None else (order.parent.model,)))


def principal_of(prediction: Prediction) -> Transaction[Principal]:
    """Return the principal that requested a prediction: its key, or else the account's owner."""
    if prediction.key_id is None:
        owner = (yield from accounts.by_id(prediction.account_id)).owner
        return owner.without_key() if prediction.keyless else owner
    found = yield from keys.by_id(prediction.key_id)
    return found or Principal(prediction.account_id, "", "")
