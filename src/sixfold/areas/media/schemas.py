"""Area A's answers: resources A1, A2 and A4, and a job's status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold.core import money
from sixfold.core.accounts.prices import list_price_field
from sixfold.core.work import receipt
from sixfold.core.work.records import Prediction
from sixfold.core.work.states import State

IN_PROGRESS = "in_progress"
_STATUS = {
    State.SUCCEEDED: "completed",
    State.FAILED: "failed",
    State.EXPIRED: "failed",
    State.CANCELED: "canceled",
}


def picture(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """Resource A1."""
    return {
        "image_url": urls[0],
        "prompt_used": prediction.inputs["prompt"],
        "size_used": prediction.inputs["size"],
        **charged(prediction),
        "request_id": prediction.request_id,
    }


def pictures(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """Resource A2."""
    return {
        "success": True,
        "images": urls,
        "image_url": urls[0],
        "prompt_used": prediction.inputs["prompt"],
        "size_used": prediction.inputs["size"],
        **charged(prediction),
    }


def photograph(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """Resource A1, whose size follows from a ratio and a resolution."""
    size = prediction.task.inputs
    return {
        "image_url": urls[0],
        "prompt_used": prediction.inputs["prompt"],
        "size_used": f"{size['width']}x{size['height']}",
        **charged(prediction),
        "request_id": prediction.request_id,
    }


def resized(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """The pictures at their sizes, in the order in which they were asked for."""
    files = prediction.output.files if prediction.output is not None else ()
    result = [
        {"url": url, **{name: file.info.get(name) for name in ("width", "height", "method")}}
        for url, file in zip(urls, files, strict=True)
    ]
    return {"images": urls, "result": result, **charged(prediction)}


def cut_out(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """The subject on nothing; a provider that does not say how sure it is leaves `confidence` null."""
    output = prediction.output
    file = output.files[0] if output is not None else None
    image = {
        "url": urls[0],
        "width": file.info.get("width") if file is not None else None,
        "height": file.info.get("height") if file is not None else None,
        "content_type": "image/png",
        "confidence": output.data.get("confidence") if output is not None else None,
    }
    return {"image": image, **charged(prediction)}


def charged(prediction: Prediction) -> Mapping[str, Any]:
    """What it cost, as decimal text and in credits."""
    return {
        "cost": money.format_usd(prediction.cost),
        "credits_charged": prediction.credits,
        **list_price_field(receipt.would_cost(prediction)),
    }


def queued(prediction: Prediction) -> Mapping[str, Any]:
    """Resource A4."""
    return {"job_id": prediction.job_id, "status": IN_PROGRESS, "status_url": status_url(prediction)}


def status_url(prediction: Prediction) -> str:
    """Where a job is asked after."""
    return f"/api/media/status/{prediction.job_id}"


def job(prediction: Prediction, progress: float) -> dict[str, Any]:
    """A job as it stands, without its result or error."""
    done = prediction.state is State.SUCCEEDED
    return {
        "job_id": prediction.job_id,
        "status": _STATUS.get(prediction.state, IN_PROGRESS),
        "progress": 1.0 if done else progress,
        "status_url": status_url(prediction),
    }
