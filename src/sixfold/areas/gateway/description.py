"""Area B's OpenAPI document: services by name, and the faces of `/v1`."""

from __future__ import annotations

from sixfold.areas.gateway.openai import audio, images, making, token_arrays
from sixfold.web import openapi
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_SAID: Node = {"type": "string", "minLength": 1, "pattern": r"\S"}
_SWITCH: Node = {"type": "boolean"}
_MAYBE_TEXT: Node = {"type": ["string", "null"]}
_FILE: Node = {"type": "string", "format": "binary"}
_COUNT: Node = {"type": "integer", "minimum": 1, "maximum": 10}
_FREE: Node = {"security": []}


def _whole(properties: Node) -> Node:
    """An object that has all of its properties."""
    return {"type": "object", "required": openapi.always(properties), "properties": properties}


def _with(required: Node, optional: Node) -> Node:
    """An object that has some of its properties always."""
    return {"type": "object", "required": openapi.always(required), "properties": {**required, **optional}}


def _listed(noun: str, schema: Node) -> Node:
    return _whole({noun: {"type": "array", "items": schema}})


_OTHER_OUTPUTS: Node = {
    "type": "object",
    "description": "The other outputs by name, where there are several",
}
_SERVED: Node = {
    "id": _TEXT,
    "service": _TEXT,
    "status": {"enum": ["succeeded"]},
    "output": {},
    "output_kind": _TEXT,
    "engine": _TEXT,
    "quality": {"enum": ["full", "preview"]},
    "usage": {"type": "object"},
    "cost": {"type": "string", "description": "USD as decimal text"},
    "credits_charged": {"type": "integer"},
    "list_price": {"type": "string", "description": "USD as decimal text, where less is charged"},
    "created_at": _TEXT,
}
_BEGUN: Node = {"id": _TEXT, "service": _TEXT, "status": _TEXT, "status_url": _TEXT, "created_at": _TEXT}
_TAUGHT: Node = _with(
    {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$"},
        "images": {"type": "array", "items": _SAID, "minItems": 1, "maxItems": 100},
    },
    {"base": {"enum": ["ra2", "ra1", "anime", "photoreal"]}, "seed": {"type": "integer", "minimum": 0}},
)
_ROW: Node = {
    "service": _TEXT,
    "description": _TEXT,
    "inputs": {"type": "array", "items": {"type": "object"}},
    "output_kind": _TEXT,
    "price": _TEXT,
    "engine": _MAYBE_TEXT,
    "quality": _MAYBE_TEXT,
    "available": _SWITCH,
}
_MODEL: Node = {"id": _TEXT, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": _TEXT}
_WRONG: Node = {"message": _TEXT, "type": _TEXT, "param": _MAYBE_TEXT, "code": _MAYBE_TEXT}
_IMAGE: Node = {"url": {"type": "string"}, "b64_json": {"type": "string"}}
_DRAWN: Node = {
    "model": {
        "type": "string",
        "description": f"a text-to-image model, or a name that begins {', '.join(making.OURS['ra2'][1:])}",
    },
    "n": _COUNT,
    "size": {"type": "string", "pattern": r"^([1-9][0-9]{2,3}x[1-9][0-9]{2,3}|auto)$"},
    "response_format": {"enum": list(images.RESPONSES)},
    "output_format": {"enum": list(images.FORMATS)},
}
_TURN: Node = {"type": "object", "required": ["role", "content"]}
_TURNS: Node = {"type": "array", "items": _TURN, "minItems": 1}
_SCHEMAS: dict[str, Node] = {
    "Error": openapi.CODED,
    "OpenAIError": _whole({"error": _whole(_WRONG)}),
    "AnthropicError": _whole({"type": {"const": "error"}, "error": {"type": "object"}, "request_id": _TEXT}),
    "Served": _with(
        _SERVED,
        {
            "outputs": _OTHER_OUTPUTS,
            "image_url": _TEXT,
            "images": {"type": "array", "items": _TEXT},
            "text": _TEXT,
        },
    ),
    "Begun": _whole(_BEGUN),
    "Service": _with(_ROW, {"unlock": _TEXT}),
    "Model": _whole(_MODEL),
    "Images": _with(
        {
            "created": {"type": "integer"},
            "data": {"type": "array", "items": {"type": "object", "properties": _IMAGE}},
        },
        {"output_format": _TEXT},
    ),
    "Vectors": _whole(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"type": "object"}},
            "model": _TEXT,
            "usage": {"type": "object"},
        }
    ),
}


