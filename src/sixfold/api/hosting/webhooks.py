"""What a webhook of Area E says: the event, its moment, and the prediction as it was then."""

from __future__ import annotations

from typing import Any

from sixfold.core.clock import rfc3339
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.webhooks import Renderer
from sixfold.web import predictions
from sixfold.web.predictions import PredictionStatus
from sixfold.web.services import WebServices


def webhook_payload(services: WebServices) -> Renderer:
    """Area E's words."""

    def tell(prediction: Prediction, event: str, moment: int) -> dict[str, Any]:
        reached = services.pipeline.bus.progress(prediction.id) if prediction.is_terminal else 0.0
        data = predictions.prediction(prediction, services.media_url, PredictionStatus(reached))
        return {"type": f"prediction.{event}", "timestamp": rfc3339(moment), "data": data}

    return tell
