"""The gallery's part of the OpenAPI document of the Media API."""

from __future__ import annotations

from sixfold.api.media import gallery
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.gallery import MAX_TAG_CHARS, MAX_TAGS
from sixfold.web import openapi
from sixfold.web.openapi import Node, OperationSpec, Shape

_TAG: Node = {"type": "string", "maxLength": MAX_TAG_CHARS}
_TAGS: Node = {
    "description": "An array of texts, or one text with commas",
    "anyOf": [{"type": "array", "maxItems": MAX_TAGS, "items": _TAG}, {"type": "string"}],
}


def operations(key: Node) -> dict[str, OperationSpec]:
    """Return the operations to publish and list characters and posts."""
    making = _body("avatar", gallery.CHARACTER, {"api_key": key})
    posting = _body("media", gallery.POST, {"api_key": key, "tags": _TAGS})
    tag = openapi.query("tag", _TAG)
    return {
        "POST /api/create-ai": _publish("create_ai", "Make a character", making, gallery.NewCharacterSchema),
        "POST /api/create-post": _publish("create_post", "Publish a post", posting, gallery.NewPostSchema),
        "GET /api/characters": _list("characters", "Everybody's characters", gallery.CharacterSchema),
        "GET /api/posts": _list("posts", "Everybody's posts", gallery.PostSchema, tag),
    }


def _body(media: str, rows: tuple[Descriptor, ...], extra: Node) -> Node:
    """Return the body of a publication, as JSON or as a form with the file."""
    described = (*rows, Descriptor(f"{media}_url", "file", "Where the file lies"))
    data: Node = {"type": "string", "description": "The file in base64"}
    body = openapi.object_of(described, {**extra, f"{media}_bytes": data})
    form = {**body, "properties": {**body["properties"], media: openapi.FILE}}
    return {openapi.JSON: body, "multipart/form-data": form}


def _publish(name: str, summary: str, body: Node, result: Shape) -> OperationSpec:
    responses = {200: openapi.response("Published", result)}
    key = (openapi.IDEMPOTENCY,)
    return OperationSpec(summary, responses, (400, 409, 503), None, key, name, keyless=True, bodies=body)


def _list(name: str, summary: str, row: Shape, *more: Node) -> OperationSpec:
    paging = (openapi.limit(gallery.MAX_PAGE, gallery.PAGE), openapi.query("cursor", str), *more)
    page = openapi.response("A page of the list", openapi.page(name.title(), **{name: row}))
    return OperationSpec(f"{summary}, newest first", {200: page}, (400, 503), None, paging, name)
