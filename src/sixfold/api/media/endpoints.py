"""The endpoints of the Media API: their paths, models and result formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold.api.media import serializers, video_serializers
from sixfold.api.media.errors import Ra1Failed, VideoFailed
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.models import Prediction
from sixfold.errors import BadRequest, EngineFailed, InvalidInput

Presenter = Callable[[Prediction, tuple[str, ...]], Mapping[str, Any]]


class MediaEndpoint(msgspec.Struct, frozen=True):
    """The paths of a model, its result (from the prediction and the URLs of its files), and its failure.

    `job` formats the result of a job if it differs from that of a synchronous call. `sentences` are error
    messages by input name where the contract specifies them. A `queued` endpoint always returns a job.
    """

    paths: tuple[str, ...]
    model: str
    summary: str
    present: Presenter
    failure: type[EngineFailed]
    failure_text: str
    job: Presenter | None = None
    sentences: Mapping[str, str] = {}
    queued: bool = False

    def result(self, prediction: Prediction, url: Callable[[OutputFile], str], *, job: bool = False) -> Any:
        """Return the result of a finished prediction in the format of this endpoint."""
        files = prediction.output.files if prediction.output is not None else ()
        present = self.job if job and self.job is not None else self.present
        return present(prediction, tuple(url(file) for file in files))

    def contract_error(self, error: InvalidInput) -> BadRequest:
        """Return an error with the message that the contract specifies, if any."""
        sentence = self.sentences.get(error.problems[0].input)
        return error if sentence is None else BadRequest(sentence)


def _video(name: str, summary: str, present: Presenter) -> MediaEndpoint:
    return MediaEndpoint((f"/api/{name}",), name, summary, present, VideoFailed, video_serializers.FAILED)


def _image(
    summary: str, present: Presenter, model: str, *more: str, noun: str = "Image generation"
) -> MediaEndpoint:
    failed = f"{noun} failed. Please try again."
    return MediaEndpoint((f"/api/{model}", *more), model, summary, present, EngineFailed, failed)


ENDPOINTS = (
    replace(
        _image("A painted scene", serializers.image_result, "ra1", "/api/ra1-art-generator"),
        failure=Ra1Failed,
    ),
    _image("Anime images from a prompt", serializers.image_list, "anime", "/api/anime-art-generator"),
    _image("A photograph from a prompt", serializers.photograph, "photoreal"),
    _image(
        "Resize an image to exact sizes around its subject",
        serializers.resized,
        "smart-resize",
        noun="Resizing",
    ),
    _image(
        "Remove the background of an image",
        serializers.cut_out,
        "remove-background",
        "/alt/api/remove-background",
        noun="Background removal",
    ),
    MediaEndpoint(
        ("/api/video-a",),
        "video-a",
        "Animate an image by a prompt",
        video_serializers.wrapped,
        VideoFailed,
        video_serializers.FAILED,
        video_serializers.inner,
        {
            "image_url": video_serializers.BAD_PICTURE_OR_PROMPT,
            "prompt": video_serializers.BAD_PICTURE_OR_PROMPT,
        },
    ),
    _video("video-b", "Animate an image", video_serializers.address),
    _video("video-c", "A video from an image or a prompt alone", video_serializers.video_result),
    _video("video-text", "A video with sound from a prompt", video_serializers.video_result),
    _video("video-image", "A video with sound from an image", video_serializers.video_result),
    _video("ra2v", "A video by a service chosen by prompt, image and load", video_serializers.chosen),
    MediaEndpoint(
        ("/api/remove-background-video", "/alt/api/remove-background-video"),
        "remove-background-video",
        "Remove the background of a video",
        video_serializers.cut_out,
        VideoFailed,
        video_serializers.FAILED,
    ),
    MediaEndpoint(
        ("/api/video-editor/render",),
        "render",
        "Render the project of a timeline as a video",
        video_serializers.video_result,
        VideoFailed,
        video_serializers.FAILED,
        queued=True,
    ),
)
BY_MODEL = {endpoint.model: endpoint for endpoint in ENDPOINTS}
