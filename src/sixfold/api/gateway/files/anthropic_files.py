"""Anthropic's Files API, for requests with the header `anthropic-version`.

Source: https://docs.anthropic.com/en/api/files-create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway import list_pages
from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.files.file_routes import FileRoutes
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Rights
from sixfold.core.clock import rfc3339
from sixfold.core.files.files import AccountFile, FileDetails, FileFilter
from sixfold.web import requests, responses
from sixfold.web.uploads import ReceivedUpload

MAX_IDS = 100
MIN_SECONDS, MAX_SECONDS = 3600, 90 * 24 * 3600
_CURSOR = "page_"
# OpenAI's purpose of a file for any use.
_PURPOSE = "user_data"


class AnthropicFileSchema(TypedDict):
    """A file in Anthropic's format."""

    id: str
    type: Literal["file"]
    filename: str
    mime_type: str
    size_bytes: int
    created_at: str
    expires_at: str | None
    downloadable: Literal[True]


class AnthropicFilesSchema(list_pages.AnthropicPageSchema):
    """A page of files in Anthropic's format."""

    data: Sequence[AnthropicFileSchema]
    next_page: str | None


class DeletedAnthropicFileSchema(TypedDict):
    """A deleted file in Anthropic's format."""

    id: str
    type: Literal["file_deleted"]


class AnthropicFileRoutes(FileRoutes):
    """`/v1/files` for Anthropic's clients."""

    async def create(self, request: Request) -> Response:
        return await self._intake.receive(request, b"file", anthropic_errors.dialect, self._create)

    async def _create(self, principal: Principal, upload: ReceivedUpload) -> Response:
        name = upload.filename.replace("\\", "/").rpartition("/")[2] or "unnamed"
        seconds = _seconds(upload.fields.get("expires_in_seconds"))
        details = FileDetails(name, _PURPOSE, upload.claimed_type, seconds)
        file = await self._services.files.create(principal.tenant, details, upload.path)
        return responses.json(document(file))

    async def page(self, request: Request) -> Response:
        """List files, newest first."""
        principal = await self._auth.enter(request)
        requested_ids = request.query_params.getlist("ids[]") or request.query_params.getlist("ids")
        limit, after, before = list_pages.anthropic_query(request)
        files, reads = self._services.files, principal.has(Rights.MEMORY_READ)
        if requested_ids:
            records = await files.some(principal.tenant, _ids(requested_ids), with_memory=reads)
            limit = len(records)
        else:
            after = after or _page_id(requests.query_text(request, "page", list_pages.MAX_TEXT))
            file_filter = FileFilter(with_memory=reads, ascending=bool(before))
            records = await files.page(principal.tenant, file_filter, limit + 1, before or after)
        rows = [document(file) for file in records[:limit]]
        if before:
            rows.reverse()
        has_more = len(records) > limit
        next_page = _CURSOR + rows[-1]["id"] if has_more and not before else None
        return responses.json({**list_pages.anthropic_page(rows, has_more=has_more), "next_page": next_page})

    def _document(self, file: AccountFile) -> AnthropicFileSchema:
        return document(file)

    def _deleted(self, file_id: str) -> DeletedAnthropicFileSchema:
        return {"id": file_id, "type": "file_deleted"}


def _ids(requested_ids: Sequence[str]) -> tuple[str, ...]:
    ids = tuple(dict.fromkeys(requested_ids))
    if len(ids) > MAX_IDS:
        raise errors.BadRequest(f"ids must have at most {MAX_IDS} entries (got {len(ids)})")
    return ids


def _page_id(cursor: str) -> str:
    if cursor and not cursor.startswith(_CURSOR):
        raise errors.BadRequest("page must be the value of next_page from an earlier response")
    return cursor.removeprefix(_CURSOR)


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 9 and MIN_SECONDS <= int(text) <= MAX_SECONDS):
        raise errors.BadRequest(f"expires_in_seconds must be an integer from {MIN_SECONDS} to {MAX_SECONDS}")
    return int(text)


def document(file: AccountFile) -> AnthropicFileSchema:
    return {
        "id": file.id,
        "type": "file",
        "filename": file.filename,
        "mime_type": file.content_type,
        "size_bytes": file.size,
        "created_at": rfc3339(file.created_at),
        "expires_at": rfc3339(file.expires_at),
        "downloadable": True,
    }
