"""The OpenAPI document of the Replicate-compatible API."""

from __future__ import annotations

from sixfold.api.hosting.replicate import schemas
from sixfold.web import openapi
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec, Shape

_BASE = schemas.BASE
_STATUSES = (400, 404, 422, 503)
_PREFER: Node = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait`, or `wait=N` with 1 to 60 seconds",
    "schema": {"type": "string", "pattern": "^wait(=[0-9]{1,2})?$"},
}


def document() -> OpenApiDocument:
    operations = {**_models(), **_runs(), **_others()}
    return OpenApiDocument(
        "Sixfold Replicate-compatible API",
        "1.0.0",
        "The same models and predictions for Replicate clients.",
        {name.replace(" ", f" {_BASE}", 1): spec for name, spec in operations.items()},
        schemas.ReplicateErrorSchema,
    )


def _models() -> dict[str, OperationSpec]:
    return {
        "GET /models": _get(
            "List models",
            "Every model",
            _page("Models", schemas.ReplicateModelSchema),
            openapi.limit(200, 100),
            openapi.text("cursor", 300),
        ),
        "GET /models/{owner}/{name}": _get("One model", "The model", schemas.ReplicateModelSchema),
        "GET /models/{owner}/{name}/versions": _get(
            "Its versions", "Its versions", _page("Versions", schemas.ReplicateVersionSchema)
        ),
        "GET /models/{owner}/{name}/versions/{version}": _get(
            "One version", "The version", schemas.ReplicateVersionSchema
        ),
        "POST /models/{owner}/{name}/predictions": _create(schemas.ModelRunSchema),
        "QUERY /models": OperationSpec(
            "Search models",
            {200: openapi.response("Models", _page("FoundModels", schemas.ReplicateModelSchema))},
            _STATUSES,
            bodies={"text/plain": {"type": "string"}},
        ),
        "POST /models": OperationSpec("Always 400: models are added otherwise", {}, _STATUSES),
        "GET /search": _get(
            "Search models and collections",
            "The matches",
            {"type": "object", "required": ["query", "models", "collections", "pages"]},
            openapi.text("query", 200),
            openapi.limit(50),
        ),
        "POST /models/{owner}/{name}/versions/{version}/trainings": OperationSpec(
            "Always 400: POST /api/training trains", {}, _STATUSES
        ),
        "GET /collections": _get(
            "List collections",
            "A collection for each task",
            _page("Collections", schemas.ReplicateCollectionSchema),
        ),
        "GET /collections/{slug}": _get(
            "One collection", "The collection", schemas.ReplicateCollectionSchema
        ),
    }


def _runs() -> dict[str, OperationSpec]:
    prediction_response = openapi.response("The prediction", schemas.ReplicatePredictionSchema)
    return {
        "GET /predictions": _get(
            "List predictions",
            "Newest first",
            _page("Predictions", schemas.ReplicatePredictionSchema),
            openapi.text("cursor", 100),
        ),
        "POST /predictions": _create(schemas.VersionRunSchema),
        "GET /predictions/{prediction_id}": OperationSpec(
            "One prediction", {200: prediction_response}, _STATUSES
        ),
        "POST /predictions/{prediction_id}/cancel": OperationSpec(
            "Cancel a prediction", {200: prediction_response}, _STATUSES
        ),
        "GET /predictions/{prediction_id}/stream": OperationSpec(
            "Stream the output of a text model",
            {200: openapi.response("Events", {"type": "string"}, "text/event-stream")},
            (*_STATUSES, 429),
        ),
        "GET /trainings": _get(
            "List trainings",
            "Newest first",
            _page("Trainings", schemas.ReplicatePredictionSchema),
            openapi.text("cursor", 100),
        ),
        "GET /trainings/{prediction_id}": OperationSpec(
            "One training", {200: prediction_response}, _STATUSES
        ),
        "POST /trainings/{prediction_id}/cancel": OperationSpec(
            "Cancel a training", {200: prediction_response}, _STATUSES
        ),
    }


def _others() -> dict[str, OperationSpec]:
    upload: Node = {"type": "object", "properties": {"content": openapi.FILE}}
    return {
        "POST /files": OperationSpec(
            "Upload a file",
            {201: openapi.response("The file", schemas.ReplicateFileSchema)},
            _STATUSES,
            parameters=(openapi.IDEMPOTENCY,),
            bodies={"multipart/form-data": upload},
        ),
        "GET /files": _get(
            "List files", "Newest first", schemas.ReplicateFilesSchema, openapi.text("cursor", 100)
        ),
        "GET /files/{file_id}": _get("One file", "The file", schemas.ReplicateFileSchema),
        "DELETE /files/{file_id}": OperationSpec(
            "Delete a file", {204: {"description": "Deleted"}}, _STATUSES
        ),
        "GET /deployments": _get("List deployments", "None", {"type": "object", "required": ["results"]}),
        "POST /deployments": OperationSpec("Always 400: there are no deployments", {}, _STATUSES),
        "GET /deployments/{owner}/{name}": OperationSpec(
            "Always 404: there are no deployments", {}, _STATUSES
        ),
        "GET /webhooks/default/secret": _get(
            "The secret of webhooks", "The secret", schemas.WebhookSecretSchema
        ),
        "GET /account": _get("The account", "The account of the key", {"type": "object"}),
        "GET /hardware": _get("List hardware", "Available hardware", list[schemas.SkuSchema]),
    }


def _page(name: str, row: Shape) -> Shape:
    return openapi.shape(name, next=str | None, previous=str | None, results=list[row])


def _get(summary: str, text: str, schema: Shape, *parameters: Node) -> OperationSpec:
    return OperationSpec(summary, {200: openapi.response(text, schema)}, _STATUSES, parameters=parameters)


def _create(body: Shape) -> OperationSpec:
    created = openapi.response("The new prediction", schemas.ReplicatePredictionSchema)
    statuses = (*_STATUSES, 402, 429)
    return OperationSpec("Run a model", {201: created}, statuses, body, (_PREFER, openapi.IDEMPOTENCY))
