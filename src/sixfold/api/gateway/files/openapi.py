"""OpenAPI descriptions of the routes of files."""

from __future__ import annotations

from sixfold.api.gateway.anthropic.errors import AnthropicErrorSchema
from sixfold.api.gateway.files import anthropic_files, openai_files, uploads
from sixfold.api.gateway.openai.errors import OpenAIErrorSchema
from sixfold.web import openapi
from sixfold.web.openapi import FILE, Node, OperationSpec, Shape, Text

_STATUSES = (400, 401, 403, 404, 409, 413, 429, 503)
_EITHER_ERROR: Node = {"anyOf": [OpenAIErrorSchema, AnthropicErrorSchema]}
EXPIRY_POLICY: Node = {
    "type": "object",
    "required": ["anchor", "seconds"],
    "properties": {
        "anchor": {"const": "created_at"},
        "seconds": {
            "type": "integer",
            "minimum": openai_files.MIN_SECONDS,
            "maximum": openai_files.MAX_SECONDS,
        },
    },
}
_ONCE = (openapi.IDEMPOTENCY,)
_PURPOSE: Node = {"enum": list(openai_files.PURPOSES)}


def operations() -> dict[str, OperationSpec]:
    """Return the operations of `/v1/files` and `/v1/uploads`."""
    file = _either("The file", openai_files.OpenAIFileSchema, anthropic_files.AnthropicFileSchema)
    deleted = _either(
        "Deleted", openai_files.DeletedOpenAIFileSchema, anthropic_files.DeletedAnthropicFileSchema
    )
    page = _either("Files", openai_files.OpenAIFilesSchema, anthropic_files.AnthropicFilesSchema)
    form: Node = {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": FILE,
            "purpose": _PURPOSE,
            "expires_after[anchor]": Text,
            "expires_after[seconds]": Text,
            "expires_in_seconds": Text,
        },
    }
    paging = (
        openapi.limit(openai_files.MAX_PAGE),
        openapi.query("order", {"enum": ["asc", "desc"]}),
        openapi.text("purpose", openai_files.MAX_TEXT),
        openapi.text("after", openai_files.MAX_TEXT),
        openapi.text("after_id", openai_files.MAX_TEXT),
        openapi.text("before_id", openai_files.MAX_TEXT),
        openapi.text("page", openai_files.MAX_TEXT),
    )
    content = openapi.response("The bytes", FILE, "application/octet-stream")
    return {
        "POST /v1/files": _operation("Upload a file", file, form=form, parameters=_ONCE),
        "GET /v1/files": _operation("List files", page, parameters=paging),
        "GET /v1/files/{file_id}": _operation("Get a file", file),
        "DELETE /v1/files/{file_id}": _operation("Delete a file", deleted),
        "GET /v1/files/{file_id}/content": OperationSpec(
            "Get the content of a file",
            {
                200: content,
                206: content,
                304: {"description": "Not modified"},
                416: {"description": openapi.TEXTS[416]},
            },
            _STATUSES,
            error=_EITHER_ERROR,
        ),
        **_uploads(),
    }


def _uploads() -> dict[str, OperationSpec]:
    upload = openapi.response("The upload", uploads.UploadInPartsSchema)
    part = openapi.response("The part", uploads.UploadPartSchema)
    begin: Node = {
        "type": "object",
        "required": ["bytes", "filename", "mime_type", "purpose"],
        "properties": {
            "bytes": {"type": "integer", "minimum": 1, "maximum": uploads.MAX_UPLOAD_BYTES},
            "filename": Text,
            "mime_type": Text,
            "purpose": _PURPOSE,
            "expires_after": EXPIRY_POLICY,
        },
    }
    complete: Node = {
        "type": "object",
        "required": ["part_ids"],
        "properties": {"part_ids": {"type": "array", "items": Text, "minItems": 1}, "md5": Text},
    }
    data: Node = {"type": "object", "required": ["data"], "properties": {"data": FILE}}
    return {
        "POST /v1/uploads": _operation("Begin an upload in parts", upload, body=begin, parameters=_ONCE),
        "POST /v1/uploads/{upload_id}/parts": _operation("Upload a part", part, form=data, parameters=_ONCE),
        "POST /v1/uploads/{upload_id}/complete": _operation(
            "Complete an upload", upload, body=complete, parameters=_ONCE
        ),
        "POST /v1/uploads/{upload_id}/cancel": _operation("Cancel an upload", upload),
    }


def _either(description: str, openai: Shape, anthropic: Shape) -> Node:
    return openapi.response(description, {"anyOf": [openai, anthropic]})


def _operation(
    summary: str,
    good: Node,
    *,
    parameters: tuple[Node, ...] = (),
    body: Shape = None,
    form: Node | None = None,
) -> OperationSpec:
    return OperationSpec(
        summary,
        {200: good},
        _STATUSES,
        body,
        parameters,
        error=_EITHER_ERROR,
        bodies={} if form is None else {"multipart/form-data": form},
    )
