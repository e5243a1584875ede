"""Area E's OpenAPI document, as far as predictions go."""

from __future__ import annotations

from sixfold.areas.hosting import schemas
from sixfold.web import openapi, predictions
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_MAYBE_TEXT: Node = {"type": ["string", "null"]}
_MAYBE_NUMBER: Node = {"type": ["number", "null"]}
_STATUSES = ["queued", "starting", "running", "succeeded", "failed", "canceled", "expired"]
_STATION: Node = {
    "type": "object",
    "required": ["name", "at", "ms", "usd"],
    "properties": {"name": _TEXT, "at": _MAYBE_TEXT, "ms": _MAYBE_NUMBER, "usd": _MAYBE_TEXT},
}
_FIELDS: Node = {
    "id": _TEXT,
    "prediction_id": _TEXT,
    "model": _TEXT,
    "status": {"enum": _STATUSES},
    "input": {"type": "object"},
    "output": {},
    "output_kind": _TEXT,
    "error": _MAYBE_TEXT,
    "progress": {"type": "number", "minimum": 0, "maximum": 1},
    "queue_position": {"type": ["integer", "null"]},
    "eta_seconds": _MAYBE_NUMBER,
    "logs": _TEXT,
    "hardware": _MAYBE_TEXT,
    "engine": _TEXT,
    "quality": {"enum": ["full", "preview"]},
    "attempt": {"type": "integer"},
    "parent_id": _MAYBE_TEXT,
    "created_at": _TEXT,
    "started_at": _MAYBE_TEXT,
    "completed_at": _MAYBE_TEXT,
    "metrics": {"type": "object"},
    "cost": {"type": "string", "description": "USD as decimal text"},
    "credits_charged": {"type": "integer"},
    "receipt": {"type": "array", "items": _STATION, "minItems": 6, "maxItems": 6},
    "urls": {"type": "object", "required": ["get", "cancel", "events"]},
}
_SCHEMAS: dict[str, Node] = {
    "Prediction": {"type": "object", "required": list(_FIELDS), "properties": _FIELDS},
    "Error": openapi.CODED,
    "Page": {
        "type": "object",
        "required": ["predictions", "next_cursor"],
        "properties": {
            "predictions": {"type": "array", "items": openapi.ref("Prediction")},
            "next_cursor": _MAYBE_TEXT,
        },
    },
    "Run": {
        "type": "object",
        "required": ["model"],
        "properties": {
            "model": {"type": "string", "minLength": 1},
            "input": {"type": "object"},
            "wait": {"type": "number", "minimum": 0, "maximum": schemas.MAX_WAIT},
        },
    },
}


def document() -> Document:
    """Predictions."""
    one = openapi.answer("The prediction", openapi.ref("Prediction"))
    queued = openapi.answer("Not finished yet", openapi.ref("Prediction"))
    page = openapi.answer("Newest first", openapi.ref("Page"))
    stream = openapi.answer("Server-sent events", _TEXT, kind="text/event-stream")
    own = [openapi.in_path("prediction_id")]
    filters = [
        openapi.query("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
        openapi.query("cursor", {"type": "string", "maxLength": 100}),
        openapi.query("model", {"type": "string", "maxLength": 100}),
        openapi.query("status", {"enum": _STATUSES}),
    ]
    run = _operation("Run a model", {"200": one, "202": queued}, 400, 402, 409, 429, 503)
    run |= {"requestBody": openapi.json_body(openapi.ref("Run")), "parameters": [openapi.IDEMPOTENCY]}
    cancel = _operation("Cancel a prediction", {"200": one}, parameters=own)
    path = f"{predictions.PATH}/{{prediction_id}}"
    return Document(
        "Sixfold Container Hosting",
        "1.0.0",
        "Predictions: run, follow, cancel. Failed, canceled and expired work is never charged.",
        {
            "/api/containers/run": {"post": run},
            predictions.PATH: {"get": _operation("List predictions", {"200": page}, 400, parameters=filters)},
            path: {"get": _operation("One prediction", {"200": one}, parameters=own), "delete": cancel},
            f"{path}/cancel": {"post": cancel, "put": cancel},
            f"{path}/events": {
                "get": _operation("Follow a prediction", {"200": stream}, 400, parameters=own)
            },
        },
        _SCHEMAS,
    )


def _operation(
    summary: str, good: dict[str, Node], *statuses: int, parameters: list[Node] | None = None
) -> Node:
    return {
        "summary": summary,
        "security": [{openapi.BEARER: []}],
        "parameters": parameters or [],
        "responses": {**good, **openapi.failures(openapi.ref("Error"), 401, 403, 404, 503, *statuses)},
    }
