"""Area C's OpenAPI document, version 0.1.0."""

from __future__ import annotations

from sixfold.areas.imagekit.routes import KLEIN, PICTURE, STYLE, VERSION
from sixfold.core.work.catalog import Catalog
from sixfold.web import openapi
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_COUNT: Node = {"type": "integer", "minimum": 0}
_SCHEMAS: dict[str, Node] = {
    "ValidationError": {
        "type": "object",
        "title": "ValidationError",
        "required": ["loc", "msg", "type"],
        "properties": {
            "loc": {"type": "array", "items": {"anyOf": [_TEXT, {"type": "integer"}]}},
            "msg": _TEXT,
            "type": _TEXT,
        },
    },
    "HTTPValidationError": {
        "type": "object",
        "title": "HTTPValidationError",
        "required": ["detail"],
        "properties": {"detail": {"type": "array", "items": openapi.ref("ValidationError")}},
    },
    "Error": {"type": "object", "required": ["detail"], "properties": {"detail": _TEXT}},
    "Uploaded": {
        "type": "object",
        "required": ["path", "save_path", "bytes"],
        "properties": {"path": {"type": "string", "format": "uri"}, "save_path": _TEXT, "bytes": _COUNT},
    },
    "Styled": {
        "type": "object",
        "required": ["image_url", "width", "height"],
        "properties": {
            "image_url": {"type": "string", "format": "uri"},
            "width": _COUNT,
            "height": _COUNT,
        },
    },
}
_BYTES: Node = {
    kind: {"schema": {"type": "string", "format": "binary"}}
    for kind in ("image/webp", "image/png", "image/jpeg")
}
_SECURITY: list[Node] = [{openapi.BEARER: []}, {}]


def document(catalog: Catalog) -> Document:
    """Area C."""
    path: Node = {
        "type": "string",
        "minLength": 1,
        "maxLength": 512,
        "pattern": r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*(\.(webp|png|jpe?g))?$",
        "description": "Where to put it; the extension picks the format, WebP without one",
    }
    save = openapi.query("save_path", path, required=True)
    pictures, klein = _query(catalog, PICTURE), _query(catalog, KLEIN)
    uploaded = openapi.answer("Uploaded", openapi.ref("Uploaded"), headers=openapi.ENGINE_HEADERS)
    image: Node = {"description": "The picture", "headers": openapi.ENGINE_HEADERS, "content": _BYTES}
    ok = openapi.answer("OK", {"type": "object"})
    root: Node = {
        **ok,
        "content": {"application/json": {"schema": {"type": "object"}}, "text/html": {"schema": _TEXT}},
    }
    paths: dict[str, dict[str, Node]] = {
        "/": {"get": _plain("Root", root)},
        "/health": {"get": _plain("Health check", ok)},
        "/create_image": {"get": _making("Generate an image and return its bytes", pictures, image)},
        "/create_and_upload_image": {
            "get": _making("Generate an image and upload it", [*pictures, save], uploaded)
        },
        "/create_and_upload_image_klein": {
            "get": _making("The same with the alternate model", [*klein, save], uploaded)
        },
        "/api/style-transfer": {"post": _style(catalog)},
    }
    about = "Generates images from a prompt and transfers styles."
    return Document("Sixfold Image Utility Service", VERSION, about, paths, _SCHEMAS)


def _query(catalog: Catalog, model: str) -> list[Node]:
    return [
        openapi.query(descriptor.name, openapi.schema_of(descriptor), required=descriptor.required)
        for descriptor in catalog[model].inputs
        if descriptor.name != "format"
    ]


def _plain(summary: str, response: Node) -> Node:
    return {"summary": summary, "responses": {"200": response, **openapi.failures(openapi.ref("Error"))}}


def _failures() -> dict[str, Node]:
    found = openapi.failures(openapi.ref("Error"), 400, 401, 402, 403, 409, 429, 502, 503)
    return {**found, "422": openapi.answer(openapi.TEXTS[422], openapi.ref("HTTPValidationError"))}


def _making(summary: str, parameters: list[Node], response: Node) -> Node:
    return {
        "summary": summary,
        "security": _SECURITY,
        "parameters": parameters,
        "responses": {"200": response, **_failures()},
    }


def _style(catalog: Catalog) -> Node:
    inputs = [descriptor for descriptor in catalog[STYLE].inputs if descriptor.name != "format"]
    styled = openapi.answer("Repainted", openapi.ref("Styled"), headers=openapi.ENGINE_HEADERS)
    styled["content"] |= _BYTES
    return {
        "summary": "Style transfer of the source image",
        "security": _SECURITY,
        "parameters": [openapi.IDEMPOTENCY],
        "requestBody": openapi.json_body(openapi.object_of(inputs)),
        "responses": {"200": styled, **_failures()},
    }
