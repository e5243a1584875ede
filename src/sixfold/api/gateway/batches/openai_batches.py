"""OpenAI's Batch API.

Source: https://platform.openai.com/docs/api-reference/batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway import list_pages
from sixfold.api.gateway.batches.runner import OPENAI_ENDPOINTS
from sixfold.api.gateway.files import openai_files
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.accounts.keys import Principal
from sixfold.core.batches.models import Batch
from sixfold.core.batches.service import NewBatch
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import ONCE
from sixfold.web.services import WebServices

WINDOW = "24h"
PAGE, MAX_PAGE, MAX_TEXT = 20, 100, 200
MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512
_SECOND_US = 1_000_000


class BatchErrorSchema(TypedDict):
    """A reason why a batch failed; `line` is the number of a line of its input."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrorsSchema(TypedDict):
    """The reasons why a batch failed."""

    object: Literal["list"]
    data: Sequence[BatchErrorSchema]


class BatchCountsSchema(TypedDict):
    """The numbers of lines by state."""

    total: int
    completed: int
    failed: int


class BatchSchema(TypedDict):
    """A batch; `waiting_for` is the limit that it waits for."""

    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchErrorsSchema | None
    input_file_id: str | None
    completion_window: str
    status: Literal[
        "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
    ]
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: BatchCountsSchema
    metadata: Mapping[str, str] | None
    waiting_for: str | None


class BatchesSchema(list_pages.OpenAIPageSchema):
    """A page of batches, newest first."""

    data: Sequence[BatchSchema]


class OpenAIBatchRoutes:
    """`/v1/batches`."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._services = services
        self._auth = auth

    async def create(self, request: Request, principal: Principal) -> Response:
        body = await bodies.parse(bodies.parse_object, await request.body())
        endpoint = body.get("endpoint")
        endpoints = [path for path in OPENAI_ENDPOINTS if path in self._services.batch_processor.endpoints]
        if endpoint not in endpoints:
            raise InvalidRequest(f"endpoint must be one of {', '.join(endpoints)}", param="endpoint")
        if body.get("completion_window") != WINDOW:
            raise InvalidRequest(f"completion_window must be {WINDOW}", param="completion_window")
        file_id = body.get("input_file_id")
        if not isinstance(file_id, str) or not file_id:
            raise InvalidRequest("input_file_id is required and must be a string", param="input_file_id")
        seconds = openai_files.expires_after(body.get("output_expires_after"), "output_expires_after")
        once = request.scope[ONCE]
        new = NewBatch("openai", endpoint, _metadata(body.get("metadata")), output_seconds=seconds, once=once)
        batch = await self._services.batches.create_from_file(principal, new, file_id)
        return responses.json(document(batch))

    async def page(self, request: Request) -> Response:
        """List batches, newest first."""
        principal = await self._auth.enter(request)
        limit = requests.page_size(request, PAGE, MAX_PAGE, MAX_TEXT)
        after = requests.query_text(request, "after", MAX_TEXT)
        batches = await self._services.batches.page(principal.tenant, "openai", limit + 1, after)
        rows = [document(batch) for batch in batches[:limit]]
        return responses.json(list_pages.openai_page(rows, has_more=len(batches) > limit))

    async def show(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        batch_id = requests.path_value(request, "batch_id")
        return responses.json(
            document(await self._services.batches.get(principal.tenant, "openai", batch_id))
        )

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch once its running lines have ended."""
        principal = await self._auth.enter(request)
        batch_id = requests.path_value(request, "batch_id")
        return responses.json(
            document(await self._services.batches.cancel(principal.tenant, "openai", batch_id))
        )


def document(batch: Batch) -> BatchSchema:
    """Return a batch in OpenAI's format."""
    errors = batch.error_list
    end_times = {batch.state: _seconds(batch.ended_at)}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {"object": "list", "data": [_error(row) for row in errors]} if errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": WINDOW,
        "status": batch.state,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at // _SECOND_US,
        "in_progress_at": _seconds(batch.in_progress_at),
        "expires_at": batch.expires_at // _SECOND_US,
        "finalizing_at": _seconds(batch.finalizing_at),
        "completed_at": end_times.get("completed"),
        "failed_at": end_times.get("failed"),
        "expired_at": end_times.get("expired"),
        "cancelling_at": _seconds(batch.cancelling_at),
        "cancelled_at": end_times.get("cancelled"),
        "request_counts": {"total": batch.total, "completed": batch.succeeded, "failed": batch.failed},
        "metadata": batch.metadata_map or None,
        "waiting_for": batch.waiting_for,
    }


def _seconds(epoch_us: int | None) -> int | None:
    return None if epoch_us is None else epoch_us // _SECOND_US


def _error(row: Mapping[str, Any]) -> BatchErrorSchema:
    return {"code": row["code"], "line": row["line"], "message": row["message"], "param": row["param"]}


def _metadata(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    metadata = parsing.mapping(value, "metadata")
    if len(metadata) > MAX_METADATA:
        raise InvalidRequest(
            f"metadata must have at most {MAX_METADATA} pairs (got {len(metadata)})", param="metadata"
        )
    for key, text in metadata.items():
        if len(key) > MAX_METADATA_KEY or not isinstance(text, str) or len(text) > MAX_METADATA_VALUE:
            raise InvalidRequest(
                f"metadata keys must be at most {MAX_METADATA_KEY} characters, and values must be strings of "
                f"at most {MAX_METADATA_VALUE} characters",
                param="metadata",
            )
    return metadata
