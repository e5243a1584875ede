"""OpenAI's Files API.

Source: https://platform.openai.com/docs/api-reference/files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway import list_pages
from sixfold.api.gateway.files.file_routes import FileRoutes
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Rights
from sixfold.core.files.files import AccountFile, FileDetails, FileFilter
from sixfold.web import requests, responses
from sixfold.web.uploads import ReceivedUpload

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
MIN_SECONDS, MAX_SECONDS = 3600, 30 * 24 * 3600
PAGE, MAX_PAGE = 1000, 10_000
MAX_TEXT = 200
_SECOND_US = 1_000_000


class OpenAIFileSchema(TypedDict):
    """A file in OpenAI's format."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]
    status_details: None


class OpenAIFilesSchema(list_pages.OpenAIPageSchema):
    """A page of files in OpenAI's format."""

    data: Sequence[OpenAIFileSchema]


class DeletedOpenAIFileSchema(TypedDict):
    """A deleted file in OpenAI's format."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class OpenAIFileRoutes(FileRoutes):
    """`/v1/files` for OpenAI's clients."""

    async def create(self, request: Request) -> Response:
        """Store the file of a form."""
        return await self._intake.receive(request, b"file", openai_errors.dialect, self._create)

    async def _create(self, principal: Principal, upload: ReceivedUpload) -> Response:
        fields = upload.fields
        details = FileDetails(
            upload.filename,
            purpose(fields.get("purpose")),
            upload.claimed_type,
            expiry_seconds(fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")),
        )
        file = await self._services.files.create(principal.tenant, details, upload.path)
        return responses.json(document(file))

    async def page(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        limit, ascending, after = list_pages.openai_query(request, PAGE, MAX_PAGE)
        purpose_filter = requests.query_text(request, "purpose", MAX_TEXT)
        size = min(limit, PAGE)
        file_filter = FileFilter(purpose_filter, principal.has(Rights.MEMORY_READ), ascending)
        records = await self._services.files.page(principal.tenant, file_filter, size + 1, after)
        rows = [document(file) for file in records[:size]]
        return responses.json(list_pages.openai_page(rows, has_more=len(records) > size))

    def _document(self, file: AccountFile) -> OpenAIFileSchema:
        return document(file)

    def _deleted(self, file_id: str) -> DeletedOpenAIFileSchema:
        return {"id": file_id, "object": "file", "deleted": True}


def document(file: AccountFile) -> OpenAIFileSchema:
    """Return a file in OpenAI's format."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": file.created_at // _SECOND_US,
        "expires_at": None if file.expires_at is None else file.expires_at // _SECOND_US,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def purpose(value: Any) -> str:
    """Return the purpose of an upload; raises `InvalidRequest`."""
    if value not in PURPOSES:
        raise InvalidRequest(f"purpose must be one of {', '.join(PURPOSES)}", param="purpose")
    return str(value)


def expires_after(value: Any, param: str = "expires_after") -> int | None:
    """Return the seconds in a policy `{"anchor", "seconds"}`; raises `InvalidRequest`."""
    if value is None:
        return None
    policy = parsing.mapping(value, param)
    return expiry_seconds(policy.get("anchor"), policy.get("seconds"), param)


def expiry_seconds(anchor: Any, seconds: Any, param: str = "expires_after") -> int | None:
    """Return the lifetime of a file in seconds, or None if it does not expire; raises `InvalidRequest`."""
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise InvalidRequest(f"{param}.anchor must be created_at", param=f"{param}.anchor")
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdigit() and len(seconds) < 10:
        seconds = int(seconds)
    if not isinstance(seconds, int) or not MIN_SECONDS <= seconds <= MAX_SECONDS:
        message = f"{param}.seconds must be an integer from {MIN_SECONDS} to {MAX_SECONDS}"
        raise InvalidRequest(message, param=f"{param}.seconds")
    return seconds
