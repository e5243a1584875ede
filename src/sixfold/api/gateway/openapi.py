"""The OpenAPI document of the gateway: services, and the APIs of OpenAI, Anthropic and Ollama."""

from __future__ import annotations

from sixfold.api.gateway import (
    calls,
    chat_memory,
    cohere_embeddings,
    list_pages,
    rerank,
    routes,
    service,
    services_list,
)
from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.batches import openapi as batch_descriptions
from sixfold.api.gateway.cohere import responses as cohere
from sixfold.api.gateway.files import openapi as file_descriptions
from sixfold.api.gateway.ollama import openapi as ollama
from sixfold.api.gateway.openai import errors, media_jobs, moderations
from sixfold.api.gateway.openai.audio import routes as audio
from sixfold.api.gateway.openai.conversations import routes as conversations
from sixfold.api.gateway.openai.embeddings import routes as embeddings
from sixfold.api.gateway.openai.embeddings import token_arrays
from sixfold.api.gateway.openai.images import routes as images
from sixfold.api.gateway.openai.realtime import routes as realtime
from sixfold.api.gateway.openai.responses import stored
from sixfold.api.gateway.openai.videos import routes as videos
from sixfold.api.gateway.vector_stores import openapi as vector_stores
from sixfold.core.catalog import trained_models
from sixfold.core.catalog.models import Catalog
from sixfold.web import openapi
from sixfold.web.openapi import FILE, Node, OpenApiDocument, OperationSpec, Shape, Text

_STATUSES = (400, 401, 402, 403, 404, 409, 429, 502, 503)
_ONCE = (openapi.IDEMPOTENCY,)
_WITH_MEMORY = frozenset({"chat/completions", "responses", "messages"})
_MEMORY: Node = {
    "name": chat_memory.HEADER,
    "in": "header",
    "required": False,
    "description": "Adds what the memory knows about the last message: `*` or names of collections, and a "
    "budget, as in `notes, team; tokens=1500`. The key needs `memory.read`",
    "schema": {"type": "string", "minLength": 1, "maxLength": chat_memory.MAX_VALUE},
}
_ADDED_MEMORY: Node = {
    "schema": {"type": "string"},
    "description": 'With memory: what was added, as in `tokens=320; pages=2; slugs="people/ann"`',
}
_PAGING = (openapi.limit(100), openapi.query("order", {"enum": ["asc", "desc"]}), openapi.query("after", str))
_FORM, _FORMS = (
    "multipart/form-data",
    frozenset({"images/edits", "audio/transcriptions", "audio/translations"}),
)
_TURN: Node = {"type": "object", "required": ["role", "content"]}
_TURNS: Node = {"type": "array", "items": _TURN, "minItems": 1}
_IDS: Node = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPTS: Node = {
    "anyOf": [Text, _IDS, *({"type": "array", "items": each, "minItems": 1} for each in (Text, _IDS))]
}
_TOKENS: Node = {"type": "integer", "minimum": 1}
_IMAGE_OPTIONS: Node = {
    "model": {
        "type": "string",
        "description": "a text-to-image model, or a name that begins "
        f"{', '.join(media_jobs.MODEL_ALIASES['ra2'][1:])}",
    },
    "n": {"type": "integer", "minimum": 1, "maximum": 10},
    "size": {"type": "string", "pattern": r"^([1-9][0-9]{2,3}x[1-9][0-9]{2,3}|auto)$"},
    "response_format": {"enum": list(images.RESPONSES)},
    "output_format": {"enum": list(images.FORMATS)},
    "background": {"enum": list(images.BACKGROUNDS)},
    "stream": bool,
    "partial_images": {"type": "integer", "minimum": 0, "maximum": 3},
}


def document(catalog: Catalog) -> OpenApiDocument:
    return OpenApiDocument(
        "Sixfold Gateway",
        "1.0.0",
        "All services at one URL, and the APIs of OpenAI, Anthropic and Ollama with the same keys.",
        {
            **_services(catalog),
            **_models(),
            **_media(),
            **_chats(),
            **_stored(),
            **_conversations(),
            **_realtime(),
            **_rerank(),
            **_cohere_embeddings(),
            **_cohere_chats(),
            **_videos(),
            **file_descriptions.operations(),
            **vector_stores.operations(),
            **batch_descriptions.operations(),
            **ollama.operations(),
        },
    )


