"""The OpenAPI document of the image utility API, version 0.1.0."""

from __future__ import annotations

from sixfold.api.imagekit import errors, routes, schemas
from sixfold.core.catalog.models import Catalog
from sixfold.web import openapi
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec, Shape

_PATH: Node = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "pattern": r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*(\.(webp|png|jpe?g))?$",
    "description": "Where to put it; the extension picks the format, WebP without one",
}


def document(catalog: Catalog) -> OpenApiDocument:
    images, klein = _query(catalog, routes.IMAGE), _query(catalog, routes.KLEIN)
    save = openapi.query("save_path", _PATH, required=True)
    image: Node = {
        "description": "The image",
        "headers": openapi.ENGINE_HEADERS,
        "content": {kind: {"schema": openapi.FILE} for kind in routes.FORMATS},
    }
    uploaded = openapi.result("Uploaded", routes.StoredImageSchema)
    styled = openapi.result("Repainted", routes.StyledImageSchema)
    styled["content"] |= image["content"]
    ok = openapi.response("OK", {"type": "object"})
    root: Node = {**ok, "content": {**ok["content"], "text/html": {"schema": str}}}
    style = openapi.object_of(schemas.request_inputs(catalog[routes.STYLE]))
    operations = {
        "GET /": OperationSpec("Root", {200: root}),
        "GET /health": OperationSpec("Health check", {200: ok}),
        "GET /create_image": _make("Generate an image and return its bytes", image, images),
        "GET /create_and_upload_image": _make("Generate an image and upload it", uploaded, (*images, save)),
        "GET /create_and_upload_image_klein": _make(
            "The same with the alternate model", uploaded, (*klein, save)
        ),
        "POST /api/style-transfer": _make(
            "Style transfer of the source image", styled, (openapi.IDEMPOTENCY,), style
        ),
    }
    about = "Generates images from a prompt and transfers styles."
    return OpenApiDocument(
        "Sixfold Image Utility Service", routes.VERSION, about, operations, errors.DetailSchema
    )


def _query(catalog: Catalog, model: str) -> tuple[Node, ...]:
    return tuple(
        openapi.query(request_input.name, openapi.schema_of(request_input), required=request_input.required)
        for request_input in schemas.request_inputs(catalog[model])
    )


def _make(summary: str, good: Node, parameters: tuple[Node, ...], body: Shape = None) -> OperationSpec:
    invalid = openapi.response(openapi.TEXTS[422], errors.HTTPValidationErrorSchema)
    statuses = (400, 402, 409, 429, 502, 503)
    return OperationSpec(summary, {200: good, 422: invalid}, statuses, body, parameters, keyless=True)
