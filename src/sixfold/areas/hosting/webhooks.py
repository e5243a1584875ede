"""What a webhook of Area E says: the event, its moment, and the prediction as it stands when told."""

from __future__ import annotations

from typing import Any

from sixfold.core.clock import rfc3339
from sixfold.core.work.outbox import Tell
from sixfold.core.work.records import Prediction
from sixfold.web.predictions import Teller
from sixfold.web.services import Services


def teller(services: Services) -> Tell:
    """Area E's words."""
    predictions = Teller(services)

    def tell(prediction: Prediction, event: str, moment: int) -> dict[str, Any]:
        data = predictions.shown(prediction)
        return {"type": f"prediction.{event}", "timestamp": rfc3339(moment), "data": data}

    return tell
