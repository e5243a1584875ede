"""Routes of the gateway: the APIs of OpenAI, Anthropic and Ollama, services, training, and calls."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway import (
    calls,
    cohere_embeddings,
    model_pages,
    provider_objects,
    rerank,
    service,
    training,
    unsupported,
)
from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.anthropic import messages
from sixfold.api.gateway.batches import routes as batch_routes
from sixfold.api.gateway.chat_documents import ChatDocuments
from sixfold.api.gateway.chat_handler import SERVICES, ChatCall, ChatHandler, SearchOutput, anthropic_headers
from sixfold.api.gateway.chat_memory import ChatMemory
from sixfold.api.gateway.cohere import routes as cohere
from sixfold.api.gateway.files import routes as file_routes
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.ollama import routes as ollama
from sixfold.api.gateway.ollama.routes import OllamaParts
from sixfold.api.gateway.openai import chat, media_jobs, text_completions
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.audio.routes import AudioRoutes
from sixfold.api.gateway.openai.conversations import routes as conversations
from sixfold.api.gateway.openai.embeddings.routes import DIMENSIONS, EmbeddingRoutes
from sixfold.api.gateway.openai.images import sizes as image_sizes
from sixfold.api.gateway.openai.images.routes import ImageRoutes
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.api.gateway.openai.moderations import ModerationRoutes
from sixfold.api.gateway.openai.passthrough import UpstreamPassthrough
from sixfold.api.gateway.openai.realtime import routes as realtime
from sixfold.api.gateway.openai.realtime.services import RealtimeParts
from sixfold.api.gateway.openai.responses import background, compaction, dialect
from sixfold.api.gateway.openai.responses.background import BackgroundResponses
from sixfold.api.gateway.openai.responses.mcp.handler import McpResponseHandler
from sixfold.api.gateway.openai.responses.mcp.tools import McpPlanner
from sixfold.api.gateway.openai.responses.stored import ResponseStorage, StoredResponseRoutes
from sixfold.api.gateway.openai.videos import models as video_models
from sixfold.api.gateway.openai.videos import routes as videos
from sixfold.api.gateway.provider_objects import ObjectGuard
from sixfold.api.gateway.vector_stores import routes as vector_stores
from sixfold.api.gateway.vector_stores.file_search import FileSearchTool
from sixfold.api.gateway.web_search import WebSearchTool
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import rfc3339
from sixfold.core.gateway.capabilities import EMBEDDINGS, ServedModel
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.ports import COMPACTION, GatewayRequest
from sixfold.core.gateway.realtime.memory import RealtimeServerMemory
from sixfold.errors import EngineUnavailable, NotFound, UnknownModel
from sixfold.web import bodies, requests
from sixfold.web import responses as web_responses
from sixfold.web.raw_asgi import RawHandler, RawRequest, RawResponse
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

# A key limited to one of these services may use every model of every model server.
_ANY_MODEL_SERVICES = {*SERVICES, *media_jobs.MODEL_ALIASES}
# Clients require a date, which this server does not store for models.
_CREATED = 1_763_683_200
# What the models of this server, and OpenAI's names for them, can do.
_OWN_CAPABILITIES: Mapping[str, str] = {
    name: capability
    for model, capability in {
        "embeddings": EMBEDDINGS,
        "ra2": "images",
        "tts": "speech",
        "stt": "transcription",
    }.items()
    for name in (model, *media_jobs.OPENAI_NAMES[model])
}


class ModelRoutes:
    """`/v1/models`: every model name that a key can use, in the formats of OpenAI and Anthropic at once.

    Cohere's libraries also get Cohere's format.
    """

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._services = services
        self._auth = auth
        self._gateway = services.gateway
        # Models that are found later, such as checkpoints, are added to these.
        media_models = (*image_sizes.names(services.catalog), *video_models.names(services.catalog))
        self._media_models = frozenset(media_models)
        self._own = tuple(dict.fromkeys((*media_jobs.MODEL_ALIASES, *media_models)))
        self._videos = frozenset(video_models.names(services.catalog))

    async def page(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        listing = self._gateway.router.listing()
        rows = [self._row(name, owner, listing.get(name)) for name, owner in self.visible(principal)]
        return web_responses.json(model_pages.page(request, rows))

    async def show(self, request: Request) -> Response:
        """Return one model; raises `UnknownModel`."""
        principal = await self._auth.enter(request)
        model = requests.path_value(request, "model")
        for name, owner in self.visible(principal):
            if name == model:
                listed_model = self._gateway.router.listing().get(name)
                return web_responses.json(model_pages.model(request, self._row(name, owner, listed_model)))
        raise UnknownModel(f"The model {model[:100]!r} was not found")

    def _row(self, name: str, owner: str, model: ServedModel | None) -> ModelSchema:
        row = _row(name, owner, model)
        if model is None and (capability := self._own_capability(name)):
            row["capabilities"] = [capability]
            if capability == EMBEDDINGS:
                row["dimensions"] = DIMENSIONS
        return row

    def _own_capability(self, name: str) -> str:
        if name in self._videos:
            return "videos"
        is_image = image_sizes.is_name(self._services.catalog, name)
        return _OWN_CAPABILITIES.get(name) or ("images" if is_image else "")

    def visible(self, principal: Principal) -> list[tuple[str, str]]:
        """Return the name and owner of each model of the gateway and of this server that a key may use."""
        gateway_models = self._gateway.router.models()
        gateway_names = {name for name, _ in gateway_models}
        allowed = principal.scope.services
        custom = self._services.catalog.discovered
        models = [
            name
            for name in dict.fromkeys((*self._own, *custom))
            if (not allowed or name in allowed)
            and (
                name in custom
                or (name in self._media_models and name in self._services.catalog)
                or self._serves(name, name)
            )
        ]
        aliases = [
            name
            for model in models
            for name in media_jobs.OPENAI_NAMES.get(model, ())
            if self._serves(model, name)
        ]
        own_models = [(name, "sixfold") for name in (*models, *aliases) if name not in gateway_names]
        if not allowed:
            return [*gateway_models, *own_models]
        # The name of a model does not say which service it belongs to.
        any_gateway_model = not _ANY_MODEL_SERVICES.isdisjoint(allowed)
        return [row for row in gateway_models if any_gateway_model or row[0] in allowed] + own_models

    def _serves(self, model: str, name: str) -> bool:
        """Return whether an engine that is allowed to serve `model` under `name` is ready."""
        full_only = media_jobs.is_full_only(model, name)
        terms = msgspec.structs.replace(self._services.predictions.terms, full_only=full_only)
        try:
            self._services.catalog[model].choose({}, terms)
        except (EngineUnavailable, NotFound):
            return False
        return True


class ModelSchema(TypedDict):
    """A model name, with the fields of OpenAI and of Anthropic, and the data that a model server reports."""

    id: str
    object: Literal["model"]
    type: Literal["model"]
    created: int
    created_at: str
    owned_by: str
    display_name: str
    capabilities: NotRequired[list[str]]
    context_length: NotRequired[int]
    max_output_tokens: NotRequired[int]
    dimensions: NotRequired[int]


def _row(name: str, owner: str, model: ServedModel | None) -> ModelSchema:
    row: ModelSchema = {
        "id": name,
        "object": "model",
        "type": "model",
        "created": _CREATED,
        "created_at": rfc3339(_CREATED * 1_000_000),
        "owned_by": owner,
        "display_name": name,
    }
    if model is not None:
        row["capabilities"] = sorted(model.capabilities)
        if model.context:
            row["context_length"] = model.context
        if model.max_output:
            row["max_output_tokens"] = model.max_output
        if model.dimensions:
            row["dimensions"] = model.dimensions
    return row


class ChatRoutes:
    """Handlers for chats, text completions, responses and messages, and for counting their tokens."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth, gateway: Gateway) -> None:
        self._auth = auth
        self._objects = ObjectGuard(services.responses, gateway.router)
        self._gateway = gateway
        self._storage = ResponseStorage(services)
        self._background = BackgroundResponses(services)
        self._compactions = services.compactions
        self._chat = ChatHandler(services, gateway, chat.DIALECT)
        self._texts = ChatHandler(services, gateway, text_completions.DIALECT)
        self._searched_chat = ChatHandler(services, gateway, chat.SEARCH_DIALECT)
        self._responses = ChatHandler(services, gateway, dialect.DIALECT)
        self._compact = ChatHandler(services, gateway, compaction.DIALECT)
        self._summary = ChatHandler(services, gateway, compaction.SUMMARY_DIALECT)
        self._tool_responses = ChatHandler(services, gateway, dialect.TOOL_DIALECT)
        self._file_search = FileSearchTool(services.vector_stores.search, gateway.router)
        self._web_search = WebSearchTool(services.web_search, gateway.router)
        self._services = services
        self._mcp = McpPlanner(services.tool_servers, gateway.router)
        self._messages = ChatHandler(services, gateway, messages.DIALECT)
        self._memory = ChatMemory(services.memory)
        self._documents = ChatDocuments(services, gateway.router, services.document_texts)

    async def chat(self, request: RawRequest) -> Response | RawResponse:
        """`POST /v1/chat/completions`."""
        principal = await self._auth.admit(request.headers)
        body = await request.body()
        raw = await self._documents.inline(principal, body, "chat")
        raw, added = await self._memory.add(request, principal, raw, "chat")
        call, handler = await bodies.parse(chat.parse_call, raw), self._chat
        searched = await self._web_search.run(principal, request.request_id, raw, "chat")
        if searched is not None:
            web, raw = searched
            call = replace(await bodies.parse(chat.parse_call, raw), searches=(web,))
            handler = self._searched_chat
        call = await self._objects.admit(principal, call, raw, "chat")
        if added is None:
            return await handler.answer(request, principal, call, raw, sent=body)
        return added.on(await handler.answer(request, principal, added.call(call), raw, sent=body))

    async def complete(self, request: RawRequest) -> Response | RawResponse:
        """`POST /v1/completions`."""
        principal = await self._auth.admit(request.headers)
        raw = await request.body()
        call = await bodies.parse(text_completions.parse_call, raw)
        return await self._texts.answer(request, principal, call, raw)

    async def responses(self, request: RawRequest) -> Response | RawResponse:
        """`POST /v1/responses`."""
        principal = await self._auth.admit(request.headers)
        body = await request.body()
        raw = await self._documents.inline(principal, body, "responses")
        chat_call, handler, sent = await bodies.parse(dialect.parse_call, raw), self._responses, raw
        if chat_call.background:
            if chat_call.previous or chat_call.conversation:
                await self._storage.with_earlier_items(principal, chat_call, raw)
            self._responses.check(request, principal, chat_call, raw)
            # The line of the batch plans the tools again.
            await self._mcp.plan(principal, raw)
            return await self._background.create(request, principal, chat_call, body)
        raw, added = await self._memory.add(request, principal, raw, "responses")
        if raw is not sent:
            chat_call = replace(await bodies.parse(dialect.parse_call, raw), echo=chat_call.echo)
        searches: tuple[SearchOutput, ...] = ()
        first = 1
        if (files := await self._file_search.run(principal, raw)) is not None:
            searches, raw, first = (files[0],), files[1], 1 + len(files[0].hits)
        web = await self._web_search.run(principal, request.request_id, raw, "responses", first)
        if web is not None:
            searches, raw = (*searches, web[0]), web[1]
        if (planned := await self._mcp.plan(principal, raw)) is not None:
            plan, raw = planned
            handler = McpResponseHandler(self._services, plan)
        elif searches:
            handler = self._tool_responses
        if handler is not self._responses:
            echo = chat_call.echo
            chat_call = replace(await bodies.parse(dialect.parse_call, raw), echo=echo, searches=searches)

        async def respond(call: ChatCall, joined: bytes) -> Response | RawResponse:
            call = call if added is None else added.call(call)
            return await handler.answer(request, principal, call, joined, sent=sent)

        response = await self._storage.answer(
            principal, chat_call, raw, request.request_id, respond, background.response_id(request)
        )
        return response if added is None else added.on(response)

    async def compact(self, request: RawRequest) -> Response | RawResponse:
        """`POST /v1/responses/compact`."""
        principal = await self._auth.admit(request.headers)
        body = await request.body()
        raw = await self._documents.inline(principal, body, "responses")
        call = await bodies.parse(compaction.parse_call, raw)
        call, raw = await self._storage.with_earlier_items(principal, call, raw, COMPACTION)
        policy = provider_objects.policy(self._gateway.router, principal, call.model, COMPACTION)
        handler = self._compact if policy.servers else self._summary
        encrypt = functools.partial(self._compactions.encrypt, principal.account_id)
        call = compaction.summary_call(call, raw, encrypt)
        return await handler.answer(request, principal, call, raw, sent=body)

    async def count_response(self, request: Request) -> Response:
        """`POST /v1/responses/input_tokens`; free of charge."""
        principal = await self._auth.enter(request)
        raw = await self._documents.inline(principal, await request.body(), "responses")
        call = await bodies.parse(functools.partial(dialect.parse_call, counting=True), raw)
        call, raw = await self._storage.with_earlier_items(principal, call, raw)
        gateway_request = GatewayRequest(
            caller=principal,
            request_id=requests.request_id(request),
            endpoint="responses",
            wire="responses",
            model=call.model,
            body=dialect.countable(raw),
            parse=call.parse,
            services=SERVICES,
        )
        tokens = await self._gateway.count_tokens(gateway_request)
        return web_responses.json({"object": "response.input_tokens", "input_tokens": tokens})

    async def messages(self, request: RawRequest) -> Response | RawResponse:
        """`POST /v1/messages`."""
        principal = await self._auth.admit(request.headers)
        body = await request.body()
        raw = await self._documents.inline(principal, body, "messages")
        raw, added = await self._memory.add(request, principal, raw, "messages")
        call = await bodies.parse(messages.parse_call, raw)
        call = await self._objects.admit(principal, call, raw, "messages")
        if added is None:
            return await self._messages.answer(request, principal, call, raw, sent=body)
        return added.on(await self._messages.answer(request, principal, added.call(call), raw, sent=body))

    async def count(self, request: Request) -> Response:
        """`POST /v1/messages/count_tokens`; free of charge."""
        principal = await self._auth.enter(request)
        raw = await self._documents.inline(principal, await request.body(), "messages")
        chat_call = await bodies.parse(functools.partial(messages.parse_call, counting=True), raw)
        await self._objects.check(principal, chat_call.model, raw, "messages")
        gateway_request = GatewayRequest(
            caller=principal,
            request_id=requests.request_id(request),
            endpoint="messages",
            wire="messages",
            model=chat_call.model,
            body=raw,
            parse=chat_call.parse,
            services=SERVICES,
            headers=anthropic_headers(dict(request.headers.raw)),
        )
        result = {"input_tokens": await self._gateway.count_tokens(gateway_request)}
        return web_responses.json(result, headers={"request-id": gateway_request.request_id})


