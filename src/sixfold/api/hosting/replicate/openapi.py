"""The OpenAPI document of the Replicate-compatible API."""

from __future__ import annotations

from sixfold.api.hosting.replicate import schemas
from sixfold.web import openapi
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec, Shape

_BASE = schemas.BASE
_STATUSES = (400, 404, 503)
_PREFER: Node = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait`, or `wait=N` with 1 to 60 seconds",
    "schema": {"type": "string", "pattern": "^wait(=[0-9]{1,2})?$"},
}


def document() -> OpenApiDocument:
    one = openapi.response("The prediction", schemas.ReplicatePredictionSchema)
    upload: Node = {"type": "object", "properties": {"content": openapi.FILE}}
    operations = {
        "GET /models": _get("List models", "Every model", _page("Models", schemas.ReplicateModelSchema)),
        "GET /models/{owner}/{name}": _get("One model", "The model", schemas.ReplicateModelSchema),
        "GET /models/{owner}/{name}/versions": _get(
            "Its versions", "Its versions", _page("Versions", schemas.ReplicateVersionSchema)
        ),
        "GET /models/{owner}/{name}/versions/{version}": _get(
            "One version", "The version", schemas.ReplicateVersionSchema
        ),
        "POST /models/{owner}/{name}/predictions": _create(schemas.ModelRunSchema),
        "GET /predictions": _get(
            "List predictions",
            "Newest first",
            _page("Predictions", schemas.ReplicatePredictionSchema),
            openapi.text("cursor", 100),
        ),
        "POST /predictions": _create(schemas.VersionRunSchema),
        "GET /predictions/{prediction_id}": OperationSpec("One prediction", {200: one}, _STATUSES),
        "POST /predictions/{prediction_id}/cancel": OperationSpec(
            "Cancel a prediction", {200: one}, _STATUSES
        ),
        "POST /files": OperationSpec(
            "Upload a file",
            {201: openapi.response("The file", schemas.ReplicateFileSchema)},
            _STATUSES,
            bodies={"multipart/form-data": upload},
        ),
        "GET /account": _get("The account", "The account of the key", {"type": "object"}),
        "GET /hardware": _get("List hardware", "Available hardware", list[schemas.SkuSchema]),
    }
    return OpenApiDocument(
        "Sixfold Replicate-compatible API",
        "1.0.0",
        "The same models and predictions for Replicate clients.",
        {name.replace(" ", f" {_BASE}", 1): spec for name, spec in operations.items()},
        schemas.ReplicateErrorSchema,
    )


def _page(name: str, row: Shape) -> Shape:
    return openapi.shape(name, next=str | None, previous=str | None, results=list[row])


def _get(summary: str, text: str, schema: Shape, *parameters: Node) -> OperationSpec:
    return OperationSpec(summary, {200: openapi.response(text, schema)}, _STATUSES, parameters=parameters)


def _create(body: Shape) -> OperationSpec:
    created = openapi.response("The new prediction", schemas.ReplicatePredictionSchema)
    statuses = (*_STATUSES, 402, 409, 422, 429)
    return OperationSpec("Run a model", {201: created}, statuses, body, (_PREFER, openapi.IDEMPOTENCY))
