"""The OpenAPI document of hosting: templates, runs and predictions."""

from __future__ import annotations

from typing import get_args

from sixfold.api.hosting import schemas
from sixfold.api.hosting.models_list import ConfigurationSchema, HardwareSchema, TemplateSchema
from sixfold.api.hosting.sessions import schemas as sessions_schemas
from sixfold.web import openapi, predictions
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec
from sixfold.web.predictions import PredictionSchema

_TEXT: Node = {"type": "string"}
_MAYBE: Node = {"type": ["string", "null"]}
_IMPORT: Node = {
    "type": "object",
    "anyOf": [{"required": ["space"]}, {"required": ["folder"]}],
    "properties": {
        "space": {"type": "string", "description": "owner/name, or a URL that ends in it"},
        "folder": {"type": "string", "description": "a folder that `sixfold space import` created"},
        "run": {"enum": ["remote", "container", "process"]},
        "hardware": _MAYBE,
    },
}
_IMAGE: Node = {
    "type": "object",
    "required": ["image"],
    "properties": {"image": {"type": "string", "minLength": 1}, "hardware": _MAYBE, "name": _TEXT},
}
_ONCE = (openapi.IDEMPOTENCY,)


def document() -> OpenApiDocument:
    return OpenApiDocument(
        "Sixfold Container Hosting",
        "1.0.0",
        "Templates on hardware by the hour. Failed, canceled and expired work is never charged.",
        {**_templates(), **_runs(), **_predictions(), **_sessions()},
    )


def _templates() -> dict[str, OperationSpec]:
    created = {201: openapi.response("The new template", TemplateSchema)}
    public = {
        "config": ("The whole configuration", ConfigurationSchema),
        "templates": ("List templates", openapi.shape("Templates", templates=list[TemplateSchema])),
        "templates/{name}": ("One template", TemplateSchema),
        "hardware": ("List hardware", openapi.shape("HardwareList", hardware=list[HardwareSchema])),
    }
    rows = {
        f"GET /api/containers/{path}": OperationSpec(
            summary, {200: openapi.response(summary, schema)}, (401, 403, 404, 503)
        )
        for path, (summary, schema) in public.items()
    }
    return {
        **rows,
        "DELETE /api/containers/templates/{name}": OperationSpec(
            "Remove a model of the account", {204: {"description": "Removed"}}, (403, 404, 409)
        ),
        "POST /api/containers/templates": OperationSpec(
            "Add a template by its image", created, (400, 404, 409, 502, 503), _IMAGE, _ONCE
        ),
        "POST /api/containers/spaces/import": OperationSpec(
            "Import a space", created, (400, 404, 409, 502, 503), _IMPORT, _ONCE
        ),
    }


def _runs() -> dict[str, OperationSpec]:
    result = openapi.response("The prediction", PredictionSchema)
    queued = openapi.response("Not finished yet", PredictionSchema)
    joined = openapi.response("In the queue", schemas.QueueEntrySchema)
    quoted = openapi.response("The price", schemas.QuoteSchema)
    charged = (400, 402, 404, 409, 429, 503)
    return {
        f"POST {schemas.RUN}": OperationSpec(
            "Run a model", {200: result, 202: queued}, charged, schemas.RunSchema, _ONCE
        ),
        f"POST {schemas.JOIN}": OperationSpec(
            "Join a model's queue", {202: joined}, charged, schemas.RunOptionsSchema, _ONCE
        ),
        "POST /api/containers/{model_id}/quote": OperationSpec(
            "Ask for a price", {200: quoted}, (400, 404, 503), schemas.RunOptionsSchema
        ),
    }


def _predictions() -> dict[str, OperationSpec]:
    prediction_response = {200: openapi.response("The prediction", PredictionSchema)}
    page = openapi.response("Newest first", openapi.page("Predictions", predictions=PredictionSchema))
    stream = openapi.response("Server-sent events", _TEXT, "text/event-stream")
    filters = (
        openapi.limit(200, 50),
        openapi.text("cursor", 100),
        openapi.text("model", 100),
        openapi.query("status", {"enum": [*get_args(predictions.Status)]}),
    )
    cancel = OperationSpec("Cancel a prediction", prediction_response, (404, 503))
    path = f"{predictions.PATH}/{{prediction_id}}"
    return {
        f"GET {predictions.PATH}": OperationSpec(
            "List predictions", {200: page}, (400, 404, 503), parameters=filters
        ),
        f"GET {path}": OperationSpec("One prediction", prediction_response, (404, 503)),
        f"DELETE {path}": cancel,
        f"POST {path}/cancel": cancel,
        f"PUT {path}/cancel": cancel,
        f"GET {path}/events": OperationSpec("Follow a prediction", {200: stream}, (400, 404, 503)),
    }


def _sessions() -> dict[str, OperationSpec]:
    statuses = (400, 402, 404, 409, 429, 503)
    session = openapi.response("The session, which is starting", sessions_schemas.OpenedSessionSchema)
    session_response = {200: openapi.response("The session", sessions_schemas.SessionSchema)}
    path = f"{sessions_schemas.PATH}/{{session_id}}"
    return {
        "POST /api/containers/{model_id}/sessions": OperationSpec(
            "Create a session", {201: session}, statuses, sessions_schemas.SessionBodySchema, _ONCE
        ),
        f"GET {path}": OperationSpec("One session", session_response, statuses),
        f"DELETE {path}": OperationSpec("Close a session", session_response, statuses),
    }
