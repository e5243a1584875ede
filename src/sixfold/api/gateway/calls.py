"""`GET /api/gateway/calls`: the log of an account's calls, newest first, with full-text search."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core import money
from sixfold.core.accounts import charges, rights
from sixfold.core.clock import rfc3339
from sixfold.core.database import Row
from sixfold.core.gateway import request_log
from sixfold.core.gateway.request_log import CallFilter
from sixfold.web import requests, responses
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

PAGE, MAX_PAGE, MAX_TEXT = 50, 200, 200
STATES = ("running", "succeeded", "left", "failed")


class CallUsageSchema(TypedDict):
    """The tokens of a call, and whether the server counted them."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    counted_by: str


class CallSchema(TypedDict):
    """A call; `request` and `response` are present if the operator stores them."""

    id: str
    created_at: str
    completed_at: str | None
    face: str
    key: str | None
    model: str
    target: str | None
    status: str
    stream: bool
    attempts: int
    usage: CallUsageSchema
    held_usd: str
    cost_usd: str
    charge: charges.ChargeSchema | None
    first_ms: float
    total_ms: float
    error: str | None
    request: NotRequired[Any]
    response: NotRequired[Any]


class RequestLogRoutes(ServiceHandlers):
    """Handlers for the log of calls."""

    async def list_calls(self, request: Request) -> Response:
        """Return a page of the account's calls, newest first."""
        principal = await self._enter(request)
        filters = CallFilter(
            model=requests.query_text(request, "model", MAX_TEXT),
            state=requests.query_choice(request, "status", STATES, MAX_TEXT),
            key_id=principal.credential_id or requests.query_text(request, "key", MAX_TEXT),
            text=requests.query_text(request, "q", MAX_TEXT),
        )
        cursor = requests.query_text(request, "cursor", MAX_TEXT) or None
        rows, next_cursor = await self._services.database.read(
            request_log.list_calls(
                principal.account_id, filters, requests.page_size(request, PAGE, MAX_PAGE, MAX_TEXT), cursor
            )
        )
        document = {"calls": [_document(row) for row in rows], "next_cursor": next_cursor}
        return responses.json(document, headers={"Cache-Control": "no-store"})


def _document(row: Row) -> CallSchema:
    document: CallSchema = {
        "id": row["id"],
        "created_at": rfc3339(row["created_at"]),
        "completed_at": rfc3339(row["ended_at"]),
        "face": row["face"],
        "key": row["key_id"],
        "model": row["model"],
        "target": row["target"],
        "status": row["state"],
        "stream": bool(row["streamed"]),
        "attempts": row["attempts"],
        "usage": {
            "input_tokens": row["input_tokens"],
            "cached_tokens": row["cached_tokens"],
            "output_tokens": row["output_tokens"],
            "counted_by": row["counted_by"],
        },
        "held_usd": money.format_usd(row["held"]),
        "cost_usd": money.format_usd(row["cost"]),
        "charge": charges.to_json(charges.decode(row["charge"])),
        "first_ms": row["first_us"] / 1000,
        "total_ms": row["total_us"] / 1000,
        "error": row["error"] or None,
    }
    for name in ("request", "response"):
        if row[name] is not None:
            document[name] = row[name]
    return document


def build_api(services: WebServices) -> ApiGroup:
    """Return the route `/api/gateway/calls`."""
    return ApiGroup(
        "calls",
        responses.error_response,
        (
            RouteEntry(
                "/api/gateway/calls", {"GET": RequestLogRoutes(services).list_calls}, access=rights.RUN
            ),
        ),
    )