def document() -> Document:
    """The whole of it."""
    return Document(
        "Sixfold Gateway",
        "1.0.0",
        "Every service by one address, and the dialects of OpenAI and Anthropic on the same key and ledger.",
        {**_services(), **_models(), **_made(), **_talks(), **_kept()},
        _SCHEMAS,
    )


def _services() -> dict[str, Node]:
    """What is ours."""
    body = _with({"service": _SAID}, {"async": _SWITCH, "stream": _SWITCH, "prompt": _TEXT})
    served = openapi.answer("What was made or said", openapi.ref("Served"), headers=openapi.ENGINE_HEADERS)
    begun = openapi.answer("Begun, with `async`", openapi.ref("Begun"))
    run = _operation("Call a service", {"200": served, "202": begun}, "Error")
    run |= {"requestBody": openapi.json_body(body), "parameters": [openapi.IDEMPOTENCY]}
    taught = openapi.answer("Begun", openapi.ref("Begun"))
    train = _operation("Teach a service of one's own", {"202": taught}, "Error")
    train |= {"requestBody": openapi.json_body(_TAUGHT), "parameters": [openapi.IDEMPOTENCY]}
    services: Node = {"type": "array", "items": openapi.ref("Service")}
    listed = openapi.answer(
        "Every service", _with({"services": services}, {"next_cursor": {"type": ["string", "null"]}})
    )
    call: Node = {"type": "object", "properties": {"charge": openapi.CHARGE}}
    calls = openapi.answer("Newest first", _listed("calls", call))
    log = _operation("The log of calls", {"200": calls}, "Error")
    log["parameters"] = [openapi.query("limit", {"type": "integer", "minimum": 1, "maximum": 200})]
    return {
        "/api/service": {"post": run},
        "/api/training": {"post": train},
        "/api/services": {"get": {**_operation("List services", {"200": listed}, "Error"), **_FREE}},
        "/api/gateway/calls": {"get": log},
    }


def _models() -> dict[str, Node]:
    every = openapi.answer("Every model", _listed("data", openapi.ref("Model")))
    one = openapi.answer("The model", openapi.ref("Model"))
    show = _operation("One model", {"200": one}, "OpenAIError")
    show["parameters"] = [openapi.in_path("model")]
    return {
        "/v1/models": {"get": _operation("List models", {"200": every}, "OpenAIError")},
        "/v1/models/{model}": {"get": show},
    }


def _array(items: Node, most: int) -> Node:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


def _made() -> dict[str, Node]:
    """What is made by the models of this server."""
    ids = _array({"type": "integer", "minimum": 0, "maximum": 100_255}, token_arrays.MOST_TOKENS)
    most = token_arrays.MOST_ARRAYS
    given: Node = {"anyOf": [_SAID, _array(_SAID, most), ids, _array(ids, most)]}
    embed = _with({"input": given}, {"model": _TEXT, "encoding_format": {"enum": ["float", "base64"]}})
    speech: Node = {
        "model": _TEXT,
        "response_format": {"enum": list(audio.FORMATS)},
        "speed": {"type": "number", "minimum": 0.25, "maximum": 4},
    }
    edit = _with({"image": _FILE, "prompt": _SAID}, {"mask": _FILE, **_DRAWN})
    heard: Node = {"model": _TEXT, "language": _TEXT, "response_format": {"enum": list(audio.SHAPES)}}
    drawn = openapi.answer("The pictures", openapi.ref("Images"), headers=openapi.ENGINE_HEADERS)
    vectors = openapi.answer("The vectors", openapi.ref("Vectors"), headers=openapi.ENGINE_HEADERS)
    written = openapi.answer("What was said", {"type": "object", "required": ["text"]})
    written["content"]["text/plain"] = {"schema": _TEXT}
    sound = openapi.answer("The sound", _FILE, kind="audio/mpeg")
    sound["content"] |= {kind: {"schema": _FILE} for kind in ("audio/ogg", "audio/wav")}
    rows: dict[str, tuple[str, Node, Node]] = {
        "embeddings": ("Vectors of texts", openapi.json_body(embed), vectors),
        "images/generations": ("Draw pictures", openapi.json_body(_with({"prompt": _SAID}, _DRAWN)), drawn),
        "images/edits": ("Repaint a picture, or clean it", _form(edit), drawn),
        "audio/speech": (
            "Speak a text",
            openapi.json_body(_with({"input": _SAID, "voice": _SAID}, speech)),
            sound,
        ),
        "audio/transcriptions": ("Write a recording down", _form(_with({"file": _FILE}, heard)), written),
    }
    return {
        f"/v1/{path}": {
            "post": {
                **_operation(summary, {"200": good}, "OpenAIError"),
                "requestBody": body,
                "parameters": [openapi.IDEMPOTENCY],
            }
        }
        for path, (summary, body, good) in rows.items()
    }


