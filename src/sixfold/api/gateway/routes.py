"""Area B's faces that talk with models: OpenAI's dialect, Anthropic's, and the log of calls."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway import request_log, service, training
from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.anthropic import messages
from sixfold.api.gateway.chat_handler import SERVICES, CachedKeyAuth, ChatHandler, passed_on
from sixfold.api.gateway.openai import chat, image_models, item_references, media_jobs, responses
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.audio import AudioRoutes
from sixfold.api.gateway.openai.embeddings import EmbeddingRoutes
from sixfold.api.gateway.openai.images import ImageRoutes
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.api.gateway.openai.passthrough import UpstreamPassthrough
from sixfold.api.gateway.openai.stored_responses import ResponseStorage, StoredResponseRoutes
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import rfc3339
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.errors import EngineUnavailable, NotFound, UnknownModel
from sixfold.web import bodies, requests
from sixfold.web import responses as web_responses
from sixfold.web.raw_asgi import RawHandler, RawRequest, RawResponse
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

_KINDS = {*SERVICES, *media_jobs.OURS}  # services under which any name of a model server can be asked for
_CREATED = 1_763_683_200  # models have no age here


class ModelRoutes:
    """`/v1/models`: every name that a key can ask for, in both dialects at once."""

    def __init__(self, services: WebServices, door: CachedKeyAuth, images: Sequence[str]) -> None:
        self._services = services
        self._door = door
        self._relay = services.gateway
        self._images = frozenset(images)
        self._own = tuple(dict.fromkeys((*media_jobs.OURS, *images)))

    async def page(self, request: Request) -> Response:
        """All of them."""
        principal = await self._door.enter(request)
        rows = [_row(name, owner) for name, owner in self._all(principal)]
        ends = (
            {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]}
            if rows
            else {"first_id": None, "last_id": None}
        )
        return web_responses.json({"object": "list", "data": rows, "has_more": False, **ends})

    async def show(self, request: Request) -> Response:
        """One of them."""
        principal = await self._door.enter(request)
        wanted = requests.path_value(request, "model")
        for name, owner in self._all(principal):
            if name == wanted:
                return web_responses.json(_row(name, owner))
        raise UnknownModel(f"There is no model {wanted[:100]!r} here")

    def _all(self, principal: Principal) -> list[tuple[str, str]]:
        """What the gateway knows, and what is made here, as far as the key may use it."""
        known = self._relay.router.models()
        taken = {name for name, _ in known}
        allowed = principal.scope.services
        models = [
            name
            for name in self._own
            if (not allowed or name in allowed) and (name in self._images or self._serves(name, name))
        ]
        aliases = [
            name for model in models for name in media_jobs.LISTED.get(model, ()) if self._serves(model, name)
        ]
        ours = [(name, "sixfold") for name in (*models, *aliases) if name not in taken]
        if not allowed:
            return [*known, *ours]
        anything = not _KINDS.isdisjoint(allowed)  # what a server's model is for is not known by its name
        return [row for row in known if anything or row[0] in allowed] + ours

    def _serves(self, model: str, name: str) -> bool:
        """Whether an engine is ready that may serve a model under this name."""
        full_only = media_jobs.is_full_only(model, name)
        terms = dataclasses.replace(self._services.pipeline.terms, full_only=full_only)
        try:
            self._services.catalog[model].choose({}, terms)
        except (EngineUnavailable, NotFound):
            return False
        return True


class ModelSchema(TypedDict):
    """A name that a request may use, in the words of OpenAI and of Anthropic."""

    id: str
    object: Literal["model"]
    type: Literal["model"]
    created: int
    created_at: str
    owned_by: str
    display_name: str


def _row(name: str, owner: str) -> ModelSchema:
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": _CREATED,
        "created_at": rfc3339(_CREATED * 1_000_000),
        "owned_by": owner,
        "display_name": name,
    }


class ChatRoutes:
    """The faces that take a conversation."""

    def __init__(self, services: WebServices, door: CachedKeyAuth, relay: Gateway) -> None:
        self._door = door
        self._relay = relay
        self._keeping = ResponseStorage(services.responses, services.settings.inline_body_bytes)
        self._chat = ChatHandler(services, relay, chat.TONGUE)
        self._responses = ChatHandler(services, relay, responses.TONGUE)
        self._messages = ChatHandler(services, relay, messages.TONGUE)

    async def chat(self, call: RawRequest) -> Response | RawResponse:
        """A chat completion."""
        principal = await self._door.admit(call.headers)
        raw = await call.body()
        return await self._chat.answer(call, principal, await bodies.parse(chat.wanted, raw), raw)

    async def responses(self, call: RawRequest) -> Response | RawResponse:
        """A response."""
        principal = await self._door.admit(call.headers)
        raw = await call.body()
        wanted = await bodies.parse(responses.wanted, raw)
        wanted = self._keeping.kept(principal.tenant, wanted, raw)
        if wanted.previous or item_references.MARK in raw:
            wanted, raw = await self._keeping.continued(principal.tenant, wanted, raw)
        return await self._responses.answer(call, principal, wanted, raw)

    async def messages(self, call: RawRequest) -> Response | RawResponse:
        """A message."""
        principal = await self._door.admit(call.headers)
        raw = await call.body()
        return await self._messages.answer(call, principal, await bodies.parse(messages.wanted, raw), raw)

    async def count(self, request: Request) -> Response:
        """How many tokens a message would have; free."""
        principal = await self._door.enter(request)
        raw = await request.body()
        wanted = await bodies.parse(functools.partial(messages.wanted, counting=True), raw)
        ask = GatewayRequest(
            account_id=principal.account_id,
            request_id=requests.request_id(request),
            endpoint="messages",
            wire="messages",
            model=wanted.model,
            body=raw,
            parse=wanted.parse,
            services=SERVICES,
            allowed_services=principal.scope.services,
            below_zero=principal.below_zero,
            credential_id=principal.credential_id,
            headers=passed_on(dict(request.headers.raw)),
        )
        counted = {"input_tokens": await self._relay.count_tokens(ask)}
        return web_responses.json(counted, headers={"request-id": ask.request_id})


def build_apis(services: WebServices) -> tuple[ApiGroup, ...]:
    """The part of Area B that talks with models."""
    relay, door = services.gateway, CachedKeyAuth(services)
    drawing = image_models.names(services.catalog)
    talk, models = ChatRoutes(services, door, relay), ModelRoutes(services, door, drawing)
    body = services.settings.inline_body_bytes
    maker = MediaJobRunner(services, door)
    elsewhere = UpstreamPassthrough(relay, drawing)
    images, audio = ImageRoutes(services, maker, elsewhere), AudioRoutes(maker, elsewhere)
    kept = StoredResponseRoutes(door, services.responses, body)
    openai = ApiGroup(
        "openai",
        openai_errors.dialect,
        (
            RouteEntry("/v1/models", {"GET": models.page}, access=rights.RUN),
            RouteEntry("/v1/models/{model:path}", {"GET": models.show}, access=rights.RUN),
            RouteEntry("/v1/chat/completions", {"POST": RawHandler(talk.chat)}, body, access=rights.RUN),
            RouteEntry("/v1/responses", {"POST": RawHandler(talk.responses)}, body, access=rights.RUN),
            RouteEntry(
                "/v1/responses/{response_id}", {"GET": kept.show, "DELETE": kept.forget}, access=rights.RUN
            ),
            RouteEntry("/v1/responses/{response_id}/input_items", {"GET": kept.inputs}, access=rights.RUN),
            RouteEntry("/v1/responses/{response_id}/cancel", {"POST": kept.cancel}, access=rights.RUN),
            RouteEntry(
                "/v1/embeddings", {"POST": EmbeddingRoutes(maker, elsewhere).make}, body, access=rights.RUN
            ),
            RouteEntry("/v1/images/generations", {"POST": images.generate}, body, access=rights.RUN),
            RouteEntry("/v1/images/edits", {"POST": images.edit}, body, access=rights.RUN),
            RouteEntry("/v1/audio/speech", {"POST": audio.speak}, body, access=rights.RUN),
            RouteEntry("/v1/audio/transcriptions", {"POST": audio.transcribe}, body, access=rights.RUN),
        ),
        prefixes=("/v1/",),
    )
    anthropic = ApiGroup(
        "anthropic",
        anthropic_errors.dialect,
        (
            RouteEntry("/v1/messages", {"POST": RawHandler(talk.messages)}, body, access=rights.RUN),
            RouteEntry("/v1/messages/count_tokens", {"POST": talk.count}, body, access=rights.RUN),
        ),
        prefixes=("/v1/messages",),
    )
    others = (module.build_api(services) for module in (request_log, service, training))
    return openai, anthropic, *others
