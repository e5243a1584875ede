"""The OpenAPI document of the gateway: services by name, and the APIs of OpenAI and Anthropic."""

from __future__ import annotations

from sixfold.api.gateway import request_log, routes, service, services_list
from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.openai import (
    audio,
    embeddings,
    errors,
    images,
    media_jobs,
    stored_responses,
    token_arrays,
)
from sixfold.core.catalog import trained_models
from sixfold.core.catalog.models import Catalog
from sixfold.web import openapi
from sixfold.web.openapi import FILE, Node, OpenApiDocument, OperationSpec, Shape, Text

_STATUSES = (400, 401, 402, 403, 404, 409, 429, 502, 503)
_ONCE = (openapi.IDEMPOTENCY,)
_FORM, _FORMS = "multipart/form-data", frozenset({"images/edits", "audio/transcriptions"})
_TURN: Node = {"type": "object", "required": ["role", "content"]}
_TURNS: Node = {"type": "array", "items": _TURN, "minItems": 1}
_TOKENS: Node = {"type": "integer", "minimum": 1}
_DRAWN: Node = {
    "model": {
        "type": "string",
        "description": "a text-to-image model, or a name that begins "
        f"{', '.join(media_jobs.OURS['ra2'][1:])}",
    },
    "n": {"type": "integer", "minimum": 1, "maximum": 10},
    "size": {"type": "string", "pattern": r"^([1-9][0-9]{2,3}x[1-9][0-9]{2,3}|auto)$"},
    "response_format": {"enum": list(images.RESPONSES)},
    "output_format": {"enum": list(images.FORMATS)},
}


def document(catalog: Catalog) -> OpenApiDocument:
    """The whole of it."""
    return OpenApiDocument(
        "Sixfold Gateway",
        "1.0.0",
        "Every service by one address, and the dialects of OpenAI and Anthropic on the same key and ledger.",
        {**_services(catalog), **_models(), **_made(), **_conversations(), **_stored()},
    )


def _body(required: Node, optional: Node | None = None) -> Node:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _services(catalog: Catalog) -> dict[str, OperationSpec]:
    """The services of this installation."""
    accepted = openapi.response("Begun, with `async`", service.AcceptedServiceSchema)
    listed = services_list.ServicesSchema
    filters = [openapi.text(name, request_log.MAX_TEXT) for name in ("model", "key", "q", "cursor")]
    status = openapi.query("status", {"enum": list(request_log.STATES)})
    switches: Node = dict.fromkeys(("async", "stream"), bool)
    return {
        "POST /api/service": OperationSpec(
            "Call a service",
            {200: openapi.result("What was made or said", service.ServiceResultSchema), 202: accepted},
            _STATUSES,
            _body({"service": Text}, {**switches, "prompt": str}),
            _ONCE,
        ),
        "POST /api/training": OperationSpec(
            "Teach a service of one's own",
            {202: openapi.response("Begun", service.AcceptedServiceSchema)},
            _STATUSES,
            openapi.object_of(catalog[trained_models.MODEL].inputs),
            _ONCE,
        ),
        "GET /api/services": OperationSpec(
            "List services", {200: openapi.response("Every service", listed)}, _STATUSES
        ),
        "GET /api/gateway/calls": OperationSpec(
            "The log of calls",
            {200: openapi.response("Newest first", openapi.page("Calls", calls=request_log.CallSchema))},
            _STATUSES,
            parameters=(openapi.limit(request_log.MAX_PAGE), *filters, status),
        ),
    }


def _models() -> dict[str, OperationSpec]:
    listed = openapi.shape("Models", data=list[routes.ModelSchema])
    return {
        "GET /v1/models": _openai("List models", openapi.response("Every model", listed)),
        "GET /v1/models/{model}": _openai("One model", openapi.response("The model", routes.ModelSchema)),
    }


def _array(items: Shape, most: int) -> Node:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


