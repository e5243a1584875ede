"""The platform's OpenAPI document."""

from __future__ import annotations

from sixfold.web import openapi
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_MAYBE_TEXT: Node = {"type": ["string", "null"]}
_ENTRY: Node = {
    "id": _TEXT,
    "created_at": _TEXT,
    "amount_usd": _TEXT,
    "kind": _TEXT,
    "description": _TEXT,
    "request_id": _MAYBE_TEXT,
    "charge": openapi.CHARGE,
}
_ACCOUNT: Node = {
    "account_id": _TEXT,
    "email": _TEXT,
    "balance_usd": _TEXT,
    "held_usd": _TEXT,
    "credits": {"type": "integer"},
    "plan": _TEXT,
    "webhook_secret": _MAYBE_TEXT,
}
_UPLOAD: Node = {
    "url": {"type": "string", "format": "uri"},
    "id": _TEXT,
    "media_type": _TEXT,
    "bytes": {"type": "integer", "minimum": 1},
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_TEXTS: Node = {"type": "array", "items": _TEXT}
_RESOURCE: Node = {
    "name": _TEXT,
    "kind": _TEXT,
    "found": _MAYBE_TEXT,
    "unlocks": _TEXT,
    "how": _TEXT,
    "used": {"type": "boolean"},
    "state": {"type": "string", "enum": ["found", "slow", "absent"]},
    "url": _TEXT,
    "models": _TEXTS,
}
_QUALITY: Node = {"type": ["string", "null"], "enum": ["full", "preview", None]}
_ENGINE: Node = {
    "engine": _TEXT,
    "version": _TEXT,
    "kind": _TEXT,
    "quality": _QUALITY,
    "models": _TEXTS,
    "ready": {"type": "boolean"},
    "detail": _TEXT,
    "unlock": _TEXT,
}
_MODEL: Node = {
    "model": _TEXT,
    "title": _TEXT,
    "engine": _MAYBE_TEXT,
    "quality": _QUALITY,
    "detail": _TEXT,
    "full_for": _TEXT,
    "unlock": _TEXT,
}
_SECURED: list[Node] = [{openapi.BEARER: []}]


def _all_of(properties: Node) -> Node:
    return {"type": "object", "required": list(properties), "properties": properties}


def document() -> Document:
    """Uploads, files, the account, health."""
    entries: Node = _all_of(
        {"entries": {"type": "array", "items": _all_of(_ENTRY)}, "next_cursor": _MAYBE_TEXT}
    )
    status = openapi.answer("OK", _all_of({"status": {"const": "ok"}}))
    text = openapi.answer("Prometheus' text format", _TEXT, kind="text/plain")
    paging = [
        openapi.query("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
        openapi.query("cursor", {"type": "string", "maxLength": 100}),
    ]
    account = _operation("The account", openapi.answer("Balance and plan", _all_of(_ACCOUNT)), 401, 403)
    ledger = _operation("The journal", openapi.answer("Newest first", entries), 400, 401, 403)
    return Document(
        "Sixfold Platform",
        "1.0.0",
        "What all areas share: uploads, media files, the account, health.",
        {
            "/api/uploads": {"post": _upload()},
            "/media/{name}": {
                "get": _file("name", {"307": {"description": "It lies in the object store, there"}})
            },
            "/uploads/{path}": {"get": _file("path", {})},
            "/api/account": {"get": account | {"security": _SECURED}, "delete": _leave()},
            "/api/account/export": {"get": _take_out()},
            "/api/account/ledger": {"get": ledger | {"security": _SECURED, "parameters": paging}},
            "/livez": {"get": _operation("The process answers", status)},
            "/readyz": {"get": _operation("The server can work", status, 503)},
            "/api/engines": {"get": _engines()},
            "/metrics": {"get": _operation("Figures for Prometheus", text, 401, 403)},
        },
        {"Error": openapi.CODED},
    )


def _operation(summary: str, good: Node, *statuses: int) -> Node:
    return {
        "summary": summary,
        "responses": {"200": good, **openapi.failures(openapi.ref("Error"), *statuses)},
    }


def _engines() -> Node:
    rows = {"found": _RESOURCE, "engines": _ENGINE, "models": _MODEL}
    lists: Node = {name: {"type": "array", "items": _all_of(row)} for name, row in rows.items()}
    good = openapi.answer(
        "What the server uses now",
        _all_of({"version": _TEXT, "warnings": {"type": "array", "items": _TEXT}, **lists}),
    )
    refresh = openapi.query("refresh", {"type": "boolean", "default": False})
    operation = _operation("What engines run on, and which serves each model", good, 400, 401, 403)
    return operation | {"security": _SECURED, "parameters": [refresh]}


def _take_out() -> Node:
    archive: Node = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
    return {
        "summary": "All that belongs to the account",
        "security": _SECURED,
        "responses": {
            "200": {"description": "A zip, as it is made", "content": archive},
            **openapi.failures(openapi.ref("Error"), 401, 403, 429),
        },
    }


def _leave() -> Node:
    wanted: Node = {"type": "object", "required": ["confirm"], "properties": {"confirm": _TEXT}}
    left = _all_of({"account_id": _TEXT, "erased_at": _TEXT})
    return {
        "summary": "Close the account; `confirm` is its e-mail address",
        "security": _SECURED,
        "requestBody": openapi.json_body(wanted),
        "responses": {
            "202": openapi.answer("When it will be erased", left),
            **openapi.failures(openapi.ref("Error"), 400, 401, 403),
        },
    }


def _upload() -> Node:
    binary: Node = {"type": "string", "format": "binary", "minLength": 1}
    form: Node = {"type": "object", "required": ["file"], "properties": {"file": binary}}
    return {
        "summary": "Keep a file",
        "security": _SECURED,
        "parameters": [openapi.IDEMPOTENCY],
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {"schema": form},
                "application/octet-stream": {"schema": binary},
            },
        },
        "responses": {
            "201": openapi.answer("Kept", _all_of(_UPLOAD)),
            **openapi.failures(openapi.ref("Error"), 400, 401, 403, 409, 503),
        },
    }


def _file(name: str, more: Node) -> Node:
    whole: Node = {
        "description": "The file",
        "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
    }
    part: Node = {**whole, "description": "A part of it"}
    return {
        "summary": "A stored file",
        "parameters": [openapi.in_path(name)],
        "responses": {
            "200": whole,
            "206": part,
            "304": {"description": "It has not changed"},
            **more,
            "416": {"description": openapi.TEXTS[416]},
            **openapi.failures(openapi.ref("Error"), 404),
            "503": openapi.answer(
                "The store is away, and no byte of the file was sent", openapi.ref("Error")
            ),
        },
    }
