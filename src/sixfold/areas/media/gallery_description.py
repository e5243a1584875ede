"""The gallery's part of Area A's OpenAPI document."""

from __future__ import annotations

from sixfold.areas.media import gallery
from sixfold.core.gallery import posts
from sixfold.core.work.inputs import Descriptor
from sixfold.web import openapi
from sixfold.web.openapi import Node

_TEXT: Node = {"type": "string"}
_MAYBE: Node = {"type": ["string", "null"]}
_URL: Node = {"type": "string", "format": "uri"}
_TRUE: Node = {"const": True}
_KEY: Node = {"type": "string", "description": "The key; a bearer header is as good"}
_TAGS: Node = {
    "description": "An array of texts, or one text with commas",
    "anyOf": [
        {
            "type": "array",
            "maxItems": posts.MAX_TAGS,
            "items": {"type": "string", "maxLength": posts.MAX_TAG_CHARS},
        },
        {"type": "string"},
    ],
}


def _all_of(properties: Node) -> Node:
    return {"type": "object", "required": list(properties), "properties": properties}


_SHOWN: Node = {"author_user_id": _TEXT, "uploaded_via_api": _TRUE, "created_at": _TEXT}
SCHEMAS: dict[str, Node] = {
    "NewCharacter": _all_of(
        {"id": _TEXT, "url_name": _TEXT, "avatar_file_name": _MAYBE, "uploaded_via_api": _TRUE}
    ),
    "NewPost": _all_of(
        {
            "id": _TEXT,
            "post_id": _TEXT,
            "media_url": _URL,
            "author_user_id": _TEXT,
            "uploaded_via_api": _TRUE,
        }
    ),
    "Character": _all_of(
        {
            "id": _TEXT,
            "url_name": _TEXT,
            "name": _TEXT,
            "description": _TEXT,
            "greeting": _TEXT,
            "avatar_url": _MAYBE,
            **_SHOWN,
        }
    ),
    "Post": _all_of(
        {
            "id": _TEXT,
            "text": _TEXT,
            "media_url": _URL,
            "content_type": _TEXT,
            "tags": {"type": "array", "items": _TEXT},
            **_SHOWN,
        }
    ),
}


def paths() -> dict[str, dict[str, Node]]:
    """Four paths: two to publish at, two to read."""
    return {
        "/api/create-ai": {"post": _publishing("create_ai", "Make a character", "NewCharacter")},
        "/api/create-post": {"post": _publishing("create_post", "Publish a post", "NewPost")},
        "/api/characters": {"get": _listing("characters", "Everybody's characters", "Character")},
        "/api/posts": {"get": _listing("posts", "Everybody's posts", "Post", _TAG)},
    }


_TAG = openapi.query("tag", {"type": "string", "maxLength": posts.MAX_TAG_CHARS})


def _publishing(name: str, summary: str, made: str) -> Node:
    media, rows = ("avatar", gallery.CHARACTER) if made == "NewCharacter" else ("media", gallery.POST)
    described = (*rows, Descriptor(f"{media}_url", "file", "Where the file lies"))
    extra: Node = {"api_key": _KEY, f"{media}_bytes": {"type": "string", "description": "The file in base64"}}
    body = openapi.object_of(described, extra | ({"tags": _TAGS} if media == "media" else {}))
    form: Node = {**body, "properties": {**body["properties"], media: {"type": "string", "format": "binary"}}}
    content: Node = {"application/json": {"schema": body}, "multipart/form-data": {"schema": form}}
    return {
        "summary": summary,
        "operationId": name,
        "security": [{openapi.BEARER: []}, {}],
        "parameters": [openapi.IDEMPOTENCY],
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": openapi.answer("Made", openapi.ref(made)),
            **openapi.failures(openapi.ref("Error"), 400, 401, 403, 409, 503),
        },
    }


def _listing(name: str, summary: str, row: str, *more: Node) -> Node:
    limit: Node = {"type": "integer", "minimum": 1, "maximum": gallery.MAX_PAGE, "default": gallery.PAGE}
    page = _all_of({name: {"type": "array", "items": openapi.ref(row)}, "next_cursor": _MAYBE})
    return {
        "summary": f"{summary}, newest first",
        "operationId": name,
        "parameters": [openapi.query("limit", limit), openapi.query("cursor", _TEXT), *more],
        "responses": {
            "200": openapi.answer("A part of the list", page),
            **openapi.failures(openapi.ref("Error"), 400, 503),
        },
    }
