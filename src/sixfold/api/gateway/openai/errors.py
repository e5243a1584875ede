"""OpenAI's error object."""

from __future__ import annotations

from typing import TypedDict

import msgspec
from starlette.responses import Response

from sixfold.errors import (
    BudgetExceeded,
    InsufficientCredits,
    InvalidInput,
    SixfoldError,
    Unauthenticated,
    UpstreamRefused,
)
from sixfold.web import responses

_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
_encode = msgspec.json.Encoder().encode


class InvalidRequest(UpstreamRefused):
    """A field of the request is invalid."""

    code = "invalid_value"


class PreviousResponseNotFound(InvalidRequest):
    """The previous response was not found."""

    code = "previous_response_not_found"

    def __init__(self, response_id: str) -> None:
        message = f"Previous response with id '{response_id[:200]}' not found."
        super().__init__(message, param="previous_response_id")


class MutuallyExclusive(InvalidRequest):
    """Two fields of the request exclude each other."""

    code = "mutually_exclusive_parameters"

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second} cannot be combined: send only one of them", param=second)


class OpenAIErrorBodySchema(TypedDict):
    """The body of an OpenAI error."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorSchema(TypedDict):
    """An OpenAI error."""

    error: OpenAIErrorBodySchema


def document(error: SixfoldError) -> OpenAIErrorSchema:
    """Return `{"error": {"message", "type", "param", "code"}}`."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    param = error.param or None if isinstance(error, UpstreamRefused) else None
    if isinstance(error, InvalidInput):
        param = error.problems[0].input
    return {"error": {"message": error.message, "type": kind, "param": param, "code": error.code}}


def dialect(error: SixfoldError, _request_id: str) -> Response:
    """Return the error response; a header asks clients not to retry a request that cannot succeed soon."""
    headers = responses.error_headers(error)
    if isinstance(error, BudgetExceeded | InsufficientCredits | Unauthenticated):
        headers["x-should-retry"] = "false"
    return responses.json(document(error), error.status, headers)


def event(error: SixfoldError, _request_id: str) -> bytes:
    """Return the error as an event of a stream that has begun."""
    return b"data: " + _encode(document(error)) + b"\n\n"
