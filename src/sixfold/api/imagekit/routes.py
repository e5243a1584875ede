"""Routes of the Image utility API; they check the key, then the inputs, then the balance."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.imagekit import errors as error_format
from sixfold.api.imagekit import schemas
from sixfold.core.accounts import rights, upload_folders
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.media import save_paths, upload_paths
from sixfold.core.media.ports import BlobStore, OutputFile
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.errors import Problem
from sixfold.web import requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import failure_of, refunded_on_failure
from sixfold.web.responses import Url
from sixfold.web.routing import ApiGroup, Handler, RouteEntry
from sixfold.web.services import WebServices

VERSION = "0.1.0"
IMAGE, KLEIN, STYLE = "create_image", "create_image_klein", "style-transfer"
FORMATS = {"image/webp": "webp", "image/png": "png", "image/jpeg": "jpeg"}
_JSON = "application/json"
_VARY = {"Vary": "Accept"}
_PREFIXES = (
    "/create_image/",
    "/create_and_upload_image/",
    "/create_and_upload_image_klein/",
    "/api/style-transfer/",
)
_REPEAT = "The server is shutting down: repeat the request with the same Idempotency-Key"


_Count = Annotated[int, msgspec.Meta(ge=0)]


class StoredImageSchema(TypedDict):
    """An image at the path that the request named."""

    path: Url
    save_path: str
    bytes: _Count


class StyledImageSchema(TypedDict):
    """An image in another style."""

    image_url: Url
    width: _Count
    height: _Count


class _ImageKitRequest(msgspec.Struct, frozen=True):
    """A request that has been checked."""

    principal: Principal
    model: str
    inputs: Mapping[str, Any]
    request_id: str
    idempotency_id: str | None = None
    # The key under which the image is stored.
    upload_path: str | None = None


class ImageKitRoutes:
    """Handlers that generate images and wait for them."""

    def __init__(self, services: WebServices, start_page: Handler) -> None:
        self._services = services
        self._start_page = start_page

    async def root(self, request: Request) -> Response:
        """Return the start page for browsers, or else the name of the service."""
        if requests.preferred_type(request.headers.get("accept"), (_JSON, "text/html")) == "text/html":
            return await self._start_page(request)
        docs = f"{self._services.settings.base_url}/docs"
        return responses.json({"name": "Sixfold", "version": VERSION, "docs": docs}, headers=_VARY)

    async def health(self, _request: Request) -> Response:
        return responses.json({"status": "ok"})

    async def create_image(self, request: Request) -> Response:
        principal = await self._services.authenticator.image_kit(request)
        inputs = schemas.image_inputs(request, self._services.catalog[IMAGE])
        inputs["format"] = _format(request)
        request_spec = _ImageKitRequest(principal, IMAGE, inputs, requests.request_id(request))
        return await self._bytes(await self._predict("query", request_spec))

    def uploader(self, model: str) -> Handler:
        """Return the handler that stores a model's image at the caller's path."""

        async def upload(request: Request) -> Response:
            principal = await self._services.authenticator.image_kit(request)
            inputs, place = schemas.upload(request, self._services.catalog[model], principal)
            key = save_paths.key(place.path) or ""
            save_path = request.query_params["save_path"]
            await self._require_free(key, save_path)
            await self._require_own(key, principal.tenant)
            request_spec = _ImageKitRequest(
                principal, model, inputs, requests.request_id(request), upload_path=key
            )
            # Before the image is paid for, because it writes to the database.
            url = await self._url(request, principal, save_path)
            prediction = await self._predict("query", request_spec)
            size = await self._put(prediction, key)
            body: StoredImageSchema = {"path": url, "save_path": save_path, "bytes": size}
            return responses.json(body, headers=responses.result_headers(prediction))

        return upload

    async def style(self, request: Request) -> Response:
        """Restyle an image; return JSON, or the image if the client accepts one."""
        principal = await self._services.authenticator.image_kit(request)
        model, media = self._services.catalog[STYLE], self._services.media
        inputs = await schemas.style(request, model, principal, media)
        wants_bytes = requests.preferred_type(request.headers.get("accept"), (_JSON, *FORMATS)) in FORMATS
        inputs["format"] = _format(request) if wants_bytes else "webp"
        wants = b"image" if wants_bytes else b"json"
        owner = principal.replays
        # All anonymous users share this tenant if the API is open.
        if principal.keyless:
            owner = f"{owner}/{self._services.trusted_hosts.network(request)}"
        idempotent_request = IdempotentRequest(owner, wants + await request.body(), error_format.render)

        async def work(idempotency_id: str | None) -> Response:
            request_spec = _ImageKitRequest(
                principal, STYLE, inputs, requests.request_id(request), idempotency_id
            )
            prediction = await self._predict("body", request_spec)
            return await self._bytes(prediction) if wants_bytes else self._styled(prediction)

        return await self._services.idempotency.run(request, idempotent_request, work)

    async def _predict(self, part: error_format.Part, request_spec: _ImageKitRequest) -> Prediction:
        """Return the finished prediction, or cancel it on a timeout; raises the error of a failed one."""
        prediction_request = PredictionRequest(
            principal=request_spec.principal,
            model=request_spec.model,
            inputs=request_spec.inputs,
            face="imagekit",
            request_id=request_spec.request_id,
            idempotency_id=request_spec.idempotency_id,
            charged=not request_spec.principal.keyless,
            upload_path=request_spec.upload_path,
        )
        service = self._services.predictions
        try:
            prediction = await service.submit(prediction_request)
        except errors.InvalidInput as error:
            raise error_format.of_inputs(part, error) from error
        prediction = await service.wait(prediction, self._services.settings.inline_seconds, patient=True)
        if not prediction.is_terminal:
            if service.draining and request_spec.idempotency_id is not None:
                raise errors.ShuttingDown(_REPEAT)
            # The response has no id, so the client could not poll for the result.
            with contextlib.suppress(errors.StoreFailed):
                await service.cancel(prediction.id, Tenant.of(prediction))
            raise errors.ShuttingDown if service.draining else errors.EngineFailed
        failure = failure_of(
            prediction,
            lambda: error_format.InvalidImageRequest([error_format.item(part, _unusable(prediction))]),
            errors.EngineFailed(),
        )
        if failure is not None:
            raise failure
        return prediction

    async def _bytes(self, prediction: Prediction) -> Response:
        file, data = await self._read(prediction)
        headers = {**responses.result_headers(prediction), **_VARY, "Cache-Control": "no-store"}
        return Response(data, 200, headers, file.content_type)

    async def _read(self, prediction: Prediction) -> tuple[OutputFile, bytes]:
        """Return the image and its bytes; if they cannot be read, withdraw and refund the result."""
        file = _file(prediction)
        unread = "the stored file could not be read"
        async with refunded_on_failure(self._services.predictions, prediction, unread):
            return file, await self._services.blobs.get(file.blob)

    def _styled(self, prediction: Prediction) -> Response:
        file = _file(prediction)
        body: StyledImageSchema = {
            "image_url": self._services.media_url(file),
            "width": file.info["width"],
            "height": file.info["height"],
        }
        return responses.json(body, headers={**responses.result_headers(prediction), **_VARY})

    async def _require_free(self, key: str, save_path: str) -> None:
        """Raise `Conflict` if the store has a file at a parent of the path, or files below it."""
        folders = upload_paths.folders(save_path)
        # The folder of the account, before those of the caller, is never a file.
        above = upload_paths.folders(key)[key.count("/") - len(folders) :]
        # The look-ups run in parallel, because the store may be remote.
        uploads = self._services.uploads
        *files, is_folder = await asyncio.gather(*map(uploads.stat, above), _has_any(uploads, f"{key}/"))
        for folder, file in zip(folders, files, strict=True):
            if file is not None:
                raise errors.Conflict(
                    f"save_path is below {folder}, which is an existing file: choose another path"
                )
        if is_folder:
            raise errors.Conflict("save_path is an existing folder: choose another path")

    async def _require_own(self, key: str, tenant: Tenant) -> None:
        """Raise `Conflict` if a request without a key names a file that the operator's key created."""
        if not tenant.keyless:
            return
        uploads = self._services.uploads
        file, marker = await asyncio.gather(uploads.stat(key), uploads.stat(save_paths.keyless_marker(key)))
        # A marker with content is a file of an earlier version, not the file at the top level.
        if file is not None and (marker is None or marker.size):
            raise errors.Conflict(
                "The file at save_path belongs to the operator's account: choose another path, or send the "
                "operator's key"
            )

    async def _mark(self, key: str, tenant: Tenant) -> None:
        """Record whether the next file at the top level is written without a key."""
        marker = save_paths.keyless_marker(key)
        if tenant.keyless:
            await self._services.uploads.put(marker, b"")
        elif not save_paths.owner_of(key):
            await self._services.uploads.delete(marker)

    async def _put(self, prediction: Prediction, key: str) -> int:
        """Store the image of a prediction and return its size in bytes."""
        file, data = await self._read(prediction)
        self._services.predictions.failpoints.hit("save.before")
        tenant = Tenant.of(prediction)
        try:
            async with refunded_on_failure(
                self._services.predictions,
                prediction,
                "the file could not be written to its path",
                conflict="another request has used its path in the meantime",
            ):
                # The path is reserved for this prediction by now, so that no other writer comes between.
                await self._require_own(key, tenant)
                await self._mark(key, tenant)
                await self._services.uploads.put(key, data, content_type=file.content_type)
        except errors.Conflict:
            raise
        except Exception:
            await self._remove(key, data)
            raise
        self._services.predictions.failpoints.hit("save.after")
        # The file is stored and paid for: without the mark, the sweep ends the reservation of its path.
        with contextlib.suppress(errors.StoreFailed):
            await self._services.database.write(upload_paths.mark_stored(prediction.id), durable=False)
        return len(data)

    async def _url(self, request: Request, principal: Principal, save_path: str) -> str:
        """Return the URL of a stored image: secret, unless only this machine may read it."""
        below = f"{self._services.settings.base_url}/uploads"
        if principal.keyless and self._services.authenticator.keyless.admits(request):
            return f"{below}/{save_path}"
        return f"{below}/{await self._folder(principal.tenant)}/{save_path}"

    async def _remove(self, key: str, data: bytes) -> None:
        """Remove refunded bytes that a store has written although it reported a failure."""
        uploads = self._services.uploads
        with contextlib.suppress(KeyError, OSError, errors.StoreFailed):
            if await uploads.get(key) == data:
                await uploads.delete(key)

    async def _folder(self, tenant: Tenant) -> str:
        """Return the name of a tenant's folder in URLs."""
        database = self._services.database
        name = await database.read(upload_folders.name_of(tenant))
        return await database.write(upload_folders.create(tenant)) if name is None else name


