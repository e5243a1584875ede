"""Errors of the Image utility API: `{"detail": …}`, with status 422 for invalid parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from starlette.responses import Response

from sixfold.errors import InvalidInput, Problem, SixfoldError
from sixfold.web import responses

Part = Literal["query", "body"]
_UNPROCESSABLE = 422


class ValidationErrorSchema(TypedDict):
    """An invalid parameter."""

    loc: list[str | int]
    msg: str
    type: str


class HTTPValidationErrorSchema(TypedDict):
    """All invalid parameters of a request."""

    detail: list[ValidationErrorSchema]


class DetailSchema(TypedDict):
    """An error with one message."""

    detail: str


class InvalidImageRequest(SixfoldError):
    """The request is not valid."""

    status = _UNPROCESSABLE
    code = "invalid_input"

    def __init__(self, items: Sequence[ValidationErrorSchema]) -> None:
        self.items = list(items)
        super().__init__()


def item(part: Part, problem: Problem) -> ValidationErrorSchema:
    """Return one entry of the list `detail`."""
    loc: list[str | int] = [part, problem.input] if problem.input else [part]
    return {"loc": loc, "msg": problem.message, "type": problem.kind}


def of_inputs(part: Part, error: InvalidInput) -> InvalidImageRequest:
    """Return the error for invalid inputs, which were found in `where` of the request."""
    return InvalidImageRequest([item(part, problem) for problem in error.problems])


def render(error: SixfoldError, _request_id: str) -> Response:
    """Return an error in the format of the Image utility API."""
    if isinstance(error, InvalidInput):
        error = of_inputs("body", error)
    body: HTTPValidationErrorSchema | DetailSchema = (
        {"detail": error.items} if isinstance(error, InvalidImageRequest) else {"detail": error.message}
    )
    return responses.json(body, error.status, responses.error_headers(error))
