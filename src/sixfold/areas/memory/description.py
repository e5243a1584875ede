"""Area D's OpenAPI document, from the same fields that its routes read."""

from __future__ import annotations

from sixfold.areas.memory import requests
from sixfold.core.memory.operations import Operation
from sixfold.core.memory.ports import MODES
from sixfold.web import openapi
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_MAYBE: Node = {"type": ["string", "null"]}
_WHOLE: Node = {"type": "integer"}
_TEXTS: Node = {"type": "array", "items": _TEXT}
_SWITCH: Node = {"type": "boolean"}
_ORIGIN: Node = {"enum": ["explicit", "inferred", "confirmed"]}


def _object(properties: Node, *optional: str) -> Node:
    return {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": properties,
    }


def _list(noun: str, item: Node) -> Node:
    return _object({noun: {"type": "array", "items": item}, "next_cursor": _MAYBE})


_BRIEF: Node = {
    "id": _TEXT,
    "slug": _TEXT,
    "title": _TEXT,
    "url": _TEXT,
    "type": _TEXT,
    "tags": _TEXTS,
    "collections": _TEXTS,
    "version": {"type": "integer", "minimum": 1},
    "created_at": _TEXT,
    "updated_at": _TEXT,
    "created_by": _TEXT,
}
_DRAWN: Node = {"type": _TEXT, "context": _TEXT, "origin": _ORIGIN, "evidence": _MAYBE}
_LINK: Node = {"to": _TEXT, **_DRAWN, "resolved": _SWITCH}
_BACKLINK: Node = {"from": _TEXT, "title": _TEXT, **_DRAWN}
_ENTRY: Node = {"date": _TEXT, "summary": _TEXT, "detail": _TEXT, "source": _TEXT, "created_at": _TEXT}
_VERSION: Node = {
    **{name: _BRIEF[name] for name in ("version", "slug", "title", "type", "tags", "collections")},
    "operation": _TEXT,
    "chars": _WHOLE,
    "created_by": _TEXT,
    "created_at": _TEXT,
    "ended_at": _MAYBE,
}
_HIT: Node = {
    **{name: _BRIEF[name] for name in ("id", "slug", "title", "url", "type", "tags", "collections")},
    "score": {"type": "number"},
    "snippet": _TEXT,
    "updated_at": _TEXT,
    "explain": {"type": "object"},
}
_SCHEMAS: dict[str, Node] = {
    "Page": _object(
        {
            **_BRIEF,
            "body": _TEXT,
            "links": {"type": "array", "items": openapi.ref("Link")},
            "backlinks": {"type": "array", "items": openapi.ref("Backlink")},
            "timeline": {"type": "array", "items": openapi.ref("Entry")},
        }
    ),
    "PageOfList": _object(_BRIEF),
    "Pages": _list("pages", openapi.ref("PageOfList")),
    "Link": _object(_LINK),
    "Links": _list("links", openapi.ref("Link")),
    "Backlink": _object(_BACKLINK),
    "Backlinks": _list("backlinks", openapi.ref("Backlink")),
    "Entry": _object(_ENTRY),
    "Timeline": _list("timeline", openapi.ref("Entry")),
    "Version": _object(_VERSION),
    "Versions": {
        "anyOf": [
            _list("versions", openapi.ref("Version")),
            _object({**_BRIEF, "body": _TEXT}),
            _object(
                {
                    "slug": _TEXT,
                    "from": _WHOLE,
                    "to": _WHOLE,
                    "diff": _TEXT,
                    "truncated": _SWITCH,
                    "fields": {"type": "object"},
                }
            ),
        ]
    },
    "Walk": _object(
        {
            "nodes": {"type": "array", "items": _object({"slug": _TEXT, "title": _TEXT, "depth": _WHOLE})},
            "edges": {"type": "array", "items": _object({"from": _TEXT, "to": _TEXT, "type": _TEXT})},
            "truncated": _SWITCH,
        }
    ),
    "Found": _object(
        {
            "results": {"type": "array", "items": _object(_HIT, "explain")},
            "mode": {"enum": list(MODES)},
            "took_ms": {"type": "number"},
        }
    ),
    "PageTags": _list("tags", _TEXT),
    **{
        noun.title(): _list(noun, _object({"name": _TEXT, "count": _WHOLE}))
        for noun in ("tags", "collections", "types")
    },
    "Imported": _object(
        {
            "created": _WHOLE,
            "updated": _WHOLE,
            "skipped": _WHOLE,
            "errors": {"type": "array", "items": _object({"path": _TEXT, "error": _TEXT})},
        }
    ),
    "Deleted": _object({"slug": _TEXT, "deleted": _SWITCH, "version": _WHOLE}),
    "Error": openapi.CODED,
}
_SLUG: Node = openapi.in_path("slug")
_IF_MATCH: Node = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "Change it only at this version",
    "schema": {"type": "string", "pattern": '^"[0-9]{1,15}"$'},
}
_ETAG: Node = {"ETag": {"schema": _TEXT, "description": "The version, for If-Match"}}
_MOVED: Node = {
    **openapi.answer("The page has another slug now, in Location", openapi.ref("Page"), headers=_ETAG),
}
_WRITING = (400, 402, 404, 409, 412)


