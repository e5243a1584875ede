"""The OpenAPI document of fal's API."""

from __future__ import annotations

from sixfold.api.hosting.fal import schemas
from sixfold.web import openapi
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec

_STATUSES = (400, 404, 409, 422, 503)
_CHARGED = (*_STATUSES, 402, 429, 502)
_BODY: Node = {"type": "object", "description": "The inputs of the model"}
_LOGS = openapi.query("logs", {"type": "string"})


def document() -> OpenApiDocument:
    output = openapi.response("The output", {"type": "object"})
    status = openapi.response("The state", schemas.FalStatusSchema)
    request_path = f"{schemas.QUEUE}/{{app}}/requests/{{request_id}}"
    stream = openapi.response("A state for each change", {"type": "string"}, "text/event-stream")
    canceled = openapi.response("Canceled, or ended before", schemas.FalCancelSchema)
    webhook = openapi.query("fal_webhook", {"type": "string", "format": "uri"})
    file: Node = {"application/octet-stream": openapi.CONTENT}
    operations = {
        f"POST {schemas.BASE}/{{app}}": OperationSpec(
            "Run a model", {200: output}, _CHARGED, _BODY, (openapi.IDEMPOTENCY,)
        ),
        f"POST {schemas.QUEUE}/{{app}}": OperationSpec(
            "Queue a request",
            {200: openapi.response("Queued", schemas.FalTicketSchema)},
            _CHARGED,
            _BODY,
            (webhook, openapi.IDEMPOTENCY),
        ),
        f"GET {request_path}": OperationSpec("The result", {200: output}, _CHARGED, operation_id="falResult"),
        f"GET {request_path}/response": OperationSpec("The result", {200: output}, _CHARGED),
        f"GET {request_path}/status": OperationSpec(
            "The state", {200: status, 202: status}, _STATUSES, parameters=(_LOGS,)
        ),
        f"GET {request_path}/status/stream": OperationSpec(
            "Follow the state", {200: stream}, (*_STATUSES, 429), parameters=(_LOGS,)
        ),
        f"PUT {request_path}/cancel": OperationSpec(
            "Cancel a request", {202: canceled, 400: canceled}, _STATUSES
        ),
        f"POST {schemas.BASE}/files/upload": OperationSpec(
            "Upload a file",
            {200: openapi.response("Stored", schemas.FalFileSchema)},
            _STATUSES,
            parameters=(openapi.IDEMPOTENCY,),
            bodies=file,
        ),
        f"POST {schemas.BASE}/storage/auth/token": OperationSpec(
            "The credential of uploads",
            {200: openapi.response("The credential", schemas.FalTokenSchema)},
            _STATUSES,
        ),
        f"POST {schemas.BASE}/storage/upload/initiate": OperationSpec(
            "Request a URL for an upload",
            {200: openapi.response("The URLs", schemas.FalUploadSchema)},
            _STATUSES,
            {"type": "object", "properties": {"content_type": str, "file_name": str}},
        ),
        f"PUT {schemas.BASE}/storage/upload/{{name}}": OperationSpec(
            "Upload to a URL",
            {200: {"description": "Stored"}},
            _STATUSES,
            bodies=file,
        ),
    }
    return OpenApiDocument(
        "Sixfold fal-compatible API",
        "1.0.0",
        "The same models and predictions for fal's clients.",
        operations,
        schemas.FalErrorSchema,
    )
