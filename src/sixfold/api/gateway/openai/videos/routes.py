"""`/v1/videos`: OpenAI's videos API over the video models of this server; a video is a prediction.

Source: https://platform.openai.com/docs/api-reference/videos.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway import list_pages
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import media_jobs, parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.api.gateway.openai.videos import models
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency import loaded_objects
from sixfold.core.database import Query, Transaction, many
from sixfold.core.media.media import MediaSource
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.web import bodies, requests, responses
from sixfold.web import files as served_files
from sixfold.web.files import ServedFile
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

FACE = "videos"
VARIANTS = {"video": "video/mp4", "thumbnail": "image/webp", "spritesheet": "image/jpeg"}
MAX_PAGE = 100
_PAGE, _MAX_TEXT, _MAX_IMAGE_BYTES = 20, 200, 64 * 2**20
# The number of still images rendered at the same time, and the largest video for them.
_STILLS, _MAX_STILL_BYTES = 2, 2 * 2**30
_FIRST, _LAST = "", "~"
_STATUSES = {PredictionState.QUEUED: "queued", PredictionState.SUCCEEDED: "completed"}
_POLL_MS = "1000"
_REFUSALS = {
    "remix": "The models of this server cannot remix a video: create a video with input_reference instead",
    "edits": "The models of this server cannot edit a video: create a video with input_reference instead",
    "extensions": "The models of this server cannot extend a video: use a larger value of seconds instead",
    "characters": "Characters are not supported: create a video with input_reference instead",
}


class VideoJobErrorSchema(TypedDict):
    """Error of a failed video."""

    code: str
    message: str


class VideoJobSchema(TypedDict):
    """A video. `seconds` and `size` are those of the file once it is completed."""

    id: str
    object: Literal["video"]
    model: str
    status: str
    progress: int
    created_at: int
    completed_at: int | None
    expires_at: int | None
    prompt: str
    seconds: str
    size: str
    remixed_from_video_id: None
    error: VideoJobErrorSchema | None


class VideoJobsSchema(list_pages.OpenAIPageSchema):
    """A page of videos."""

    data: Sequence[VideoJobSchema]


class DeletedVideoSchema(TypedDict):
    """A video that was deleted."""

    id: str
    object: Literal["video.deleted"]
    deleted: Literal[True]


class VideoRoutes:
    """`/v1/videos` and `/v1/videos/{video_id}`."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth, runner: MediaJobRunner) -> None:
        self._services = services
        self._auth = auth
        self._runner = runner
        self._stills = asyncio.Semaphore(_STILLS)

    async def create(self, request: Request) -> Response:
        """Queue a video, requested as JSON or as a form."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            values, source = await self._read(request, principal)
            has_image = source is not None or bool(values.get(models.REFERENCE))
            model = models.resolve(self._services.catalog, values.get("model"), has_image=has_image)
            inputs = {
                "prompt": media_jobs.text(values, "prompt"),
                **models.length(model, values.get("seconds")),
                **models.size(model, values.get("size"), has_image=has_image),
            }
            sources: dict[str, MediaSource] = {}
            if source is not None:
                inputs[models.REFERENCE], sources[models.REFERENCE] = source.blob, source
            elif has_image:
                inputs[models.REFERENCE] = values[models.REFERENCE]
            prediction_request = PredictionRequest(
                principal=principal,
                model=model.name,
                inputs=inputs,
                face=FACE,
                request_id=requests.request_id(request),
                idempotency_id=idempotency_id,
                sources=sources,
            )
            try:
                prediction = await self._services.predictions.submit(prediction_request)
            except errors.InvalidInput as error:
                names = {models.REFERENCE: "input_reference", "duration": "seconds", "num_frames": "seconds"}
                raise media_jobs.with_client_names(error, names) from error
            return responses.json(self._video(prediction), headers={"openai-poll-after-ms": _POLL_MS})

        return await self._runner.run_once(request, work)

    async def _read(
        self, request: Request, principal: Principal
    ) -> tuple[Mapping[str, Any], MediaSource | None]:
        """Return the fields of a request, and the image in it or None."""
        fields = await bodies.fields(request)
        values = dict(fields.values)
        image = fields.files.get("input_reference")
        if image is None:
            image = await self._referenced(principal, _reference(values))
        if isinstance(image, str):
            values[models.REFERENCE], image = image, None
        if image is None:
            return values, None
        return values, await self._runner.receive("input_reference", "image", image)

    async def _referenced(self, principal: Principal, reference: Mapping[str, Any]) -> bytes | str | None:
        """Return the image of the object `input_reference` or its URL, or None if the object is empty."""
        if not reference:
            return None
        url, file_id = reference.get("image_url"), reference.get("file_id")
        if url and file_id:
            raise _invalid_reference("must not have both image_url and file_id")
        if isinstance(file_id, str) and file_id:
            file = await self._services.files.get(principal.tenant, file_id)
            if file.size > _MAX_IMAGE_BYTES:
                raise _invalid_reference(f"must be at most {_MAX_IMAGE_BYTES:,} bytes (got {file.size:,})")
            await loaded_objects.reserve(file.size, loaded_objects.DOCUMENT_COPIES)
            return await self._services.blobs.get(file.blob)
        if isinstance(url, str) and url.startswith("data:"):
            return _data_of(url)
        if isinstance(url, str) and url.startswith(("https://", "http://")):
            return url
        raise _invalid_reference("must be an image file, or have a file_id or an image_url")

    async def show(self, request: Request) -> Response:
        prediction = await self._get(request)
        headers = {"Cache-Control": "no-store", "openai-poll-after-ms": _POLL_MS}
        return responses.json(self._video(prediction), headers=headers)

    async def page(self, request: Request) -> Response:
        """Return a page of videos, newest first unless `order` is `asc`."""
        tenant = (await self._auth.enter(request)).tenant
        limit, ascending, after = list_pages.openai_query(request, _PAGE, MAX_PAGE)
        name, end = ("videos_up", _FIRST) if ascending else ("videos_down", _LAST)
        start = prediction_id(after) if after else end
        rows = await self._services.database.read(
            many(name, **tenant.row, after=start, limit=limit + 1), snapshot=False
        )
        videos = [self._video(Prediction.from_row(row)) for row in rows[:limit]]
        return responses.unstored_json(list_pages.openai_page(videos, has_more=len(rows) > limit))

    async def delete(self, request: Request) -> Response:
        """Delete a video with its file; an incomplete video is canceled and not charged."""
        prediction = await self._get(request)
        if not prediction.is_terminal:
            await self._services.predictions.cancel(prediction.id, Tenant.of(prediction))
        await self._services.database.write(_delete(prediction))
        deletion: DeletedVideoSchema = {
            "id": video_id(prediction.id),
            "object": "video.deleted",
            "deleted": True,
        }
        return responses.json(deletion)

    async def content(self, request: Request) -> Response:
        """Return the file of a video, its thumbnail or its sheet of frames."""
        variant = requests.query_choice(request, "variant", tuple(VARIANTS), _MAX_TEXT) or "video"
        prediction = await self._get(request)
        if prediction.state is not PredictionState.SUCCEEDED or prediction.output is None:
            status = self._video(prediction)["status"]
            raise InvalidRequest(
                f"The content of the video is not available: its status is {status}", status=409
            )
        file = next(
            (file for file in prediction.output.files if file.content_type.startswith("video/")), None
        )
        if file is None:
            raise errors.NotFound(
                "The file of the video does not exist: the video failed, or its file was deleted"
            )
        if variant != "video":
            return await self._still(file, variant)
        tag = file.blob.rpartition("/")[2]
        served = ServedFile(
            self._services.blobs, file.blob, file.size, file.content_type, tag, "private, no-cache"
        )
        return await served_files.serve(request, served)

    async def _still(self, file: OutputFile, variant: str) -> Response:
        """Make a still image of a video, at most two at a time."""
        if file.size > _MAX_STILL_BYTES:
            raise InvalidRequest(
                f"A still image requires a video of at most {_MAX_STILL_BYTES:,} bytes (got {file.size:,}): "
                "omit variant",
                param="variant",
            )
        async with self._stills:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "video")
                async for piece in self._services.blobs.stream(file.blob):
                    await asyncio.to_thread(_append, path, piece)
                image = await asyncio.to_thread(self._services.video_stills, str(path), variant)
        return Response(image, headers={"Cache-Control": "private, no-cache"}, media_type=VARIANTS[variant])

    async def refuse(self, request: Request) -> Response:
        """Raise `InvalidRequest`, because the models cannot change a video."""
        await self._auth.enter(request)
        kind = request.url.path.rstrip("/").rpartition("/")[2]
        raise InvalidRequest(_REFUSALS[kind])

    async def _get(self, request: Request) -> Prediction:
        """Return the video of the path; raises `NotFound`."""
        tenant = (await self._auth.enter(request)).tenant
        name = requests.path_value(request, "video_id")
        prediction = await self._services.predictions.get(prediction_id(name), tenant)
        if prediction.face != FACE:
            raise errors.NotFound(f"Video with id '{name[:_MAX_TEXT]}' not found.")
        return prediction

    def _video(self, prediction: Prediction) -> VideoJobSchema:
        state = prediction.state
        status = _STATUSES.get(state, "failed" if prediction.is_terminal else "in_progress")
        progress = self._services.predictions.bus.progress(prediction.id)
        catalog, inputs = self._services.catalog, prediction.inputs
        # A model may have been removed since.
        model = {model.name: model for model in catalog.models()}.get(prediction.model)
        info = prediction.output.files[0].info if prediction.output and prediction.output.files else {}
        size = f"{info['width']}x{info['height']}" if {"width", "height"} <= info.keys() else ""
        seconds = f"{info['duration']:g}" if "duration" in info else ""
        return {
            "id": video_id(prediction.id),
            "object": "video",
            "model": prediction.model,
            "status": status,
            "progress": 100 if status == "completed" else min(99, int(100 * progress)),
            "created_at": prediction.created_at // SECOND_US,
            "completed_at": prediction.completed_at // SECOND_US if prediction.completed_at else None,
            "expires_at": None,
            "prompt": str(inputs.get("prompt", "")),
            "seconds": seconds or models.described_seconds(model, inputs),
            "size": size or models.described_size(inputs),
            "remixed_from_video_id": None,
            "error": _error(prediction) if status == "failed" else None,
        }


def build_api(services: WebServices, auth: CachedKeyAuth, runner: MediaJobRunner) -> ApiGroup:
    routes = VideoRoutes(services, auth, runner)
    body, item_path = services.settings.inline_body_bytes, "/v1/videos/{video_id}"
    refused = (f"{item_path}/remix", "/v1/videos/edits", "/v1/videos/extensions", "/v1/videos/characters")
    return ApiGroup(
        "videos",
        openai_errors.dialect,
        (
            RouteEntry("/v1/videos", {"GET": routes.page, "POST": routes.create}, body, access=rights.RUN),
            *(RouteEntry(path, {"POST": routes.refuse}, body, access=rights.RUN) for path in refused),
            RouteEntry(item_path, {"GET": routes.show, "DELETE": routes.delete}, access=rights.RUN),
            RouteEntry(f"{item_path}/content", {"GET": routes.content}, access=rights.RUN),
        ),
        prefixes=("/v1/videos",),
    )


def video_id(prediction: str) -> str:
    return f"video_{prediction.removeprefix('pred_')}"


def prediction_id(video: str) -> str:
    """Return the id of the prediction of a video; raises `NotFound` for any other string."""
    prefix, _, digits = video.partition("_")
    if prefix != "video" or not digits.isalnum():
        raise errors.NotFound(f"Video with id '{video[:_MAX_TEXT]}' not found.")
    return f"pred_{digits}"


def _delete(prediction: Prediction) -> Transaction[None]:
    if (yield from many("video_delete", id=prediction.id, account_id=prediction.account_id)):
        params = {"prediction_id": prediction.id, "account_id": prediction.account_id}
        yield Query("media_withdraw", params)


def _append(path: Path, piece: bytes) -> None:
    with path.open("ab") as copy:
        copy.write(piece)


def _error(prediction: Prediction) -> VideoJobErrorSchema:
    message = prediction.error or f"The video was {prediction.state.value}"
    return {"code": prediction.error_kind or prediction.state.value, "message": message}


def _invalid_reference(problem: str) -> InvalidRequest:
    return InvalidRequest(f"input_reference {problem}", param="input_reference")


def _reference(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object `input_reference`, which a form contains as separate fields or as JSON."""
    value = values.get("input_reference")
    if isinstance(value, str) and value:
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            raise _invalid_reference("must be a file or an object") from None
    fields = {
        name: values[f"input_reference[{name}]"]
        for name in ("image_url", "file_id")
        if f"input_reference[{name}]" in values
    }
    return {**parsing.mapping(value or {}, "input_reference"), **fields}


def _data_of(url: str) -> bytes:
    """Return the bytes of a data URI; raises `InvalidRequest`."""
    _, marker, data = url.partition(";base64,")
    try:
        return base64.b64decode(data if marker else "?", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(
            "image_url must be an http(s) URL or a base64 data URI", param="input_reference"
        ) from None
