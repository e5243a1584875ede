"""Whether an order is within the rights and limits of its principal, and whose a prediction was."""

from __future__ import annotations

from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.database import Transaction
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest


def check(order: PredictionRequest) -> None:
    """Raise `Forbidden` where the principal may not run this model.

    A child is part of the model that ordered it: a limit that covers either covers the child.
    """
    order.principal.require(rights.RUN)
    order.principal.permit(order.model, *(() if order.parent is None else (order.parent.model,)))


def principal_of(prediction: Prediction) -> Transaction[Principal]:
    """The principal that ordered a prediction: its key's, else its account's owner."""
    if prediction.key_id is None:
        owner = (yield from accounts.by_id(prediction.account_id)).owner
        return owner.without_key() if prediction.keyless else owner
    found = yield from keys.by_id(prediction.key_id)
    return found or Principal(prediction.account_id, "", "")
