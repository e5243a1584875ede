"""Responses of the Media API with videos."""

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
    """A generated video with its inputs."""

    video: VideoSchema
    prompt: str
    seed: int


class AnimationResultSchema(serializers.PricedSchema):
    """A video with its inputs and price."""

    result: AnimationSchema


class VideoResultSchema(serializers.PricedSchema):
    """A video with its price."""

    video: VideoSchema


class VideoCutOutResultSchema(VideoResultSchema):
    """A video on a transparent background, with the engine's confidence."""

    confidence: serializers.Confidence


class VideoUrlResultSchema(serializers.PricedSchema):
    """The URL of a video, with its price."""

    video_url: Url


class RoutedVideoResultSchema(VideoUrlResultSchema):
    """The URL of a video, and the service that generated it."""

    backend_used: str


def inner(prediction: Prediction, urls: tuple[str, ...]) -> AnimationSchema:
    """Return the inner object of an animation, which is the `result` of a job."""
    return {
        "video": video(prediction, urls[0]),
        "prompt": prediction.inputs["prompt"],
        "seed": prediction.task.inputs["seed"],
    }


def wrapped(prediction: Prediction, urls: tuple[str, ...]) -> AnimationResultSchema:
    return {"result": inner(prediction, urls), **serializers.charged(prediction)}


def video_result(prediction: Prediction, urls: tuple[str, ...]) -> VideoResultSchema:
    return {"video": video(prediction, urls[0]), **serializers.charged(prediction)}


def cut_out(prediction: Prediction, urls: tuple[str, ...]) -> VideoCutOutResultSchema:
    """Return a video cutout with the engine's confidence."""
    data = prediction.output.data if prediction.output is not None else {}
    return {**video_result(prediction, urls), "confidence": data.get("confidence")}


def address(prediction: Prediction, urls: tuple[str, ...]) -> VideoUrlResultSchema:
    return {"video_url": urls[0], **serializers.charged(prediction)}


def chosen(prediction: Prediction, urls: tuple[str, ...]) -> RoutedVideoResultSchema:
    """Return a result with `video_url` and the service that was selected."""
    return {**address(prediction, urls), "backend_used": prediction.task.inputs["backend"]}


def video(prediction: Prediction, url: str) -> VideoSchema:
    """Return a video with the properties that its engine reported."""
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
