"""The part of Area E's OpenAPI document that tells of sessions; their websocket has no place in it."""

from __future__ import annotations

from sixfold.areas.hosting import sessions_schemas as schemas
from sixfold.core.work.sessions_host import MAX_FPS
from sixfold.core.work.sessions_states import State
from sixfold.web import openapi
from sixfold.web.openapi import Node

_TEXT: Node = {"type": "string"}
_MAYBE_TEXT: Node = {"type": ["string", "null"]}
_STATUS: Node = {"enum": [str(state) for state in State]}
_OPENED: Node = {
    "session_id": _TEXT,
    "status": _STATUS,
    "ws_url": {"type": "string", "description": "where to open the websocket, with its token"},
    "resume_token": {"type": "string", "description": "takes the token's place for whoever comes back"},
    "hardware": _TEXT,
    "idle_seconds": {"type": "number", "description": "how long a session without input stays"},
    "created_at": _TEXT,
}
_SESSION: Node = {
    **{name: node for name, node in _OPENED.items() if name != "resume_token"},
    "model": _TEXT,
    "reason": _MAYBE_TEXT,
    "input": {"type": "object"},
    "fps": {"type": "integer"},
    "engine": _TEXT,
    "quality": {"enum": ["full", "preview"]},
    "ready_at": _MAYBE_TEXT,
    "closed_at": _MAYBE_TEXT,
    "price_hour_usd": _TEXT,
    "cost": {"type": "string", "description": "USD as decimal text, so far"},
    "list_price_hour_usd": {"type": "string", "description": "The hour's list price, where it is free"},
}
SCHEMAS: dict[str, Node] = {
    "OpenedSession": {"type": "object", "required": list(_OPENED), "properties": _OPENED},
    "Session": {"type": "object", "required": openapi.always(_SESSION), "properties": _SESSION},
    "SessionOrder": {
        "type": "object",
        "properties": {
            "input": {"type": ["object", "null"]},
            "fps": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_FPS},
        },
    },
}


def paths() -> dict[str, Node]:
    """Asking for a session, showing and closing it."""
    one = {"200": openapi.answer("The session", openapi.ref("Session"))}
    own: list[Node] = [openapi.in_path("session_id")]
    create = _operation("Begin a session", {"201": openapi.answer("It starts", openapi.ref("OpenedSession"))})
    create |= {
        "parameters": [openapi.in_path("model_id"), openapi.IDEMPOTENCY],
        "requestBody": openapi.json_body(openapi.ref("SessionOrder")),
    }
    return {
        "/api/containers/{model_id}/sessions": {"post": create},
        f"{schemas.PATH}/{{session_id}}": {
            "get": _operation("One session", one) | {"parameters": own},
            "delete": _operation("Close a session", one) | {"parameters": own},
        },
    }


def _operation(summary: str, good: dict[str, Node]) -> Node:
    failures = openapi.failures(openapi.ref("Error"), 400, 401, 402, 403, 404, 409, 429, 503)
    return {"summary": summary, "security": [{openapi.BEARER: []}], "responses": {**good, **failures}}
