"""Responses of the Media API with images, and the status of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import msgspec

from sixfold.core import money
from sixfold.core.accounts.prices import ListPriceSchema, list_price_field
from sixfold.core.money import Usd
from sixfold.core.predictions import receipt
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.web.responses import Url

JobStatus = Literal["in_progress", "completed", "failed", "canceled"]
IN_PROGRESS: Literal["in_progress"] = "in_progress"
_STATUS: dict[PredictionState, JobStatus] = {
    PredictionState.SUCCEEDED: "completed",
    PredictionState.FAILED: "failed",
    PredictionState.EXPIRED: "failed",
    PredictionState.CANCELED: "canceled",
}


Method = Literal["scale", "crop", "seam-carving", "extend"]
Side = Annotated[int, msgspec.Meta(ge=1)]
Confidence = Annotated[float, msgspec.Meta(ge=0, le=1)] | None


class PricedSchema(ListPriceSchema):
    """The price of a result."""

    cost: Usd
    credits_charged: int


class ImageResultSchema(PricedSchema):
    """A generated image with its inputs."""

    image_url: Url
    prompt_used: str
    size_used: str
    request_id: str


class ImageListSchema(PricedSchema):
    """Several generated images with their inputs."""

    success: bool
    images: Sequence[Url]
    image_url: Url
    prompt_used: str
    size_used: str


class SizedImageSchema(TypedDict):
    """An image in one of the requested sizes, and how it was fitted."""

    url: Url
    width: Side
    height: Side
    method: Method


class ResizeResultSchema(PricedSchema):
    """Images in the requested sizes, in the order of the request."""

    images: Sequence[Url]
    result: list[SizedImageSchema]


class CutOutSchema(TypedDict):
    """A cutout on a transparent background, with the engine's confidence."""

    url: Url
    width: Side
    height: Side
    content_type: Literal["image/png"]
    confidence: Confidence


class CutOutResultSchema(PricedSchema):
    """The result of a background removal."""

    image: CutOutSchema


class QueuedJobSchema(TypedDict):
    """A new job, and the URL of its status."""

    job_id: str
    status: Literal["in_progress"]
    status_url: str


class JobSchema(TypedDict):
    """The status of a job."""

    job_id: str
    status: JobStatus
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)]
    status_url: str
    result: NotRequired[Mapping[str, Any]]
    error: NotRequired[str]


def image_result(prediction: Prediction, urls: tuple[str, ...]) -> ImageResultSchema:
    return {
        "image_url": urls[0],
        "prompt_used": prediction.inputs["prompt"],
        "size_used": prediction.inputs["size"],
        **charged(prediction),
        "request_id": prediction.request_id,
    }


def image_list(prediction: Prediction, urls: tuple[str, ...]) -> ImageListSchema:
    return {
        "success": True,
        "images": urls,
        "image_url": urls[0],
        "prompt_used": prediction.inputs["prompt"],
        "size_used": prediction.inputs["size"],
        **charged(prediction),
    }


def photograph(prediction: Prediction, urls: tuple[str, ...]) -> ImageResultSchema:
    """Return a result with one image, whose size follows from a ratio and a resolution."""
    size = prediction.task.inputs
    return {
        "image_url": urls[0],
        "prompt_used": prediction.inputs["prompt"],
        "size_used": f"{size['width']}x{size['height']}",
        **charged(prediction),
        "request_id": prediction.request_id,
    }


def resized(prediction: Prediction, urls: tuple[str, ...]) -> ResizeResultSchema:
    """Return the images in the order of the requested sizes."""
    files = prediction.output.files if prediction.output is not None else ()
    result: list[SizedImageSchema] = [
        {
            "url": url,
            "width": cast("int", file.info.get("width")),
            "height": cast("int", file.info.get("height")),
            "method": cast("Method", file.info.get("method")),
        }
        for url, file in zip(urls, files, strict=True)
    ]
    return {"images": urls, "result": result, **charged(prediction)}


def cut_out(prediction: Prediction, urls: tuple[str, ...]) -> CutOutResultSchema:
    """Return a cutout; `confidence` is null if the provider does not report it."""
    output = prediction.output
    info = output.files[0].info if output is not None else {}
    image: CutOutSchema = {
        "url": urls[0],
        "width": cast("int", info.get("width")),
        "height": cast("int", info.get("height")),
        "content_type": "image/png",
        "confidence": output.data.get("confidence") if output is not None else None,
    }
    return {"image": image, **charged(prediction)}


def charged(prediction: Prediction) -> PricedSchema:
    """Return the price as a decimal string and in credits."""
    return {
        "cost": money.format_usd(prediction.cost),
        "credits_charged": prediction.credits,
        **list_price_field(receipt.would_cost(prediction)),
    }


def queued(prediction: Prediction) -> QueuedJobSchema:
    return {
        "job_id": cast("str", prediction.job_id),
        "status": IN_PROGRESS,
        "status_url": status_url(prediction),
    }


def status_url(prediction: Prediction) -> str:
    return f"/api/media/status/{prediction.job_id}"


def job(prediction: Prediction, progress: float) -> JobSchema:
    """Return the status of a job, without its result or error."""
    has_succeeded = prediction.state is PredictionState.SUCCEEDED
    return {
        "job_id": cast("str", prediction.job_id),
        "status": _STATUS.get(prediction.state, IN_PROGRESS),
        "progress": 1.0 if has_succeeded else progress,
        "status_url": status_url(prediction),
    }