def _response_routes(
    chat_routes: ChatRoutes, stored: StoredResponseRoutes, body: int
) -> tuple[RouteEntry, ...]:
    return (
        RouteEntry("/v1/responses", {"POST": RawHandler(chat_routes.responses)}, body, access=rights.RUN),
        RouteEntry(
            "/v1/responses/input_tokens", {"POST": chat_routes.count_response}, body, access=rights.RUN
        ),
        RouteEntry(
            "/v1/responses/compact", {"POST": RawHandler(chat_routes.compact)}, body, access=rights.RUN
        ),
        RouteEntry(
            "/v1/responses/{response_id}", {"GET": stored.show, "DELETE": stored.delete}, access=rights.RUN
        ),
        RouteEntry("/v1/responses/{response_id}/input_items", {"GET": stored.input_items}, access=rights.RUN),
        RouteEntry("/v1/responses/{response_id}/cancel", {"POST": stored.cancel}, access=rights.RUN),
    )


def build_apis(services: WebServices) -> tuple[ApiGroup, ...]:
    gateway, auth = services.gateway, CachedKeyAuth(services)
    chat_routes, models = ChatRoutes(services, auth, gateway), ModelRoutes(services, auth)
    body, runner = services.settings.inline_body_bytes, MediaJobRunner(services, auth)
    forwarding = UpstreamPassthrough(services, functools.partial(image_sizes.is_name, services.catalog))
    images, audio = ImageRoutes(services, runner, forwarding), AudioRoutes(runner, forwarding)
    embeddings, moderations = (
        EmbeddingRoutes(runner, forwarding),
        ModerationRoutes(services, runner, forwarding),
    )
    stored = StoredResponseRoutes(services, auth)
    openai = ApiGroup(
        "openai",
        openai_errors.dialect,
        (
            RouteEntry("/v1/models", {"GET": models.page}, access=rights.RUN),
            RouteEntry("/v1/models/{model:path}", {"GET": models.show}, access=rights.RUN),
            RouteEntry(
                "/v1/chat/completions", {"POST": RawHandler(chat_routes.chat)}, body, access=rights.RUN
            ),
            RouteEntry(
                "/v1/completions", {"POST": RawHandler(chat_routes.complete)}, body, access=rights.RUN
            ),
            *_response_routes(chat_routes, stored, body),
            RouteEntry("/v1/embeddings", {"POST": embeddings.embed}, body, access=rights.RUN),
            RouteEntry("/v1/images/generations", {"POST": images.generate}, body, access=rights.RUN),
            RouteEntry("/v1/images/edits", {"POST": images.edit}, body, access=rights.RUN),
            RouteEntry("/v1/audio/speech", {"POST": audio.speak}, body, access=rights.RUN),
            RouteEntry("/v1/audio/transcriptions", {"POST": audio.transcribe}, body, access=rights.RUN),
            RouteEntry("/v1/audio/translations", {"POST": audio.translate}, body, access=rights.RUN),
            RouteEntry("/v1/moderations", {"POST": moderations.moderate}, body, access=rights.RUN),
        ),
        prefixes=("/v1/",),
        reserved=unsupported.RESERVED,
        variants={unsupported.ANTHROPIC_HEADER: anthropic_errors.dialect},
        missing=unsupported.error,
        wrong_method=unsupported.method_error,
    )
    anthropic = ApiGroup(
        "anthropic",
        anthropic_errors.dialect,
        (
            RouteEntry("/v1/messages", {"POST": RawHandler(chat_routes.messages)}, body, access=rights.RUN),
            RouteEntry("/v1/messages/count_tokens", {"POST": chat_routes.count}, body, access=rights.RUN),
        ),
        prefixes=("/v1/messages",),
    )
    return (
        openai,
        anthropic,
        conversations.build_api(services, auth),
        videos.build_api(services, auth, runner),
        realtime.build_api(services, RealtimeParts(auth, runner, forwarding, RealtimeServerMemory())),
        file_routes.build_api(services, auth),
        vector_stores.build_api(services, auth),
        *batch_routes.build_apis(services, auth),
        ollama.build_api(services, OllamaParts(auth, models.visible, runner, embeddings)),
        rerank.build_api(
            services,
            auth,
            (*cohere_embeddings.routes(services, runner, embeddings), *cohere.routes(services, auth)),
        ),
        calls.build_api(services),
        service.build_api(services),
        training.build_api(services),
    )
