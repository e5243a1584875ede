"""Area A's answers about films: resource A3, and the `video` that the others give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold.areas.media import schemas
from sixfold.core.work.records import Prediction

FAILED = "Video generation service failed"
BAD_PICTURE_OR_PROMPT = "Invalid image URL or prompt"


def inner(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """Resource A3's inner object, which a job's `result` is."""
    return {
        "video": video(prediction, urls[0]),
        "prompt": prediction.inputs["prompt"],
        "seed": prediction.task.inputs["seed"],
    }


def wrapped(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """Resource A3 as the waiting call gets it."""
    return {"result": inner(prediction, urls), **schemas.charged(prediction)}


def whole(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """`video` with its facts."""
    return {"video": video(prediction, urls[0]), **schemas.charged(prediction)}


def cut_out(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """The subject of a film on nothing, and how sure its engine is of it."""
    data = prediction.output.data if prediction.output is not None else {}
    return {**whole(prediction, urls), "confidence": data.get("confidence")}


def address(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """`video_url` alone."""
    return {"video_url": urls[0], **schemas.charged(prediction)}


def chosen(prediction: Prediction, urls: tuple[str, ...]) -> Mapping[str, Any]:
    """`video_url`, and which service it was made as."""
    return {**address(prediction, urls), "backend_used": prediction.task.inputs["backend"]}


def video(prediction: Prediction, url: str) -> Mapping[str, Any]:
    """A film and its facts, as its engine tells them."""
    file = prediction.output.files[0] if prediction.output is not None else None
    info = file.info if file is not None else {}
    return {
        "url": url,
        **{name: info.get(name) for name in ("width", "height", "duration", "fps")},
        "content_type": file.content_type if file is not None else "video/mp4",
    }
