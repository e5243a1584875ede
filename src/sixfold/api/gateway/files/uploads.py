"""OpenAI's Uploads API: a large file in parts.

Source: https://platform.openai.com/docs/api-reference/uploads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.files import openai_files
from sixfold.api.gateway.files.intake import FileIntake
from sixfold.api.gateway.files.openai_files import OpenAIFileSchema
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.accounts.keys import Principal
from sixfold.core.files.files import FileDetails
from sixfold.core.files.uploads import MAX_PARTS, PartedUpload, PartedUploads
from sixfold.web import bodies, requests, responses
from sixfold.web.services import WebServices
from sixfold.web.uploads import ReceivedUpload

MAX_PART_BYTES = 64 * 2**20
MAX_UPLOAD_BYTES = 8 * 2**30
_SECOND_US = 1_000_000


class UploadInPartsSchema(TypedDict):
    """An upload in parts; `file` is set once the upload is completed."""

    id: str
    object: Literal["upload"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: Literal["pending", "completed", "cancelled"]
    file: NotRequired[OpenAIFileSchema | None]


class UploadPartSchema(TypedDict):
    """A part of an upload."""

    id: str
    object: Literal["upload.part"]
    created_at: int
    upload_id: str


class UploadInPartsRoutes:
    """`/v1/uploads`."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._services = services
        self._auth = auth
        self._intake = FileIntake(services, auth)
        self._uploads = PartedUploads(services.database, services.files)

    async def create(self, request: Request, principal: Principal) -> Response:
        body = await bodies.parse(bodies.parse_object, await request.body())
        size = body.get("bytes")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_UPLOAD_BYTES:
            raise InvalidRequest(f"bytes must be an integer from 1 to {MAX_UPLOAD_BYTES:,}", param="bytes")
        details = FileDetails(
            _text(body, "filename"),
            openai_files.purpose(body.get("purpose")),
            _text(body, "mime_type"),
            openai_files.expires_after(body.get("expires_after")),
        )
        return responses.json(_document(await self._uploads.create(principal.tenant, details, size)))

    async def add(self, request: Request) -> Response:
        upload_id = requests.path_value(request, "upload_id")

        async def work(principal: Principal, upload: ReceivedUpload) -> Response:
            if upload.size > MAX_PART_BYTES:
                raise errors.TooLarge(
                    f"A part must be at most {MAX_PART_BYTES:,} bytes (got {upload.size:,})"
                )
            part, created_at = await self._uploads.add(principal.tenant, upload_id, upload.path)
            document: UploadPartSchema = {
                "id": part.id,
                "object": "upload.part",
                "created_at": created_at // _SECOND_US,
                "upload_id": upload_id,
            }
            return responses.json(document)

        return await self._intake.receive(request, b"data", openai_errors.dialect, work)

    async def complete(self, request: Request, principal: Principal) -> Response:
        body = await bodies.parse(bodies.parse_object, await request.body())
        part_ids = parsing.items(body.get("part_ids"), "part_ids")
        if not 0 < len(part_ids) <= MAX_PARTS or not all(isinstance(part_id, str) for part_id in part_ids):
            raise InvalidRequest(f"part_ids must be a list of 1 to {MAX_PARTS:,} ids", param="part_ids")
        md5 = _text(body, "md5") if body.get("md5") is not None else ""
        upload_id = requests.path_value(request, "upload_id")
        upload, file = await self._uploads.complete(principal.tenant, upload_id, part_ids, md5)
        return responses.json({**_document(upload), "file": openai_files.document(file)})

    async def cancel(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        upload = await self._uploads.cancel(principal.tenant, requests.path_value(request, "upload_id"))
        return responses.json(_document(upload))


def _document(upload: PartedUpload) -> UploadInPartsSchema:
    return {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.size,
        "created_at": upload.created_at // _SECOND_US,
        "expires_at": upload.expires_at // _SECOND_US,
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": upload.state,
        "file": None,
    }


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{name} is required and must be a string", param=name)
    return value
