"""The OpenAPI document of the Replicate-compatible face."""

from __future__ import annotations

from sixfold.areas.hosting import replicate_schemas as schemas
from sixfold.web import openapi
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_MAYBE_TEXT: Node = {"type": ["string", "null"]}
_STATUSES = ["starting", "processing", "succeeded", "failed", "canceled"]
_ERROR: Node = {"detail": _TEXT, "status": {"type": "integer"}, "title": _TEXT}
_VERSION: Node = {
    "id": _TEXT,
    "created_at": _TEXT,
    "cog_version": _TEXT,
    "openapi_schema": {"type": "object"},
}
_MODEL: Node = {
    "url": _TEXT,
    "owner": {"const": schemas.OWNER},
    "name": _TEXT,
    "description": _TEXT,
    "visibility": {"enum": ["public", "private"]},
    "latest_version": openapi.ref("Version"),
}
_PREDICTION: Node = {
    "id": _TEXT,
    "model": _TEXT,
    "version": _TEXT,
    "input": {"type": "object"},
    "logs": _TEXT,
    "output": {},
    "error": _MAYBE_TEXT,
    "status": {"enum": _STATUSES},
    "created_at": _TEXT,
    "started_at": _MAYBE_TEXT,
    "completed_at": _MAYBE_TEXT,
    "metrics": {"type": "object"},
    "urls": {"type": "object", "required": ["get", "cancel"]},
}
_FILE: Node = {
    "id": _TEXT,
    "name": _TEXT,
    "content_type": _TEXT,
    "size": {"type": "integer"},
    "urls": {"type": "object", "required": ["get"]},
}
_ORDER: Node = {
    "input": {"type": "object"},
    "webhook": {"type": ["string", "null"]},
    "webhook_events_filter": {
        "type": "array",
        "items": {"enum": ["start", "output", "logs", "completed"]},
    },
}
_PREFER: Node = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait`, or `wait=N` with 1 to 60 seconds",
    "schema": {"type": "string", "pattern": "^wait(=[0-9]{1,2})?$"},
}


def _whole(properties: Node) -> Node:
    return {"type": "object", "required": list(properties), "properties": properties}


def _page(name: str) -> Node:
    rows: Node = {"type": "array", "items": openapi.ref(name)}
    return _whole({"next": _MAYBE_TEXT, "previous": _MAYBE_TEXT, "results": rows})


def document() -> Document:
    """Models, predictions, files."""
    shown: dict[str, Node] = {
        "Error": {"type": "object", "required": list(_ERROR), "properties": _ERROR},
        "Version": _whole(_VERSION),
        "Model": _whole(_MODEL),
        "Prediction": _whole(_PREDICTION),
        "File": _whole(_FILE),
        "Order": {"type": "object", "properties": _ORDER},
        "VersionOrder": {
            "type": "object",
            "required": ["version"],
            "properties": {"version": _TEXT, **_ORDER},
        },
    }
    return Document(
        "Sixfold in Replicate's words",
        "1.0.0",
        "The same models and predictions for clients of Replicate.",
        {**_models(), **_predictions(), **_rest()},
        shown,
    )


def _models() -> dict[str, Node]:
    own = [openapi.in_path("owner"), openapi.in_path("name")]
    model = openapi.answer("The model", openapi.ref("Model"))
    version = openapi.answer("The version", openapi.ref("Version"))
    base = f"{schemas.BASE}/models"
    one = f"{base}/{{owner}}/{{name}}"
    return {
        base: {"get": _operation("List models", {"200": openapi.answer("Every model", _page("Model"))}, [])},
        one: {"get": _operation("One model", {"200": model}, own)},
        f"{one}/versions": {
            "get": _operation("Its versions", {"200": openapi.answer("Its versions", _page("Version"))}, own)
        },
        f"{one}/versions/{{version}}": {
            "get": _operation("One version", {"200": version}, [*own, openapi.in_path("version")])
        },
        f"{one}/predictions": {"post": _create("Order", own)},
    }


def _predictions() -> dict[str, Node]:
    own = [openapi.in_path("prediction_id")]
    one = openapi.answer("The prediction", openapi.ref("Prediction"))
    page = openapi.answer("Newest first", _page("Prediction"))
    cursor = openapi.query("cursor", {"type": "string", "maxLength": 100})
    base = f"{schemas.BASE}/predictions"
    return {
        base: {
            "get": _operation("List predictions", {"200": page}, [cursor]),
            "post": _create("VersionOrder", []),
        },
        f"{base}/{{prediction_id}}": {"get": _operation("One prediction", {"200": one}, own)},
        f"{base}/{{prediction_id}}/cancel": {"post": _operation("Cancel a prediction", {"200": one}, own)},
    }


def _rest() -> dict[str, Node]:
    kept = openapi.answer("The file", openapi.ref("File"))
    account = openapi.answer("Whose key this is", {"type": "object"})
    kinds: Node = {"type": "array", "items": _whole({"sku": _TEXT, "name": _TEXT})}
    content: Node = {"type": "object", "properties": {"content": {"type": "string", "format": "binary"}}}
    upload = _operation("Upload a file", {"201": kept}, [])
    upload["requestBody"] = {"content": {"multipart/form-data": {"schema": content}}}
    return {
        f"{schemas.BASE}/files": {"post": upload},
        f"{schemas.BASE}/account": {"get": _operation("The account", {"200": account}, [])},
        f"{schemas.BASE}/hardware": {
            "get": _operation("List hardware", {"200": openapi.answer("What can be hired", kinds)}, [])
        },
    }


def _create(schema: str, parameters: list[Node]) -> Node:
    made = openapi.answer("Made", openapi.ref("Prediction"))
    operation = _operation(
        "Run a model", {"201": made}, [*parameters, _PREFER, openapi.IDEMPOTENCY], 402, 409, 422, 429
    )
    return operation | {"requestBody": openapi.json_body(openapi.ref(schema))}


def _operation(summary: str, good: dict[str, Node], parameters: list[Node], *statuses: int) -> Node:
    bad = openapi.failures(openapi.ref("Error"), 400, 401, 403, 404, 503, *statuses)
    return {
        "summary": summary,
        "security": [{openapi.BEARER: []}],
        "parameters": parameters,
        "responses": {**good, **bad},
    }
