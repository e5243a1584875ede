"""Anthropic's Message Batches API.

Source: https://docs.anthropic.com/en/api/creating-message-batches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway import list_pages
from sixfold.api.gateway.batches.runner import ANTHROPIC_ENDPOINT
from sixfold.api.gateway.chat_handler import anthropic_headers
from sixfold.api.gateway.files import intake
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.core.accounts.keys import Principal
from sixfold.core.batches.models import Batch
from sixfold.core.batches.service import NewBatch
from sixfold.core.batches.validation import MAX_LINE_BYTES, LineValidator, RawLine
from sixfold.core.clock import rfc3339
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.input_limits.json_limits import JsonLimits
from sixfold.web import bodies, requests, responses, trusted_hosts
from sixfold.web.idempotency import ONCE
from sixfold.web.services import WebServices

_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Anthropic's own results are available for 29 days.
_RESULT_SECONDS = 29 * 24 * 3600
_STATUSES: Mapping[str, Literal["in_progress", "canceling", "ended"]] = {
    "validating": "in_progress",
    "in_progress": "in_progress",
    "finalizing": "in_progress",
    "cancelling": "canceling",
}
# The maximum number of arrays and objects in all requests of a batch.
_MAX_CONTAINERS = 500_000
_encode = msgspec.json.Encoder().encode


class _BatchRequest(msgspec.Struct):
    custom_id: str
    params: msgspec.Raw


class _BatchBody(msgspec.Struct):
    requests: list[_BatchRequest]


_decode = msgspec.json.Decoder(_BatchBody).decode


class MessageBatchCountsSchema(TypedDict):
    """The numbers of requests by state."""

    processing: int
    succeeded: int
    errored: int
    canceled: int
    expired: int


class MessageBatchSchema(TypedDict):
    """A batch of messages; `results_url` is set once the batch has ended."""

    id: str
    type: Literal["message_batch"]
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageBatchCountsSchema
    created_at: str
    expires_at: str
    ended_at: str | None
    cancel_initiated_at: str | None
    archived_at: str | None
    results_url: str | None


class MessageBatchesSchema(list_pages.AnthropicPageSchema):
    """A page of batches of messages, newest first."""

    data: Sequence[MessageBatchSchema]


class DeletedMessageBatchSchema(TypedDict):
    """A deleted batch of messages."""

    id: str
    type: Literal["message_batch_deleted"]


class AnthropicBatchRoutes:
    """`/v1/messages/batches`."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._services = services
        self._auth = auth

    async def create(self, request: Request, principal: Principal) -> Response:
        raw = await request.body()
        async with self._services.files.temporary_path() as path:
            total = await PARSER.run(_write_lines, raw, self._services.batches.limits.lines, path)
            new = NewBatch(
                "anthropic",
                ANTHROPIC_ENDPOINT,
                headers=anthropic_headers(dict(request.headers.raw)),
                output_seconds=_RESULT_SECONDS,
                total=total,
                once=request.scope[ONCE],
            )
            batch = await self._services.batches.create_from_path(principal, new, path)
        return responses.json(self._document(request, batch))

    async def page(self, request: Request) -> Response:
        """List batches, newest first."""
        principal = await self._auth.enter(request)
        limit, after, before = list_pages.anthropic_query(request)
        batches = await self._services.batches.page(
            principal.tenant, "anthropic", limit + 1, before or after, ascending=bool(before)
        )
        rows = [self._document(request, batch) for batch in batches[:limit]]
        if before:
            rows.reverse()
        return responses.json(list_pages.anthropic_page(rows, has_more=len(batches) > limit))

    async def show(self, request: Request) -> Response:
        _, batch = await self._find(request)
        return responses.json(self._document(request, batch))

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch once its running requests have ended; a batch that has ended is not changed."""
        principal, batch = await self._find(request)
        if batch.outcome is None:
            batch = await self._services.batches.cancel(principal.tenant, "anthropic", batch.id)
        return responses.json(self._document(request, batch))

    async def delete(self, request: Request) -> Response:
        """Delete a batch that has ended, with its results."""
        principal, batch = await self._find(request)
        await self._services.batches.delete(principal.tenant, "anthropic", batch.id)
        deletion: DeletedMessageBatchSchema = {"id": batch.id, "type": "message_batch_deleted"}
        return responses.json(deletion)

    async def results(self, request: Request) -> Response:
        """Return the results, one JSON object per line."""
        principal, batch = await self._find(request)
        if batch.ended_at is None:
            raise errors.BadRequest(f"The batch {batch.id} has not ended: request its results later")
        if batch.output_file_id is None:
            raise errors.NotFound(f"The results of the batch {batch.id} do not exist")
        file = await self._services.files.get(principal.tenant, batch.output_file_id)
        return await intake.content(request, self._services, file)

    async def _find(self, request: Request) -> tuple[Principal, Batch]:
        principal = await self._auth.enter(request)
        batch_id = requests.path_value(request, "batch_id")
        return principal, await self._services.batches.get(principal.tenant, "anthropic", batch_id)

    def _document(self, request: Request, batch: Batch) -> MessageBatchSchema:
        remaining = max(0, batch.total - batch.succeeded - batch.failed)
        has_ended = batch.ended_at is not None
        expired = remaining if has_ended and batch.state == "expired" else 0
        has_results = has_ended and batch.output_file_id is not None
        # The library requests this URL, also from another machine than the server's.
        origin = trusted_hosts.origin(request, self._services.settings)
        url = f"{origin}{ANTHROPIC_ENDPOINT}/batches/{batch.id}/results"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": _STATUSES.get(batch.state, "ended"),
            "request_counts": {
                "processing": 0 if has_ended else remaining,
                "succeeded": batch.succeeded,
                "errored": batch.failed,
                "canceled": remaining - expired if has_ended else 0,
                "expired": expired,
            },
            "created_at": rfc3339(batch.created_at),
            "expires_at": rfc3339(batch.expires_at),
            "ended_at": rfc3339(batch.ended_at),
            "cancel_initiated_at": rfc3339(batch.cancelling_at),
            "archived_at": None,
            "results_url": url if has_results else None,
        }


def _write_lines(raw: bytes, max_lines: int, path: Path) -> int:
    """Write the requests of a body as lines to a new file and return their number; raises `BadRequest`."""
    limits = JsonLimits(containers=_MAX_CONTAINERS, members=2 * _MAX_CONTAINERS, values=4 * _MAX_CONTAINERS)
    bodies.check_size(raw, limits)
    bodies.require_object(raw)
    try:
        body = _decode(raw)
    except msgspec.ValidationError as error:
        raise errors.BadRequest(f"Invalid request: {error}") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(bodies.INVALID_JSON) from error
    if not 0 < len(body.requests) <= max_lines:
        raise errors.BadRequest(f"requests: must have 1 to {max_lines} items (got {len(body.requests)})")
    validator = LineValidator(ANTHROPIC_ENDPOINT)
    with path.open("xb") as file:
        for index, each in enumerate(body.requests):
            file.write(_line(index, each, validator) + b"\n")
    return len(body.requests)


def _line(index: int, request: _BatchRequest, validator: LineValidator) -> bytes:
    if not _CUSTOM_ID.fullmatch(request.custom_id):
        raise errors.BadRequest(
            f"requests.{index}.custom_id: must be 1 to 64 letters, digits, hyphens or underscores"
        )
    # Line feeds occur between the values of the parameters only.
    params = msgspec.Raw(bytes(request.params).replace(b"\n", b" ").replace(b"\r", b" "))
    line = _encode(
        {"custom_id": request.custom_id, "method": "POST", "url": ANTHROPIC_ENDPOINT, "body": params}
    )
    data = line if len(line) <= MAX_LINE_BYTES else None
    _, problems = validator.check([RawLine(index, 0, len(line), data)])
    if problems:
        raise errors.BadRequest(f"requests.{index}: {problems[0].message}")
    return line
