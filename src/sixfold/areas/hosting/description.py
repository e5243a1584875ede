"""Area E's OpenAPI document: the catalogue, predictions, and what they are ordered with."""

from __future__ import annotations

from sixfold.areas.hosting import catalogue, schemas, sessions_description
from sixfold.core.work import mounts
from sixfold.web import openapi, predictions
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_MAYBE_TEXT: Node = {"type": ["string", "null"]}
_MAYBE_NUMBER: Node = {"type": ["number", "null"]}
_STATUSES = ["queued", "starting", "running", "succeeded", "failed", "canceled", "expired"]
_STATION: Node = {
    "type": "object",
    "required": ["name", "at", "ms", "usd"],
    "properties": {
        "name": _TEXT,
        "at": _MAYBE_TEXT,
        "ms": _MAYBE_NUMBER,
        "usd": _MAYBE_TEXT,
        "charge": openapi.CHARGE,
    },
}
_OTHER_OUTPUTS: Node = {
    "type": "object",
    "description": "The other outputs by name, where there are several",
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
    "list_price": {"type": "string", "description": "USD as decimal text, where less is charged"},
    "receipt": {"type": "array", "items": _STATION, "minItems": 6, "maxItems": 6},
    "urls": {"type": "object", "required": ["get", "cancel", "events"]},
}
_ORDER: Node = {
    "input": {"type": "object"},
    "hardware": {"type": ["string", "null"], "description": "other hardware than the template's own"},
    "variant": {"type": ["string", "null"], "description": "one of the template's `modelVariants`"},
    "webhook": {"type": ["string", "null"], "description": "a URL that is told of the start and the end"},
    mounts.FIELD: {
        "type": ["object", "null"],
        "additionalProperties": {"type": "string"},
        "description": f"file names under {mounts.PATH}, each with the id of an upload or a URL",
    },
}
_HARDWARE: Node = {
    "id": _TEXT,
    "label": _TEXT,
    "gpu": _TEXT,
    "cc": _TEXT,
    "vramGb": {"type": "integer"},
    "ramGb": {"type": "integer"},
    "priceHourText": {"type": "string", "examples": ["$0.35"]},
}
_INPUT: Node = {
    "name": _TEXT,
    "type": {"enum": ["string", "integer", "number", "boolean", "image", "audio", "video", "file"]},
    "description": _TEXT,
    "default": {},
    "required": {"type": "boolean"},
    "min": _MAYBE_NUMBER,
    "max": _MAYBE_NUMBER,
    "choices": {"type": "array", "items": _TEXT},
    "order": {"type": "integer"},
}
_SCHEMA: Node = {
    "inputs": {"type": "array", "items": openapi.ref("Input")},
    "outputKind": {"enum": list(catalogue.OUTPUT_KINDS)},
    "session": {"type": "boolean"},
}
_TEMPLATE: Node = {
    "name": _TEXT,
    "image": _TEXT,
    "hardware": _TEXT,
    "description": _TEXT,
    "category": _MAYBE_TEXT,
    "repository": _TEXT,
    "upstream": _MAYBE_TEXT,
    "license": _TEXT,
    "verified": {"type": "boolean"},
    "tags": {"type": "array", "items": _TEXT},
    "schema": {"type": "object", "required": list(_SCHEMA), "properties": _SCHEMA},
    "idleSeconds": _MAYBE_NUMBER,
    "minVramGb": _MAYBE_NUMBER,
    "diskGb": _MAYBE_NUMBER,
    "serverless": {"type": "boolean"},
    "serverlessDockerArgs": _MAYBE_TEXT,
    "priceHourText": _TEXT,
}
_JOINED: Node = {
    "prediction_id": _TEXT,
    "status": {"enum": _STATUSES},
    "queue_position": {"type": "integer", "minimum": 0},
    "status_url": _TEXT,
    "cancel_url": _TEXT,
    "events_url": _TEXT,
}
_QUOTE: Node = {
    "price_usd": {"type": "string", "description": "What a usual run costs, as decimal text"},
    "list_price": {"type": "string", "description": "USD as decimal text, where less is charged"},
    "hold_usd": {"type": "string", "description": "What is held until it ends"},
    "eta_seconds": {"type": "number", "minimum": 0},
    "cold": {"type": "boolean", "description": "Whether a worker has to start first"},
}


_APIS = ("queueApi", "sessionsApi", "spacesApi", "artifactMounts", "workflowBridge")
_FREE: Node = {"security": []}


def _whole(properties: Node) -> Node:
    """An object that has all of its properties."""
    return {"type": "object", "required": openapi.always(properties), "properties": properties}


def _list_of(name: str, schema: str) -> Node:
    return _whole({name: {"type": "array", "items": openapi.ref(schema)}})


