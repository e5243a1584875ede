"""Answers with a video: resource A3, and the `video` that the others give."""

from __future__ import annotations

from typing import Annotated, TypedDict, cast

import msgspec

from sixfold.api.media import serializers
from sixfold.core.predictions.models import Prediction
from sixfold.web.responses import Url

FAILED = "Video generation service failed"
BAD_PICTURE_OR_PROMPT = "Invalid image URL or prompt"


class VideoSchema(TypedDict):
    """A video, as its engine describes it."""

    url: Url
    width: serializers.Side
    height: serializers.Side
    duration: Annotated[float, msgspec.Meta(description="Seconds")]
    fps: float
    content_type: str


class AnimationSchema(TypedDict):
    """A video, and what it was made from."""

    video: VideoSchema
    prompt: str
    seed: int


class AnimationResultSchema(serializers.PricedSchema):
    """A video, what it was made from, and what it cost."""

    result: AnimationSchema


class VideoResultSchema(serializers.PricedSchema):
    """A video, and what it cost."""

    video: VideoSchema


class VideoCutOutResultSchema(VideoResultSchema):
    """The subject of a video on nothing, and how sure the engine is of it."""

    confidence: serializers.Confidence


class VideoUrlResultSchema(serializers.PricedSchema):
    """The URL of a video, and what it cost."""

    video_url: Url


class RoutedVideoResultSchema(VideoUrlResultSchema):
    """The URL of a video, and the service that made it."""

    backend_used: str


def inner(prediction: Prediction, urls: tuple[str, ...]) -> AnimationSchema:
    """Resource A3's inner object, which a job's `result` is."""
    return {
        "video": video(prediction, urls[0]),
        "prompt": prediction.inputs["prompt"],
        "seed": prediction.task.inputs["seed"],
    }


def wrapped(prediction: Prediction, urls: tuple[str, ...]) -> AnimationResultSchema:
    """Resource A3 as the waiting call gets it."""
    return {"result": inner(prediction, urls), **serializers.charged(prediction)}


def whole(prediction: Prediction, urls: tuple[str, ...]) -> VideoResultSchema:
    """`video` with its facts."""
    return {"video": video(prediction, urls[0]), **serializers.charged(prediction)}


def cut_out(prediction: Prediction, urls: tuple[str, ...]) -> VideoCutOutResultSchema:
    """The subject of a film on nothing, and how sure its engine is of it."""
    data = prediction.output.data if prediction.output is not None else {}
    return {**whole(prediction, urls), "confidence": data.get("confidence")}


def address(prediction: Prediction, urls: tuple[str, ...]) -> VideoUrlResultSchema:
    """`video_url` alone."""
    return {"video_url": urls[0], **serializers.charged(prediction)}


def chosen(prediction: Prediction, urls: tuple[str, ...]) -> RoutedVideoResultSchema:
    """`video_url`, and which service it was made as."""
    return {**address(prediction, urls), "backend_used": prediction.task.inputs["backend"]}


def video(prediction: Prediction, url: str) -> VideoSchema:
    """A film and its facts, as its engine tells them."""
    file = prediction.output.files[0] if prediction.output is not None else None
    info = file.info if file is not None else {}
    return {
        "url": url,
        "width": cast("int", info.get("width")),
        "height": cast("int", info.get("height")),
        "duration": cast("float", info.get("duration")),
        "fps": cast("float", info.get("fps")),
        "content_type": file.content_type if file is not None else "video/mp4",
    }
