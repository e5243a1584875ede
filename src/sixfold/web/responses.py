"""Answers in JSON, and the coded error that most faces speak."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from starlette.responses import Response

from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.predictions.models import Prediction
from sixfold.errors import InvalidInput, SixfoldError, Unauthenticated

Url = Annotated[str, msgspec.Meta(extra_json_schema={"format": "uri"})]
_encode = msgspec.json.Encoder().encode


def encode(content: Any) -> bytes:
    """`content` as JSON."""
    return _encode(content)


def json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`content` as a JSON answer."""
    return Response(_encode(content), status, headers, "application/json")


async def encode_each(rows: Iterable[Any]) -> list[msgspec.Raw]:
    """Rows of a list as JSON, one by one, so that a long list does not hold up the event loop."""
    encoded: list[msgspec.Raw] = []
    for row in rows:
        encoded.append(msgspec.Raw(_encode(row)))
        await asyncio.sleep(0)
    return encoded


def result_headers(prediction: Prediction) -> dict[str, str]:
    """Headers that name the engine of a result, and its quality."""
    engine = engine_name(prediction.engine)
    return {"X-Sixfold-Engine": engine, "X-Sixfold-Quality": prediction.quality}


def error_headers(error: SixfoldError) -> dict[str, str]:
    """What goes with an error in every dialect: when to ask again, how to identify oneself."""
    if error.retry_after:
        return {"Retry-After": str(error.retry_after)}
    if error.permanent:  # the official clients of OpenAI and Anthropic repeat any other 503
        return {"x-should-retry": "false"}
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": "Bearer"}
    return {}


class InputProblemSchema(TypedDict):
    """What is wrong with one input."""

    input: str
    message: str


class ErrorSchema(TypedDict):
    """An error with its code; `errors` has every input that was refused."""

    error: str
    code: str
    status: int
    request_id: str
    errors: NotRequired[list[InputProblemSchema]]


def coded(error: SixfoldError, request_id: str) -> Response:
    """`{"error","code","status","request_id"}`, with `errors` for every input that was refused."""
    body: ErrorSchema = {
        "error": error.message,
        "code": error.code,
        "status": error.status,
        "request_id": request_id,
    }
    if isinstance(error, InvalidInput):
        body["errors"] = [{"input": problem.input, "message": problem.message} for problem in error.problems]
    return json(body, error.status, error_headers(error))


class LongResponse(Response):
    """A response that may take as long as its source does; it ends with the credential that asked for it."""
