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
    """What is wrong, in the words of Anthropic."""

    type: str
    message: str
    code: str


class AnthropicErrorSchema(TypedDict):
    """An error of Anthropic."""

    type: Literal["error"]
    error: AnthropicErrorBodySchema
    request_id: str


def document(error: SixfoldError, request_id: str) -> AnthropicErrorSchema:
    """`{"type": "error", "error": {"type", "message", "code"}, "request_id"}`."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    told: AnthropicErrorBodySchema = {"type": kind, "message": _sentence(error), "code": error.code}
    return {"type": "error", "error": told, "request_id": request_id}


def _sentence(error: SixfoldError) -> str:
    """What is wrong; coding agents know by three words of this dialect that they must forget something."""
    if isinstance(error, TooLong) and _TOO_LONG not in error.message.lower():
        return f"{_TOO_LONG}: {error.message}"
    return error.message


def dialect(error: SixfoldError, request_id: str) -> Response:
    """The error as an answer; what cannot succeed soon is not to be tried again by itself."""
    headers = {**responses.error_headers(error), "request-id": request_id}
    if isinstance(error, BudgetExceeded | InsufficientCredits | Unauthenticated):
        headers["x-should-retry"] = "false"
    return responses.json(document(error, request_id), error.status, headers)


def event(error: SixfoldError, request_id: str) -> bytes:
    """The error within a stream that had begun."""
    return b"event: error\ndata: " + _encode(document(error, request_id)) + b"\n\n"
