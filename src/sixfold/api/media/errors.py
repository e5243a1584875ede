"""Errors of the Media API: `{"error","status"}` with one message that names the parameter."""

from __future__ import annotations

from typing import Literal, TypedDict

from starlette.responses import Response

from sixfold.core.catalog import timeline
from sixfold.errors import EngineFailed, InvalidInput, Problem, SixfoldError
from sixfold.web import responses

_CAPITALIZED = frozenset({("prompt", "missing"), ("prompt", "string_too_long")})
# The cause is reported for files from other servers, and for those that only a decoder can check.
UNUSABLE = "unusable"
# The prefix of the input names of a timeline's clips.
_CLIPS = "tracks["
_EXPLAINED = frozenset({UNUSABLE, "fetch_refused", "fetch_failed", "too_large", "bad_request"})


class MediaErrorSchema(TypedDict):
    """An error of the Media API."""

    error: str
    status: int


class Ra1FailureSchema(TypedDict):
    """A failure of `ra1`."""

    success: Literal[False]
    error: str


class Ra1Failed(EngineFailed):
    """Image generation failed. Please try again."""


class VideoFailed(EngineFailed):
    """Video generation service failed"""

    status = 500


def sentence(problem: Problem) -> str:
    """Return the message for an invalid input."""
    if (problem.input, problem.kind) in _CAPITALIZED:
        return problem.message[0].upper() + problem.message[1:]
    if problem.kind in _EXPLAINED:
        return f"Invalid {problem.message}"
    return f"Invalid {problem.input}: it {problem.message.removeprefix(f'{problem.input} ')}"


def _sentence(error: InvalidInput) -> str:
    """Return the first message, or the messages of all clips of a timeline."""
    first = error.problems[0]
    if first.kind == timeline.KIND or first.input.startswith(_CLIPS):
        return f"Invalid project: {'; '.join(problem.message for problem in error.problems)}"
    return sentence(first)


def render(error: SixfoldError, _request_id: str) -> Response:
    """Return an error in the format of the Media API."""
    headers = responses.error_headers(error)
    if isinstance(error, Ra1Failed):
        failure: Ra1FailureSchema = {"success": False, "error": error.message}
        return responses.json(failure, error.status, headers)
    text = _sentence(error) if isinstance(error, InvalidInput) else error.message
    body: MediaErrorSchema = {"error": text, "status": error.status}
    return responses.json(body, error.status, headers)
