"""Exceptions that the client raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import httpx

from sixfold.client.types.hosting import Prediction


class ClientError(Exception):
    """The base class of all exceptions of the client."""


class ConnectionFailed(ClientError):
    """Raised when the server cannot be reached, or closes the connection during a response."""


class WaitExpired(ClientError):
    """Raised when a prediction has not ended before the timeout; it continues on the server."""

    def __init__(self, prediction_id: str, seconds: float) -> None:
        super().__init__(
            f"{prediction_id} has not ended within {seconds:g} seconds; it continues on the server"
        )
        self.prediction_id = prediction_id


class PredictionFailed(ClientError):
    """Raised when a prediction ended without success; nothing was charged."""

    def __init__(self, prediction: Prediction) -> None:
        reason = prediction["error"] or prediction["status"]
        super().__init__(f"{prediction['id']} of {prediction['model']}: {reason}")
        self.prediction = prediction


class ApiError(ClientError):
    """Raised for a response with an error status.

    `code` is the machine-readable reason; `problems` maps the names of invalid inputs to messages.
    `retry_after` is in seconds.
    """

    def __init__(self, response: httpx.Response) -> None:
        document = _document(response)
        text = document.get("error") or document.get("message") or document.get("detail")
        self.status = response.status_code
        self.message = text if isinstance(text, str) and text else response.reason_phrase
        self.code = str(document.get("code") or "")
        self.request_id = response.headers.get("x-request-id", "")
        self.retry_after = retry_after(response)
        rows = document.get("errors")
        self.problems = {
            str(row.get("input")): str(row.get("message"))
            for row in cast("list[dict[str, Any]]", rows if isinstance(rows, list) else [])
            if isinstance(row, dict)
        }
        super().__init__(f"{self.status}: {self.message}")


def retry_after(response: httpx.Response) -> float | None:
    """Return the number of seconds in `Retry-After`, or None."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _document(response: httpx.Response) -> Mapping[str, Any]:
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}