def _file(prediction: Prediction) -> OutputFile:
    if prediction.output is None or not prediction.output.files:
        raise errors.EngineFailed
    return prediction.output.files[0]


async def _has_any(store: BlobStore, prefix: str) -> bool:
    async for _ in store.list(prefix):
        return True
    return False


def _format(request: Request) -> str:
    kind = requests.preferred_type(request.headers.get("accept"), tuple(FORMATS))
    return FORMATS[kind or "image/webp"]


def build_api(services: WebServices, start_page: Handler) -> ApiGroup:
    """Build the Image utility API; `start_page` serves browsers at its root."""
    kit = ImageKitRoutes(services, start_page)
    return ApiGroup(
        "imagekit",
        error_format.render,
        (
            RouteEntry("/", {"GET": kit.root, "HEAD": kit.root}, access=rights.PUBLIC),
            RouteEntry("/health", {"GET": kit.health, "HEAD": kit.health}, access=rights.PUBLIC),
            RouteEntry("/create_image", {"GET": kit.create_image}, safe=False, access=rights.RUN),
            RouteEntry(
                "/create_and_upload_image", {"GET": kit.uploader(IMAGE)}, safe=False, access=rights.RUN
            ),
            RouteEntry(
                "/create_and_upload_image_klein", {"GET": kit.uploader(KLEIN)}, safe=False, access=rights.RUN
            ),
            RouteEntry(
                "/api/style-transfer",
                {"POST": kit.style},
                services.settings.json_body_bytes,
                access=rights.RUN,
            ),
        ),
        prefixes=_PREFIXES,
    )


def _unusable(prediction: Prediction) -> Problem:
    """Return the problem of an unusable input: the one that begins the message, or else the first file."""
    message = prediction.error or ""
    input_name = message.partition(" ")[0]
    if input_name in prediction.task.inputs:
        return Problem(input_name, message)
    name = next(iter(prediction.task.files), "")
    return Problem(name, f"{name}: {message}")