def _body(required: Node, optional: Node | None = None) -> Node:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _services(catalog: Catalog) -> dict[str, OperationSpec]:
    accepted = openapi.response("Accepted, with `async`", service.AcceptedServiceSchema)
    services_schema = services_list.ServicesSchema
    filters = [openapi.text(name, calls.MAX_TEXT) for name in ("model", "key", "q", "cursor")]
    status = openapi.query("status", {"enum": list(calls.STATES)})
    flags: Node = dict.fromkeys(("async", "stream"), bool)
    return {
        "POST /api/service": OperationSpec(
            "Call a service",
            {200: openapi.result("The result", service.ServiceResultSchema), 202: accepted},
            _STATUSES,
            _body({"service": Text}, {**flags, "prompt": str}),
            _ONCE,
        ),
        "POST /api/training": OperationSpec(
            "Train a custom service",
            {202: openapi.response("Accepted", service.AcceptedServiceSchema)},
            _STATUSES,
            openapi.object_of(catalog[trained_models.MODEL].inputs),
            _ONCE,
        ),
        "GET /api/services": OperationSpec(
            "List services",
            {200: openapi.response("Every service", services_schema)},
            _STATUSES,
            parameters=(openapi.limit(200, 100), openapi.text("cursor", 300)),
        ),
        "GET /api/gateway/calls": OperationSpec(
            "List calls",
            {200: openapi.response("Newest first", openapi.page("Calls", calls=calls.CallSchema))},
            _STATUSES,
            parameters=(openapi.limit(calls.MAX_PAGE), *filters, status),
        ),
    }


def _models() -> dict[str, OperationSpec]:
    models_schema = openapi.shape("Models", data=list[routes.ModelSchema])
    paging = (
        openapi.limit(list_pages.MAX_PAGE),
        openapi.text("after_id", list_pages.MAX_TEXT),
        openapi.text("before_id", list_pages.MAX_TEXT),
    )
    return {
        "GET /v1/models": _openai(
            "List models", openapi.response("Every model, or a page", models_schema), parameters=paging
        ),
        "GET /v1/models/{model}": _openai("Get a model", openapi.response("The model", routes.ModelSchema)),
    }


def _array(items: Shape, max_items: int) -> Node:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": max_items}


def _media() -> dict[str, OperationSpec]:
    ids = _array({"type": "integer", "minimum": 0, "maximum": 100_255}, token_arrays.MAX_TOKENS)
    max_arrays = token_arrays.MAX_ARRAYS
    embedding_input: Node = {"anyOf": [Text, _array(Text, max_arrays), ids, _array(ids, max_arrays)]}
    embed = _body(
        {"input": embedding_input}, {"model": str, "encoding_format": {"enum": ["float", "base64"]}}
    )
    speech: Node = {
        "model": str,
        "stream_format": {"enum": ["audio", "sse"]},
        "response_format": {"enum": list(audio.FORMATS)},
        "speed": {"type": "number", "minimum": 0.25, "maximum": 4},
    }
    edit = _body({"image": FILE, "prompt": Text}, {"mask": FILE, **_IMAGE_OPTIONS})
    recording: Node = {
        "model": str,
        "language": str,
        "response_format": {"enum": list(audio.TRANSCRIPT_FORMATS)},
        "stream": bool,
    }
    generated = openapi.result("The images", images.ImagesSchema)
    transcript = openapi.response("The transcript", {"type": "object", "required": ["text"]})
    transcript["content"]["text/plain"] = {"schema": str}
    moderated = openapi.response("The judgements", moderations.ModerationsSchema)
    audio_file = openapi.response("The audio file", FILE, "audio/mpeg", "audio/ogg", "audio/wav")
    for good in (generated, transcript, audio_file):
        good["content"]["text/event-stream"] = {"schema": {}}
    rows: dict[str, tuple[str, Node, Node]] = {
        "embeddings": ("Create embeddings", embed, openapi.result("The vectors", embeddings.VectorsSchema)),
        "images/generations": ("Generate images", _body({"prompt": Text}, _IMAGE_OPTIONS), generated),
        "images/edits": ("Edit an image", edit, generated),
        "audio/speech": ("Create speech", _body({"input": Text, "voice": Text}, speech), audio_file),
        "audio/transcriptions": ("Create a transcription", _body({"file": FILE}, recording), transcript),
        "audio/translations": (
            "Translate a recording into English",
            _body({"file": FILE}, recording),
            transcript,
        ),
        "moderations": ("Moderate inputs", _body({"input": {}}, {"model": str}), moderated),
    }
    return {
        f"POST /v1/{path}": _openai(
            summary, good, parameters=_ONCE, bodies={_FORM if path in _FORMS else openapi.JSON: body}
        )
        for path, (summary, body, good) in rows.items()
    }


