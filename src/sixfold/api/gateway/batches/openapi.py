"""OpenAPI descriptions of the routes of batches."""

from __future__ import annotations

from sixfold.api.gateway import list_pages
from sixfold.api.gateway.anthropic.errors import AnthropicErrorSchema
from sixfold.api.gateway.batches import anthropic_batches, openai_batches
from sixfold.api.gateway.batches.runner import OPENAI_ENDPOINTS
from sixfold.api.gateway.files.openapi import EXPIRY_POLICY
from sixfold.api.gateway.openai.errors import OpenAIErrorSchema
from sixfold.web import openapi
from sixfold.web.openapi import Node, OperationSpec, Shape, Text

_STATUSES = (400, 401, 403, 404, 409, 413, 429, 503)


def operations() -> dict[str, OperationSpec]:
    """Return the operations of `/v1/batches` and `/v1/messages/batches`."""
    return {**_openai(), **_anthropic()}


def _openai() -> dict[str, OperationSpec]:
    batch = openapi.response("The batch", openai_batches.BatchSchema)
    page = openapi.response("Batches, newest first", openai_batches.BatchesSchema)
    body: Node = {
        "type": "object",
        "required": ["input_file_id", "endpoint", "completion_window"],
        "properties": {
            "input_file_id": Text,
            "endpoint": {"enum": list(OPENAI_ENDPOINTS)},
            "completion_window": {"const": openai_batches.WINDOW},
            "metadata": {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": openai_batches.MAX_METADATA_VALUE},
                "maxProperties": openai_batches.MAX_METADATA,
            },
            "output_expires_after": EXPIRY_POLICY,
        },
    }
    page_parameters = (openapi.limit(openai_batches.MAX_PAGE), openapi.text("after", openai_batches.MAX_TEXT))
    error = OpenAIErrorSchema
    return {
        "POST /v1/batches": OperationSpec(
            "Create a batch", {200: batch}, _STATUSES, body, (openapi.IDEMPOTENCY,), error=error
        ),
        "GET /v1/batches": _operation("List batches", page, error, page_parameters),
        "GET /v1/batches/{batch_id}": _operation("Get a batch", batch, error),
        "POST /v1/batches/{batch_id}/cancel": _operation("Cancel a batch", batch, error),
    }


def _anthropic() -> dict[str, OperationSpec]:
    batch = openapi.response("The batch", anthropic_batches.MessageBatchSchema)
    page = openapi.response("Batches, newest first", anthropic_batches.MessageBatchesSchema)
    deleted = openapi.response("Deleted", anthropic_batches.DeletedMessageBatchSchema)
    lines = openapi.response("One JSON object per line", openapi.FILE, "application/octet-stream")
    request: Node = {
        "type": "object",
        "required": ["custom_id", "params"],
        "properties": {
            "custom_id": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
            "params": {"type": "object", "required": ["model", "messages", "max_tokens"]},
        },
    }
    body: Node = {
        "type": "object",
        "required": ["requests"],
        "properties": {"requests": {"type": "array", "items": request, "minItems": 1}},
    }
    page_parameters = (
        openapi.limit(list_pages.MAX_PAGE),
        openapi.text("after_id", openai_batches.MAX_TEXT),
        openapi.text("before_id", openai_batches.MAX_TEXT),
    )
    path, error = "/v1/messages/batches", AnthropicErrorSchema
    return {
        f"POST {path}": OperationSpec(
            "Create a batch of messages", {200: batch}, _STATUSES, body, (openapi.IDEMPOTENCY,), error=error
        ),
        f"GET {path}": _operation("List batches of messages", page, error, page_parameters),
        f"GET {path}/{{batch_id}}": _operation("Get a batch of messages", batch, error),
        f"DELETE {path}/{{batch_id}}": _operation("Delete a batch of messages", deleted, error),
        f"POST {path}/{{batch_id}}/cancel": _operation("Cancel a batch of messages", batch, error),
        f"GET {path}/{{batch_id}}/results": OperationSpec(
            "Get the results of a batch of messages",
            {
                200: lines,
                206: lines,
                304: {"description": "Not modified"},
                416: {"description": openapi.TEXTS[416]},
            },
            _STATUSES,
            error=error,
        ),
    }


def _operation(summary: str, good: Node, error: Shape, parameters: tuple[Node, ...] = ()) -> OperationSpec:
    return OperationSpec(summary, {200: good}, _STATUSES, parameters=parameters, error=error)