def document() -> Document:
    """Pages, links, timelines, search, files."""
    page = openapi.answer("The page", openapi.ref("Page"), headers=_ETAG)
    new = openapi.answer("A new page", openapi.ref("Page"), headers=_ETAG)
    one = _operation("One page", {"200": page, "308": _MOVED}, 400, 404, parameters=[_SLUG, *_query("as_of")])
    put = _operation("Create or replace a page", {"200": page, "201": new}, *_WRITING, parameters=_ON_PAGE)
    patch = _operation("Change a part of a page", {"200": page}, *_WRITING, parameters=_ON_PAGE)
    gone = openapi.answer("Deleted; its versions stay", openapi.ref("Deleted"))
    delete = _operation("Delete a page", {"200": gone}, 400, 404, 412, parameters=_ON_PAGE)
    found = openapi.answer("Best first", openapi.ref("Found"))
    create = _operation("Create a page", {"201": new}, *_WRITING, parameters=[openapi.IDEMPOTENCY])
    return Document(
        "Sixfold Memory",
        "1.0.0",
        "A durable memory for agents and people: markdown pages with links, timelines and versions.",
        {
            "/api/search": {"post": _with(_operation("Search", {"200": found}, 400, 503), requests.SEARCH)},
            "/api/pages": {
                "get": _get("List pages", "Pages", requests.LIST),
                "post": _with(create, requests.NEW_PAGE),
            },
            "/api/pages/{slug}": {
                "get": one,
                "put": _with(put, requests.PAGE),
                "patch": _with(patch, requests.PATCH),
                "delete": delete,
            },
            **_parts(page),
            **{
                f"/api/{noun}": {"get": _get(f"Count {noun}", noun.title(), requests.COUNTS)}
                for noun in ("tags", "collections", "types")
            },
            "/api/import": {"post": _import()},
            "/api/export": {"get": _export()},
        },
        _SCHEMAS,
    )


def _parts(page: Node) -> dict[str, dict[str, Node]]:
    """What belongs to a page."""
    past = _query("as_of")
    restore = _operation("Restore a version", {"200": page}, *_WRITING, parameters=_POSTED)
    link = _operation("Add a link", {"201": _answer("Links")}, *_WRITING, parameters=_POSTED)
    unlink = _operation(
        "Remove a link",
        {"200": _answer("Links")},
        *_WRITING,
        parameters=[*_ON_PAGE, *_parameters(requests.UNLINK)],
    )
    note = _operation("Add an entry", {"201": _answer("Timeline")}, *_WRITING, parameters=_POSTED)
    tag = _operation("Add tags", {"200": _answer("PageTags")}, *_WRITING, parameters=_POSTED)
    untag = _operation("Remove tags", {"200": _answer("PageTags")}, *_WRITING, parameters=_ON_PAGE)
    return {
        "/api/versions/{slug}": {
            "get": _get("Versions of a page", "Versions", requests.VERSIONS, 413),
            "post": _with(restore, requests.RESTORE),
        },
        "/api/links/{slug}": {
            "get": _operation(
                "Links of a page", {"200": _answer("Links")}, 400, 404, parameters=[_SLUG, *past]
            ),
            "post": _with(link, requests.LINK),
            "delete": unlink,
        },
        "/api/backlinks/{slug}": {"get": _get("What leads to a page", "Backlinks", requests.PARTS, 404)},
        "/api/traverse/{slug}": {"get": _get("Pages around one", "Walk", requests.TRAVERSE, 404)},
        "/api/timeline/{slug}": {
            "get": _get("What happened around a page", "Timeline", requests.PARTS, 404),
            "post": _with(note, requests.ENTRY),
        },
        "/api/tags/{slug}": {
            "get": _operation(
                "Tags of a page", {"200": _answer("PageTags")}, 400, 404, parameters=[_SLUG, *past]
            ),
            "post": _with(tag, requests.TAGS),
            "delete": _with(untag, requests.TAGS),
        },
    }


_ON_PAGE: list[Node] = [_SLUG, _IF_MATCH]
_POSTED: list[Node] = [*_ON_PAGE, openapi.IDEMPOTENCY]


def _answer(name: str) -> Node:
    return openapi.answer(name, openapi.ref(name))


def _parameters(wanted: Operation) -> list[Node]:
    return [openapi.query(field.name, field.schema(), required=field.required) for field in wanted.fields]


def _query(name: str) -> list[Node]:
    return [found for found in _parameters(requests.PARTS) if found["name"] == name]


def _get(summary: str, name: str, wanted: Operation, *statuses: int) -> Node:
    own = [_SLUG] if statuses else []
    return _operation(
        summary, {"200": _answer(name)}, 400, 404, *statuses, parameters=[*own, *_parameters(wanted)]
    )


def _with(operation: Node, body: Operation) -> Node:
    return {**operation, "requestBody": openapi.json_body(body.schema())}


def _operation(
    summary: str, good: dict[str, Node], *statuses: int, parameters: list[Node] | None = None
) -> Node:
    return {
        "summary": summary,
        "security": [{openapi.BEARER: []}],
        "parameters": parameters or [],
        "responses": {**good, **openapi.failures(openapi.ref("Error"), 401, 403, *statuses)},
    }


def _import() -> Node:
    binary: Node = {"type": "string", "format": "binary", "minLength": 1}
    form: Node = {"type": "object", "required": ["file"], "properties": {"file": binary}}
    made = _operation(
        "Import an archive of markdown files",
        {"200": _answer("Imported")},
        400,
        402,
        409,
        503,
        parameters=[openapi.IDEMPOTENCY],
    )
    content: Node = {"multipart/form-data": {"schema": form}}
    for kind in ("application/zip", "application/x-tar", "application/gzip"):
        content[kind] = {"schema": binary}
    return {**made, "requestBody": {"required": True, "content": content}}


def _export() -> Node:
    whole: Node = {
        "description": "A zip of markdown files",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
    return _operation("Export every page", {"200": whole})
