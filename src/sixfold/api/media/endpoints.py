"""The endpoints of the Media API: their paths, models and result formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sixfold.api.media import serializers, video_serializers
from sixfold.api.media.errors import Ra1Failed, VideoFailed
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.models import Prediction
from sixfold.errors import BadRequest, EngineFailed, InvalidInput

Presenter = Callable[[Prediction, tuple[str, ...]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class MediaEndpoint:
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
    sentences: Mapping[str, str] = field(default_factory=dict[str, str])
    queued: bool = False

    def result(self, prediction: Prediction, url: Callable[[OutputFile], str], *, job: bool = False) -> Any:
        """Return the result of a finished prediction in the format of this endpoint."""
        files = prediction.output.files if prediction.output is not None else ()
        present = self.job if job and self.job is not None else self.present
        return present(prediction, tuple(url(file) for file in files))

    def spoken(self, error: InvalidInput) -> BadRequest:
        """Return an error with the message that the contract specifies, if any."""
        own = self.sentences.get(error.problems[0].input)
        return error if own is None else BadRequest(own)


def _film(name: str, summary: str, present: Presenter) -> MediaEndpoint:
    return MediaEndpoint((f"/api/{name}",), name, summary, present, VideoFailed, video_serializers.FAILED)


def _picture(
    summary: str, present: Presenter, model: str, *more: str, noun: str = "Image generation"
) -> MediaEndpoint:
    failed = f"{noun} failed. Please try again."
    return MediaEndpoint((f"/api/{model}", *more), model, summary, present, EngineFailed, failed)


ENDPOINTS = (
    replace(
        _picture("A painted scene", serializers.picture, "ra1", "/api/ra1-art-generator"), failure=Ra1Failed
    ),
    _picture("Anime pictures from a prompt", serializers.pictures, "anime", "/api/anime-art-generator"),
    _picture("A photograph from a prompt", serializers.photograph, "photoreal"),
    _picture(
        "A picture at exact sizes, its subject kept", serializers.resized, "smart-resize", noun="Resizing"
    ),
    _picture(
        "The subject of a picture, on nothing",
        serializers.cut_out,
        "remove-background",
        "/alt/api/remove-background",
        noun="Background removal",
    ),
    MediaEndpoint(
        ("/api/video-a",),
        "video-a",
        "A picture that moves as the prompt says",
        video_serializers.wrapped,
        VideoFailed,
        video_serializers.FAILED,
        video_serializers.inner,
        {
            "image_url": video_serializers.BAD_PICTURE_OR_PROMPT,
            "prompt": video_serializers.BAD_PICTURE_OR_PROMPT,
        },
    ),
    _film("video-b", "A picture, simply animated", video_serializers.address),
    _film("video-c", "A film from a picture or from words alone", video_serializers.whole),
    _film("video-text", "A film with sound from words", video_serializers.whole),
    _film("video-image", "A film with sound from a picture", video_serializers.whole),
    _film(
        "ra2v",
        "A film by the service that fits, chosen from prompt, picture and load",
        video_serializers.chosen,
    ),
    MediaEndpoint(
        ("/api/remove-background-video", "/alt/api/remove-background-video"),
        "remove-background-video",
        "The subject of a film, on nothing",
        video_serializers.cut_out,
        VideoFailed,
        video_serializers.FAILED,
    ),
    MediaEndpoint(
        ("/api/video-editor/render",),
        "render",
        "A timeline's project as a film",
        video_serializers.whole,
        VideoFailed,
        video_serializers.FAILED,
        queued=True,
    ),
)
BY_MODEL = {endpoint.model: endpoint for endpoint in ENDPOINTS}