def _chats() -> dict[str, OperationSpec]:
    """Return the chat operations, with the fields that this server reads; other fields are forwarded."""
    optional_fields: Node = {"stream": bool, "max_tokens": _TOKENS}
    openai, anthropic = errors.OpenAIErrorSchema, anthropic_errors.AnthropicErrorSchema
    items: Node = {"input": {"anyOf": [Text, _TURNS]}}
    rows: dict[str, tuple[str, Shape, Node, Node]] = {
        "chat/completions": ("Create a chat completion", openai, {"messages": _TURNS}, optional_fields),
        "completions": ("Create a text completion", openai, {"prompt": _PROMPTS}, optional_fields),
        "responses": ("Create a response", openai, items, optional_fields),
        "messages": (
            "Create a message",
            anthropic,
            {"messages": _TURNS, "max_tokens": _TOKENS},
            {"stream": bool},
        ),
        "messages/count_tokens": ("Count the tokens of a message", anthropic, {"messages": _TURNS}, {}),
    }
    text = "The response, or its events with `stream`"
    good = openapi.response(text, {"type": "object"})
    with_memory = openapi.response(text, {"type": "object"}, headers={chat_memory.HEADER: _ADDED_MEMORY})
    for each in (good, with_memory):
        each["content"]["text/event-stream"] = {"schema": str}
    return {
        f"POST /v1/{path}": OperationSpec(
            summary,
            {200: with_memory if path in _WITH_MEMORY else good},
            _STATUSES,
            _body({"model": Text, **required}, optional),
            (*_ONCE, _MEMORY) if path in _WITH_MEMORY else _ONCE,
            error=error,
        )
        for path, (summary, error, required, optional) in rows.items()
    }


def _rerank() -> dict[str, OperationSpec]:
    document: Node = {"anyOf": [Text, {"type": "object"}]}
    optional: Node = {
        "model": str,
        "top_n": {"type": "integer", "minimum": 1},
        "return_documents": bool,
        "rank_fields": {"type": "array", "items": Text, "maxItems": rerank.MAX_RANK_FIELDS},
        "max_tokens_per_doc": {"type": "integer", "minimum": 1},
    }
    body = _body({"query": Text, "documents": _array(document, rerank.MAX_DOCUMENTS)}, optional)
    return {
        f"POST /{version}/rerank": OperationSpec(
            "Rank documents by relevance",
            {200: openapi.result("The ranking", rerank.RerankSchema)},
            _STATUSES,
            body,
            _ONCE,
            error=rerank.RerankErrorSchema,
        )
        for version in ("v1", "v2")
    }


def _cohere_embeddings() -> dict[str, OperationSpec]:
    optional: Node = {
        "texts": _array(Text, cohere_embeddings.MAX_TEXTS),
        "inputs": {"type": "array", "items": {"type": "object"}},
        "embedding_types": {"type": "array", "items": {"enum": ["float"]}},
        "output_dimension": {"type": "integer"},
        "input_type": str,
        "truncate": str,
    }
    return {
        f"POST /{version}/embed": OperationSpec(
            "Embedding vectors of texts",
            {200: openapi.result("The vectors", cohere_embeddings.EmbedSchema)},
            _STATUSES,
            _body({"model": str}, optional),
            _ONCE,
            error=rerank.RerankErrorSchema,
        )
        for version in ("v1", "v2")
    }


def _cohere_chats() -> dict[str, OperationSpec]:
    text = "The response; with `stream`, its events"
    optional: Node = {
        "stream": bool,
        "max_tokens": _TOKENS,
        "seed": int,
        "temperature": {"type": "number"},
        "p": {"type": "number"},
        "frequency_penalty": {"type": "number"},
        "presence_penalty": {"type": "number"},
        "stop_sequences": {"type": "array", "items": str},
        "response_format": {"type": "object"},
    }
    objects: Node = {"type": "array", "items": {"type": "object"}}
    first = _body({"message": Text}, {"model": Text, "preamble": str, "chat_history": objects, **optional})
    second = _body({"model": Text, "messages": _TURNS}, {"tools": objects, **optional})
    return {
        f"POST /{version}/chat": OperationSpec(
            "A chat in Cohere's format",
            {200: openapi.result(text, schema)},
            _STATUSES,
            body,
            _ONCE,
            error=rerank.RerankErrorSchema,
        )
        for version, body, schema in (
            ("v1", first, cohere.CohereTextSchema),
            ("v2", second, cohere.CohereChatSchema),
        )
    }


