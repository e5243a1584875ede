"""Area C's errors: `{"detail": …}`, with 422 as resource C1 for what is not valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from starlette.responses import Response

from sixfold.errors import InvalidInput, Problem, SixfoldError
from sixfold.web import responses

Part = Literal["query", "body"]
_UNPROCESSABLE = 422


class ValidationErrorSchema(TypedDict):
    """What is wrong with one parameter."""

    loc: list[str | int]
    msg: str
    type: str


class HTTPValidationErrorSchema(TypedDict):
    """Every parameter that is wrong."""

    detail: list[ValidationErrorSchema]


class DetailSchema(TypedDict):
    """An error in one sentence."""

    detail: str


class InvalidImageRequest(SixfoldError):
    """The request is not valid."""

    status = _UNPROCESSABLE
    code = "invalid_input"

    def __init__(self, items: Sequence[ValidationErrorSchema]) -> None:
        self.items = list(items)
        super().__init__()


def item(part: Part, problem: Problem) -> ValidationErrorSchema:
    """One entry of resource C1."""
    loc: list[str | int] = [part, problem.input] if problem.input else [part]
    return {"loc": loc, "msg": problem.message, "type": problem.kind}


def of_inputs(part: Part, error: InvalidInput) -> InvalidImageRequest:
    """What the inputs' check found, as found in a part of the request."""
    return InvalidImageRequest([item(part, problem) for problem in error.problems])


def answer(error: SixfoldError, _request_id: str) -> Response:
    """An error as Area C answers it."""
    if isinstance(error, InvalidInput):
        error = of_inputs("body", error)
    body: HTTPValidationErrorSchema | DetailSchema = (
        {"detail": error.items} if isinstance(error, InvalidImageRequest) else {"detail": error.message}
    )
    return responses.json(body, error.status, responses.error_headers(error))
