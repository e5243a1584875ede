"""Area A's errors: `{"error","status"}`, one sentence that names the parameter."""

from __future__ import annotations

from starlette.responses import Response

from sixfold.errors import EngineFailed, InvalidInput, Problem, SixfoldError
from sixfold.web import answers

GENERATION_FAILED = "Image generation failed. Please try again."
_SPOKEN = frozenset({("prompt", "missing"), ("prompt", "string_too_long")})


class Ra1Failed(EngineFailed):
    """Image generation failed. Please try again."""


def sentence(problem: Problem) -> str:
    """What Area A says of one refused input."""
    if (problem.input, problem.kind) in _SPOKEN:
        return problem.message[0].upper() + problem.message[1:]
    return f"Invalid {problem.input}"


def answer(error: SixfoldError, _request_id: str) -> Response:
    """An error as Area A answers it."""
    headers = answers.error_headers(error)
    if isinstance(error, Ra1Failed):
        return answers.json({"success": False, "error": error.message}, error.status, headers)
    text = sentence(error.problems[0]) if isinstance(error, InvalidInput) else error.message
    return answers.json({"error": text, "status": error.status}, error.status, headers)
