"""The routes of Ollama's API: `OLLAMA_HOST` with the path `/ollama` makes its clients use this server."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sixfold import errors
from sixfold.api.gateway.chat_handler import ChatCall, ChatHandler
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.ollama import requests as ollama_requests
from sixfold.api.gateway.ollama import responses as ollama_responses
from sixfold.api.gateway.ollama.embeddings import OllamaEmbeddings
from sixfold.api.gateway.ollama.models import OllamaModels
from sixfold.api.gateway.ollama.texts import OllamaTexts
from sixfold.api.gateway.openai.embeddings.routes import EmbeddingRoutes
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import ChatRequest
from sixfold.web import bodies, responses
from sixfold.web.raw_asgi import RawHandler, RawRequest, RawResponse
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

# The version of Ollama whose API this is; clients enable features by it.
VERSION = "0.13.0"
_RUNNING = "Ollama is running"
_UNCHANGEABLE = (
    "This server does not pull, push, create, copy or delete models: the operator adds them on the model "
    "servers, and GET /ollama/api/tags lists them"
)


class _ModelName(msgspec.Struct):
    model: str = ""
    # The older name of the field.
    name: str = ""


class OllamaParts(msgspec.Struct, frozen=True):
    """Parts shared with OpenAI's API; `visible` returns the names and owners of a key's models."""

    auth: CachedKeyAuth
    visible: Callable[[Principal], list[tuple[str, str]]]
    runner: MediaJobRunner
    embeddings: EmbeddingRoutes


class OllamaRoutes:
    """Chats, completions and lists of models."""

    def __init__(self, services: WebServices, parts: OllamaParts, models: OllamaModels) -> None:
        self._auth = parts.auth
        self._models = models
        self._chat = ChatHandler(services, services.gateway, ollama_responses.CHAT)
        self._texts = OllamaTexts(services)
        self._generate = ChatHandler(services, services.gateway, ollama_responses.GENERATE)

    async def root(self, _request: Request) -> Response:
        """Return the text by which clients recognize Ollama."""
        return PlainTextResponse(_RUNNING)

    async def version(self, _request: Request) -> Response:
        return responses.json({"version": VERSION})

    async def tags(self, request: Request) -> Response:
        return responses.json({"models": self._models.tags(await self._auth.enter(request))})

    async def loaded(self, request: Request) -> Response:
        return responses.json({"models": self._models.loaded(await self._auth.enter(request))})

    async def show(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        return responses.json(self._models.show(principal, await _model_name(request)))

    async def chat(self, request: RawRequest) -> Response | RawResponse:
        """`POST /ollama/api/chat`."""
        principal = await self._auth.admit(request.headers)
        raw = await request.body()
        call = await bodies.parse(ollama_requests.parse_chat, raw)
        return await self._answer(request, principal, call, raw, self._chat, ollama_responses.chat_fields)

    async def generate(self, request: RawRequest) -> Response | RawResponse:
        """`POST /ollama/api/generate`."""
        principal = await self._auth.admit(request.headers)
        raw = await request.body()
        call = await bodies.parse(ollama_requests.parse_generate, raw)
        fields = await bodies.parse(ollama_requests.text_fields, raw)
        if fields is not None:
            resolved = msgspec.structs.replace(call, model=self._models.resolve(call.model))
            return await self._texts.answer(request, principal, resolved, fields)
        return await self._answer(
            request, principal, call, raw, self._generate, ollama_responses.generate_fields
        )

    async def _answer(
        self,
        request: RawRequest,
        principal: Principal,
        call: ChatCall,
        raw: bytes,
        handler: ChatHandler,
        fields: ollama_responses.Fields,
    ) -> Response | RawResponse:
        chat = call.parse()
        if not chat.messages and not chat.system:
            self._models.show(principal, call.model)
            return RawResponse(ollama_responses.load_response(call, fields), [])
        name = self._models.resolve(call.model)
        if chat.effort == "none" and not self._models.thinks(name):
            # Servers reject the effort for models that cannot think.
            chat = replace(chat, effort="")

        def reparse(body: bytes) -> ChatRequest:
            return replace(handler.parse(body), effort=chat.effort)

        renamed = msgspec.structs.replace(call, model=name, parse=lambda: chat, reparse=reparse)
        return await handler.answer(request, principal, renamed, raw)

    async def pull(self, request: Request) -> Response:
        """Return success for an available model, because clients pull models before they use them."""
        principal = await self._auth.enter(request)
        name = await _model_name(request)
        try:
            self._models.show(principal, name)
        except errors.NotFound as error:
            raise errors.NotFound(f"{error.message}. {_UNCHANGEABLE}") from error
        return responses.json({"status": "success"})

    async def refuse(self, request: Request) -> Response:
        """Raise `Forbidden`, because only the operator manages models."""
        await self._auth.enter(request)
        raise errors.Forbidden(_UNCHANGEABLE)


async def _model_name(request: Request) -> str:
    body = ollama_requests.read(await request.body(), _ModelName)
    if not (body.model or body.name):
        raise errors.BadRequest("model is required")
    return body.model or body.name


def build_api(services: WebServices, parts: OllamaParts) -> ApiGroup:
    """Return the routes of Ollama's API, which has its own error format."""
    models = OllamaModels(services.gateway.router, parts.visible)
    routes = OllamaRoutes(services, parts, models)
    embeddings = OllamaEmbeddings(services.database, models, parts.runner, parts.embeddings)
    body, small = services.settings.inline_body_bytes, services.settings.json_body_bytes
    return ApiGroup(
        "ollama",
        ollama_responses.error,
        (
            RouteEntry("/ollama", {"GET": routes.root}, access=rights.PUBLIC),
            RouteEntry("/ollama/", {"GET": routes.root}, access=rights.PUBLIC),
            RouteEntry("/ollama/api/version", {"GET": routes.version}, access=rights.PUBLIC),
            RouteEntry("/ollama/api/tags", {"GET": routes.tags}, access=rights.RUN),
            RouteEntry("/ollama/api/ps", {"GET": routes.loaded}, access=rights.RUN),
            RouteEntry("/ollama/api/show", {"POST": routes.show}, small, access=rights.RUN),
            RouteEntry("/ollama/api/chat", {"POST": RawHandler(routes.chat)}, body, access=rights.RUN),
            RouteEntry(
                "/ollama/api/generate", {"POST": RawHandler(routes.generate)}, body, access=rights.RUN
            ),
            RouteEntry("/ollama/api/embed", {"POST": embeddings.many}, body, access=rights.RUN),
            RouteEntry("/ollama/api/embeddings", {"POST": embeddings.one}, body, access=rights.RUN),
            RouteEntry("/ollama/api/pull", {"POST": routes.pull}, small, access=rights.RUN),
            RouteEntry("/ollama/api/push", {"POST": routes.refuse}, small, access=rights.RUN),
            RouteEntry("/ollama/api/create", {"POST": routes.refuse}, small, access=rights.RUN),
            RouteEntry("/ollama/api/copy", {"POST": routes.refuse}, small, access=rights.RUN),
            RouteEntry("/ollama/api/delete", {"DELETE": routes.refuse}, small, access=rights.RUN),
            RouteEntry(
                "/ollama/api/blobs/{digest}",
                {"GET": routes.refuse, "POST": routes.refuse},
                small,
                access=rights.RUN,
            ),
        ),
        prefixes=("/ollama/",),
        # Ollama serves OpenAI's and Anthropic's APIs at the same host as its own.
        aliases={"/ollama/v1/": "/v1/"},
    )