def _stored() -> dict[str, OperationSpec]:
    response = openapi.response(
        "The response, as it was sent", {"type": "object", "required": ["id", "object"]}
    )
    path = "/v1/responses/{response_id}"
    response_or_events = openapi.response(
        "The response, as it was sent; with `stream`, its events",
        {"type": "object", "required": ["id", "object"]},
    )
    response_or_events["content"]["text/event-stream"] = {"schema": str}
    stream_options = (
        openapi.query("stream", {"enum": ["true", "false"]}),
        openapi.query("starting_after", {"type": "integer", "minimum": 0}),
    )
    earlier: Node = {"conversation": Text, "previous_response_id": Text}
    bodies = {openapi.JSON: _body({"model": Text}, {"input": {"anyOf": [Text, _TURNS]}, **earlier})}
    counted = openapi.shape("InputTokens", object=str, input_tokens=int)
    return {
        "POST /v1/responses/input_tokens": _openai(
            "Count the input tokens of a response",
            openapi.response("The number of tokens", counted),
            bodies=bodies,
        ),
        "POST /v1/responses/compact": _openai(
            "Compact a conversation",
            openapi.response("The items that replace it", {"type": "object", "required": ["output"]}),
            parameters=_ONCE,
            bodies=bodies,
        ),
        f"GET {path}": _openai("Get a response", response_or_events, parameters=stream_options),
        f"DELETE {path}": _openai(
            "Delete a response", openapi.response("Deleted", stored.DeletedResponseSchema)
        ),
        f"GET {path}/input_items": _openai(
            "List the input items of a response",
            openapi.response("Items", stored.InputItemsSchema),
            parameters=_PAGING,
        ),
        f"POST {path}/cancel": _openai("Cancel a background response", response),
    }


def _videos() -> dict[str, OperationSpec]:
    fields: Node = {
        "model": str,
        "seconds": {"anyOf": [Text, {"type": "number"}]},
        "size": {"type": "string", "pattern": r"^([1-9][0-9]{2,3}x[1-9][0-9]{2,3}|auto)$"},
    }
    form = _body({"prompt": Text}, {**fields, "input_reference": FILE})
    reference: Node = {"type": "object", "properties": {"image_url": Text, "file_id": Text}}
    body = _body({"prompt": Text}, {**fields, "input_reference": reference})
    video_response = openapi.response("The video", videos.VideoJobSchema)
    page = openapi.response("Videos", videos.VideoJobsSchema)
    content = openapi.response("The file", FILE, "video/mp4", "video/webm", "image/webp", "image/jpeg")
    variant = openapi.query("variant", {"enum": list(videos.VARIANTS)})
    path, refused = "/v1/videos/{video_id}", "Always returns 400: the models cannot change a video"
    changes = (f"{path}/remix", "/v1/videos/edits", "/v1/videos/extensions", "/v1/videos/characters")
    return {
        "GET /v1/videos": _openai("List videos", page, parameters=_PAGING),
        "POST /v1/videos": _openai(
            "Create a video", video_response, parameters=_ONCE, bodies={openapi.JSON: body, _FORM: form}
        ),
        f"GET {path}": _openai("Get a video", video_response),
        f"DELETE {path}": _openai("Delete a video", openapi.response("Deleted", videos.DeletedVideoSchema)),
        f"GET {path}/content": _openai(
            "Get the file of a video, or a still image of it", content, parameters=(variant,)
        ),
        **{f"POST {change}": _openai(refused, video_response) for change in changes},
    }


def _realtime() -> dict[str, OperationSpec]:
    seconds: Node = {"type": "integer", "minimum": 10, "maximum": 7200}
    expires: Node = {"type": "object", "properties": {"anchor": {"const": "created_at"}, "seconds": seconds}}
    return {
        f"POST {realtime.SECRETS_PATH}": _openai(
            "Create a client secret for realtime sessions",
            openapi.response("The secret", realtime.ClientSecretSchema),
            bodies={openapi.JSON: _body({}, {"expires_after": expires, "session": {"type": "object"}})},
        )
    }


def _conversations() -> dict[str, OperationSpec]:
    item: Node = {"type": "object", "properties": {"type": str, "role": str}}
    items: Node = {"items": {"type": "array", "items": item, "maxItems": conversations.MAX_ITEMS}}
    metadata: Node = {
        "metadata": {"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string"}}
    }
    conversation_response = openapi.response("The conversation", conversations.ConversationSchema)
    page = openapi.response("Items", conversations.ConversationItemsSchema)
    deleted = openapi.response("Deleted", conversations.DeletedConversationSchema)
    path = "/v1/conversations/{conversation_id}"
    return {
        "POST /v1/conversations": _openai(
            "Create a conversation",
            conversation_response,
            parameters=_ONCE,
            bodies={openapi.JSON: _body({}, {**items, **metadata})},
        ),
        f"GET {path}": _openai("Get a conversation", conversation_response),
        f"POST {path}": _openai(
            "Replace the metadata of a conversation",
            conversation_response,
            bodies={openapi.JSON: _body(metadata)},
        ),
        f"DELETE {path}": _openai("Delete a conversation", deleted),
        f"GET {path}/items": _openai("List the items of a conversation", page, parameters=_PAGING),
        f"POST {path}/items": _openai(
            "Append items to a conversation", page, parameters=_ONCE, bodies={openapi.JSON: _body(items)}
        ),
        f"GET {path}/items/{{item_id}}": _openai(
            "Get an item", openapi.response("The item", conversations.ConversationItemSchema)
        ),
        f"DELETE {path}/items/{{item_id}}": _openai("Delete an item", conversation_response),
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