def _talks() -> dict[str, Node]:
    """What passes through to a model server: the fields that are read here, and all others."""
    more: Node = {"stream": _SWITCH, "max_tokens": {"type": "integer", "minimum": 1}}
    rows: dict[str, tuple[str, str, Node]] = {
        "chat/completions": ("Answer a conversation", "OpenAIError", _with({"messages": _TURNS}, more)),
        "responses": ("Answer an input", "OpenAIError", _with({"input": {"anyOf": [_SAID, _TURNS]}}, more)),
        "messages": (
            "Answer a conversation, in Anthropic's dialect",
            "AnthropicError",
            _with({"messages": _TURNS, "max_tokens": more["max_tokens"]}, {"stream": _SWITCH}),
        ),
        "messages/count_tokens": (
            "Count a conversation's tokens",
            "AnthropicError",
            _with({"messages": _TURNS}, {}),
        ),
    }
    found: dict[str, Node] = {}
    for path, (summary, wrong, body) in rows.items():
        named = {**body, "required": ["model", *body["required"]]}
        named["properties"] = {"model": _SAID, **body["properties"]}
        good = openapi.answer("The answer; with `stream`, its events", {"type": "object"})
        good["content"]["text/event-stream"] = {"schema": _TEXT}
        operation = _operation(summary, {"200": good}, wrong)
        operation |= {"requestBody": openapi.json_body(named), "parameters": [openapi.IDEMPOTENCY]}
        found[f"/v1/{path}"] = {"post": operation}
    return found


def _kept() -> dict[str, Node]:
    """Responses that an account keeps."""
    thing: Node = {"type": "object", "required": ["id", "object"]}
    one = openapi.answer("The response, as it was told", thing)
    gone = openapi.answer("It is gone", _whole({"id": _TEXT, "object": _TEXT, "deleted": {"const": True}}))
    page: Node = {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"type": "object", "required": ["id", "type"]}},
        "first_id": _MAYBE_TEXT,
        "last_id": _MAYBE_TEXT,
        "has_more": _SWITCH,
    }
    rows: dict[tuple[str, str], tuple[str, Node]] = {
        ("", "get"): ("Read a response again", one),
        ("", "delete"): ("Delete a response", gone),
        ("/input_items", "get"): ("What a response was asked with", openapi.answer("Items", _whole(page))),
        ("/cancel", "post"): ("Always a 400: what is kept has ended", one),
    }
    found: dict[str, Node] = {}
    for (path, method), (summary, good) in rows.items():
        operation = _operation(summary, {"200": good}, "OpenAIError")
        operation["parameters"] = [openapi.in_path("response_id")]
        found.setdefault(f"/v1/responses/{{response_id}}{path}", {})[method] = operation
    found["/v1/responses/{response_id}/input_items"]["get"]["parameters"] += [
        openapi.query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
        openapi.query("order", {"enum": ["asc", "desc"]}),
        openapi.query("after", _TEXT),
    ]
    return found


def _form(schema: Node) -> Node:
    """A required form with files in it."""
    return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}


def _operation(summary: str, good: dict[str, Node], wrong: str) -> Node:
    failed = openapi.failures(openapi.ref(wrong), 400, 401, 402, 403, 404, 409, 429, 502, 503)
    return {
        "summary": summary,
        "security": [{openapi.BEARER: []}],
        "parameters": [],
        "responses": {**good, **failed},
    }