def _made() -> dict[str, OperationSpec]:
    """What the models of this server make."""
    ids = _array({"type": "integer", "minimum": 0, "maximum": 100_255}, token_arrays.MOST_TOKENS)
    most = token_arrays.MOST_ARRAYS
    given: Node = {"anyOf": [Text, _array(Text, most), ids, _array(ids, most)]}
    embed = _body({"input": given}, {"model": str, "encoding_format": {"enum": ["float", "base64"]}})
    speech: Node = {
        "model": str,
        "response_format": {"enum": list(audio.FORMATS)},
        "speed": {"type": "number", "minimum": 0.25, "maximum": 4},
    }
    edit = _body({"image": FILE, "prompt": Text}, {"mask": FILE, **_DRAWN})
    recording: Node = {"model": str, "language": str, "response_format": {"enum": list(audio.SHAPES)}}
    drawn = openapi.result("The pictures", images.ImagesSchema)
    written = openapi.response("What was said", {"type": "object", "required": ["text"]})
    written["content"]["text/plain"] = {"schema": str}
    sound = openapi.response("The sound", FILE, "audio/mpeg", "audio/ogg", "audio/wav")
    rows: dict[str, tuple[str, Node, Node]] = {
        "embeddings": ("Vectors of texts", embed, openapi.result("The vectors", embeddings.VectorsSchema)),
        "images/generations": ("Draw pictures", _body({"prompt": Text}, _DRAWN), drawn),
        "images/edits": ("Repaint a picture, or clean it", edit, drawn),
        "audio/speech": ("Speak a text", _body({"input": Text, "voice": Text}, speech), sound),
        "audio/transcriptions": (
            "Write a recording down",
            _body({"file": FILE}, recording),
            written,
        ),
    }
    return {
        f"POST /v1/{path}": _openai(
            summary, good, parameters=_ONCE, bodies={_FORM if path in _FORMS else openapi.JSON: body}
        )
        for path, (summary, body, good) in rows.items()
    }


def _conversations() -> dict[str, OperationSpec]:
    """What passes through to a model server: the fields that are read here, and all others."""
    more: Node = {"stream": bool, "max_tokens": _TOKENS}
    openai, anthropic = errors.OpenAIErrorSchema, anthropic_errors.AnthropicErrorSchema
    items: Node = {"input": {"anyOf": [Text, _TURNS]}}
    rows: dict[str, tuple[str, Shape, Node, Node]] = {
        "chat/completions": ("Answer a conversation", openai, {"messages": _TURNS}, more),
        "responses": ("Answer an input", openai, items, more),
        "messages": (
            "Answer a conversation, in Anthropic's dialect",
            anthropic,
            {"messages": _TURNS, "max_tokens": _TOKENS},
            {"stream": bool},
        ),
        "messages/count_tokens": ("Count a conversation's tokens", anthropic, {"messages": _TURNS}, {}),
    }
    good = openapi.response("The answer; with `stream`, its events", {"type": "object"})
    good["content"]["text/event-stream"] = {"schema": str}
    return {
        f"POST /v1/{path}": OperationSpec(
            summary, {200: good}, _STATUSES, _body({"model": Text, **required}, optional), _ONCE, error=error
        )
        for path, (summary, error, required, optional) in rows.items()
    }


def _stored() -> dict[str, OperationSpec]:
    """Responses that an account keeps."""
    one = openapi.response("The response, as it was told", {"type": "object", "required": ["id", "object"]})
    paging = (
        openapi.limit(100),
        openapi.query("order", {"enum": ["asc", "desc"]}),
        openapi.query("after", str),
    )
    path = "/v1/responses/{response_id}"
    return {
        f"GET {path}": _openai("Read a response again", one),
        f"DELETE {path}": _openai(
            "Delete a response", openapi.response("It is gone", stored_responses.DeletedResponseSchema)
        ),
        f"GET {path}/input_items": _openai(
            "What a response was asked with",
            openapi.response("Items", stored_responses.InputItemsSchema),
            parameters=paging,
        ),
        f"POST {path}/cancel": _openai("Always a 400: what is kept has ended", one),
    }


def _openai(
    summary: str, good: Node, *, parameters: tuple[Node, ...] = (), bodies: Node | None = None
) -> OperationSpec:
    return OperationSpec(
        summary,
        {200: good},
        _STATUSES,
        parameters=parameters,
        error=errors.OpenAIErrorSchema,
        bodies=bodies or {},
    )
