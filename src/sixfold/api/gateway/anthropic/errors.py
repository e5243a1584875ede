"""Anthropic's error object."""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec
from starlette.responses import Response

from sixfold.errors import BudgetExceeded, InsufficientCredits, SixfoldError, TooLong, Unauthenticated
from sixfold.web import responses

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_TOO_LONG = "prompt is too long"
_encode = msgspec.json.Encoder().encode


class AnthropicErrorBodySchema(TypedDict):
    """The body of an Anthropic error."""

    type: str
    message: str
    code: str


class AnthropicErrorSchema(TypedDict):
    """An Anthropic error."""

    type: Literal["error"]
    error: AnthropicErrorBodySchema
    request_id: str


def document(error: SixfoldError, request_id: str) -> AnthropicErrorSchema:
    """Return `{"type": "error", "error": {"type", "message", "code"}, "request_id"}`."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    body: AnthropicErrorBodySchema = {"type": kind, "message": _message(error), "code": error.code}
    return {"type": "error", "error": body, "request_id": request_id}


def _message(error: SixfoldError) -> str:
    """Return the message; coding agents shorten their history if it contains Anthropic's phrase."""
    if isinstance(error, TooLong) and _TOO_LONG not in error.message.lower():
        return f"{_TOO_LONG}: {error.message}"
    return error.message


def dialect(error: SixfoldError, request_id: str) -> Response:
    """Return the error response; a header asks clients not to retry a request that cannot succeed soon."""
    headers = {**responses.error_headers(error), "request-id": request_id}
    if isinstance(error, BudgetExceeded | InsufficientCredits | Unauthenticated):
        headers["x-should-retry"] = "false"
    return responses.json(document(error, request_id), error.status, headers)


def event(error: SixfoldError, request_id: str) -> bytes:
    """Return the error as an event of a stream that has begun."""
    return b"event: error\ndata: " + _encode(document(error, request_id)) + b"\n\n"