_SCHEMAS: dict[str, Node] = {
    "Hardware": _whole(_HARDWARE),
    "Input": _whole(_INPUT),
    "Template": _whole(_TEMPLATE),
    "Joined": _whole(_JOINED),
    "Quote": _whole(_QUOTE),
    "Order": {"type": "object", "properties": _ORDER},
    "Prediction": {
        "type": "object",
        "required": openapi.always(_FIELDS),
        "properties": {**_FIELDS, "outputs": _OTHER_OUTPUTS},
    },
    "Import": {
        "type": "object",
        "anyOf": [{"required": ["space"]}, {"required": ["folder"]}],
        "properties": {
            "space": {"type": "string", "description": "owner/name, or a URL that ends in it"},
            "folder": {"type": "string", "description": "one that `sixfold space import` kept"},
            "run": {"enum": ["remote", "container", "process"]},
            "hardware": _MAYBE_TEXT,
        },
    },
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
            **_ORDER,
            "wait": {"type": "number", "minimum": 0, "maximum": schemas.MAX_WAIT},
        },
    },
}


def document() -> Document:
    """The whole of it."""
    return Document(
        "Sixfold Container Hosting",
        "1.0.0",
        "Templates on hardware by the hour. Failed, canceled and expired work is never charged.",
        {**_open_paths(), **_order_paths(), **_prediction_paths(), **sessions_description.paths()},
        _SCHEMAS | sessions_description.SCHEMAS,
    )


def _open_paths() -> dict[str, Node]:
    """What needs no key."""
    config = _whole(
        {
            "success": {"const": True},
            "defaultHardware": _TEXT,
            "defaultIdleSecs": {"type": "number"},
            "outputKinds": {"type": "array", "items": _TEXT},
            "hardware": {"type": "array", "items": openapi.ref("Hardware")},
            "templates": {"type": "array", "items": openapi.ref("Template")},
            **{key: {"type": "object"} for key in _APIS},
        }
    )
    shown: dict[str, tuple[str, Node, list[Node]]] = {
        "/api/containers/config": ("The whole configuration", config, []),
        "/api/containers/templates": ("List templates", _list_of("templates", "Template"), []),
        "/api/containers/templates/{name}": (
            "One template",
            openapi.ref("Template"),
            [openapi.in_path("name")],
        ),
        "/api/containers/hardware": ("List hardware", _list_of("hardware", "Hardware"), []),
    }
    return {
        path: {
            "get": {**_operation(summary, {"200": openapi.answer(summary, schema)}, parameters=own), **_FREE}
        }
        for path, (summary, schema, own) in shown.items()
    }


def _order_paths() -> dict[str, Node]:
    """Running, queueing, quoting."""
    one = openapi.answer("The prediction", openapi.ref("Prediction"))
    queued = openapi.answer("Not finished yet", openapi.ref("Prediction"))
    joined = openapi.answer("In the queue", openapi.ref("Joined"))
    quoted = openapi.answer("What it would cost", openapi.ref("Quote"))
    model = openapi.in_path("model_id")
    run = _operation("Run a model", {"200": one, "202": queued}, 400, 402, 409, 429)
    join = _operation("Join a model's queue", {"202": joined}, 400, 402, 409, 429)
    quote = _operation("Ask for a price", {"200": quoted}, 400)
    order = openapi.json_body(openapi.ref("Order"))
    imported = openapi.answer("What it became", openapi.ref("Template"))
    importing = _operation("Import a space", {"201": imported}, 400, 409, 502)
    importing |= {
        "requestBody": openapi.json_body(openapi.ref("Import")),
        "parameters": [openapi.IDEMPOTENCY],
    }
    run |= {"requestBody": openapi.json_body(openapi.ref("Run")), "parameters": [openapi.IDEMPOTENCY]}
    join |= {"requestBody": order, "parameters": [model, openapi.IDEMPOTENCY]}
    quote |= {"requestBody": order, "parameters": [model]}
    return {
        schemas.RUN: {"post": run},
        schemas.JOIN: {"post": join},
        "/api/containers/{model_id}/quote": {"post": quote},
        "/api/containers/spaces/import": {"post": importing},
    }


def _prediction_paths() -> dict[str, Node]:
    """Listing, following, canceling."""
    one = openapi.answer("The prediction", openapi.ref("Prediction"))
    page = openapi.answer("Newest first", openapi.ref("Page"))
    stream = openapi.answer("Server-sent events", _TEXT, kind="text/event-stream")
    own = [openapi.in_path("prediction_id")]
    filters = [
        openapi.query("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
        openapi.query("cursor", {"type": "string", "maxLength": 100}),
        openapi.query("model", {"type": "string", "maxLength": 100}),
        openapi.query("status", {"enum": _STATUSES}),
    ]
    cancel = _operation("Cancel a prediction", {"200": one}, parameters=own)
    path = f"{predictions.PATH}/{{prediction_id}}"
    return {
        predictions.PATH: {"get": _operation("List predictions", {"200": page}, 400, parameters=filters)},
        path: {"get": _operation("One prediction", {"200": one}, parameters=own), "delete": cancel},
        f"{path}/cancel": {"post": cancel, "put": cancel},
        f"{path}/events": {"get": _operation("Follow a prediction", {"200": stream}, 400, parameters=own)},
    }


def _operation(
    summary: str, good: dict[str, Node], *statuses: int, parameters: list[Node] | None = None
) -> Node:
    return {
        "summary": summary,
        "security": [{openapi.BEARER: []}],
        "parameters": parameters or [],
        "responses": {**good, **openapi.failures(openapi.ref("Error"), 401, 403, 404, 503, *statuses)},
    }
