"""Stored responses: continue a conversation from them, read them, delete them.

A continued conversation has all previous items as its input. If the previous response came from a server that
stores it (`"store": true`), the request is passed on unchanged, as that server has more context.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any, Literal, TypedDict
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway import list_pages, provider_objects
from sixfold.api.gateway.chat_handler import EventStreamResponse
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import PreviousResponseNotFound
from sixfold.api.gateway.openai.responses import compaction, dialect, references
from sixfold.api.gateway.openai.responses import items as item_forms
from sixfold.api.gateway.openai.responses.background import BackgroundResponses
from sixfold.api.gateway.openai.responses.capture import CapturePlan, ResponseCapture, parse_output
from sixfold.api.gateway.openai.responses.dialect import ResponsesRequest
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.conversations.conversations import ConversationItem, ConversationLock
from sixfold.core.gateway.conversations.responses import ResponseChain, ResponseNotFound
from sixfold.core.input_limits import json_decoding
from sixfold.web import bodies, requests
from sixfold.web import responses as web_responses
from sixfold.web.raw_asgi import RawResponse
from sixfold.web.services import WebServices

_PAGE, _MAX_PAGE, _MAX_TEXT = 20, 100, 200
_NO_STORE = {"Cache-Control": "no-store"}
_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")
_encode = parsing.encode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_objects = msgspec.json.Decoder(list[dict[str, Any]], float_hook=json_decoding.number).decode
_object = msgspec.json.Decoder(dict[str, Any], float_hook=json_decoding.number).decode
# Sends a request with this body and returns the response.
Respond = Callable[[ResponsesRequest, bytes], Awaitable[Response | RawResponse]]


class ResponseStorage:
    """Stores responses and resolves references; a request has at most `max_bytes` with its history."""

    def __init__(self, services: WebServices) -> None:
        self._store = services.responses
        self._conversations = services.conversations
        self._router = services.gateway.router
        self._compactions = services.compactions
        self._max_bytes = services.settings.inline_body_bytes

    async def answer(
        self,
        principal: Principal,
        request: ResponsesRequest,
        raw: bytes,
        request_id: str,
        respond: Respond,
        background_id: str = "",
    ) -> Response | RawResponse:
        """Return the response to a request with its references resolved.

        The response is stored before its end is sent. Its id is `background_id` if the request was accepted
        as a background response.
        """
        tenant, keep = principal.tenant, self._store.should_store(request.store)
        plan = CapturePlan(tenant, keep, request.previous, raw, background_id=background_id)
        body = raw
        if (not keep and request.store is not False) or background_id:
            # A provider may store the response only if an account owns its id here.
            body = _encode({**parsing.raws(raw), "store": _FALSE})
        if not request.conversation:
            request, body = await self.with_history(principal, request, body)
            return await respond(self._with_capture(request, plan), body)
        # An approval is stored with the id of its request, and renamed together with it.
        body = await self._resolved(principal, request, body, references.OWN_ID)
        items = await bodies.parse(_new_items, body)
        plan = replace(plan, lock=ConversationLock(tenant, request.conversation, request_id), items=items)
        return await self._answer_locked(principal, request, body, plan, respond)

    async def _answer_locked(
        self,
        principal: Principal,
        request: ResponsesRequest,
        body: bytes,
        plan: CapturePlan,
        respond: Respond,
    ) -> Response | RawResponse:
        lock = plan.lock
        assert lock is not None  # noqa: S101 - the caller has set it
        release = functools.partial(self._conversations.unlock, lock)
        try:
            earlier = await self._conversations.lock(
                lock.tenant, lock.conversation_id, lock.lock_id, plan.items, self._max_bytes - len(body)
            )
            full_body = await bodies.parse(lambda raw: _with_items(raw, earlier), body)
            full_body = await self._readable(principal, request, full_body)
            request = replace(request, parse=lambda: dialect.parse(full_body))
            response = await respond(self._with_capture(request, plan), full_body)
        except BaseException:
            await release()
            raise
        if isinstance(response, EventStreamResponse):
            response.on_close = release
        else:
            await release()
        return response

    def _with_capture(self, request: ResponsesRequest, plan: CapturePlan) -> ResponsesRequest:
        echoed: dict[str, msgspec.Raw] = {"store": _TRUE} if plan.keep else {}
        if plan.conversation is not None:
            echoed["conversation"] = plan.conversation
        return replace(
            request, echo=lambda: {**request.echo(), **echoed}, recorder=ResponseCapture(self._store, plan)
        )

    async def with_history(
        self, principal: Principal, request: ResponsesRequest, raw: bytes, wire: str = "responses"
    ) -> tuple[ResponsesRequest, bytes]:
        """Return the request with its history in a protocol, and the body to forward.

        Raises `PreviousResponseNotFound`, and `TooLong` for a conversation above the limit.
        """
        if not request.previous:
            body = await self._readable(principal, request, raw)
            return (request if body is raw else replace(request, parse=lambda: dialect.parse(body))), body
        chain = await self._chain(principal, request, raw)
        if chain is None:
            # The operator may continue what a model server stores.
            return request, await bodies.parse(self._opener(principal), raw)
        server = provider_objects.policy(self._router, principal, request.model, wire).server
        if chain.turns[-1].server and chain.turns[-1].server.partition("/")[0] == server:
            body = await self._readable(principal, request, raw)
            expand = functools.partial(_expand, chain, self._opener(principal))
            reparse = functools.partial(_parse_expanded, expand)
            parse = functools.partial(reparse, body)
            tokens = _stored_tokens(chain)
            return replace(request, parse=parse, reparse=reparse, expand=expand, stored_tokens=tokens), body
        full_body = await bodies.parse(functools.partial(_with_chain, chain), raw)
        body = await self._readable(principal, request, full_body)
        return replace(request, parse=lambda: dialect.parse(body)), body

    async def with_earlier_items(
        self, principal: Principal, request: ResponsesRequest, raw: bytes, wire: str = "responses"
    ) -> tuple[ResponsesRequest, bytes]:
        """Return the request with the items of its history or conversation, without locking it."""
        if not request.conversation:
            return await self.with_history(principal, request, raw, wire)
        earlier = await self._conversations.items(
            principal.tenant, request.conversation, self._max_bytes - len(raw)
        )
        full_body = await bodies.parse(lambda body: _with_items(body, earlier), raw)
        full_body = await self._readable(principal, request, full_body)
        return replace(request, parse=lambda: dialect.parse(full_body)), full_body

    async def _chain(
        self, principal: Principal, request: ResponsesRequest, raw: bytes
    ) -> ResponseChain | None:
        try:
            chain = await self._store.get_chain(
                principal.tenant, request.previous, self._max_bytes - len(raw)
            )
        except ResponseNotFound as error:
            raise PreviousResponseNotFound(error.response_id) from error
        if chain is None and not principal.is_operator:
            # A model server may have stored the response for another account.
            raise PreviousResponseNotFound(request.previous)
        return chain

    def _opener(self, principal: Principal) -> Callable[[bytes], bytes]:
        """Return the function that replaces encrypted summaries in a request by messages."""
        return functools.partial(compaction.decrypt_summaries, self._compactions, principal.account_id)

    async def _readable(self, principal: Principal, request: ResponsesRequest, raw: bytes) -> bytes:
        """Return a request that a model server can read: without summaries and objects that it lacks."""
        raw = await bodies.parse(self._opener(principal), raw)
        return await self._resolved(principal, request, raw)

    async def _resolved(
        self,
        principal: Principal,
        request: ResponsesRequest,
        raw: bytes,
        renamed: Container[str] = references.ID_NAMES,
    ) -> bytes:
        if not await bodies.parse(references.may_refer, raw):
            return raw
        policy = provider_objects.policy(self._router, principal, request.model, "responses")
        limit = self._max_bytes - len(raw)
        return await references.resolve(self._store, policy, raw, limit, renamed)


def _stored_tokens(chain: ResponseChain) -> int:
    """Estimate the input tokens that a server adds from the responses it stores."""
    return chats.tokens_of(sum(map(len, map(bytes, _chain_items(chain)))))


def _parse_expanded(expand: Callable[[bytes], bytes], raw: bytes) -> ChatRequest:
    return dialect.parse(expand(raw))


def _expand(chain: ResponseChain, open_body: Callable[[bytes], bytes], raw: bytes) -> bytes:
    return open_body(_with_chain(chain, raw))


def _with_chain(chain: ResponseChain, raw: bytes) -> bytes:
    """Return a self-contained request, whose input contains all previous items and its own."""
    if isinstance(chain.fault, ResponseNotFound):
        raise PreviousResponseNotFound(chain.fault.response_id)
    if chain.fault is not None:
        raise chain.fault
    return _with_items(raw, _chain_items(chain))


def _chain_items(chain: ResponseChain) -> list[msgspec.Raw]:
    """Return the items of a chain; if it began in a conversation, the first ones are read from there."""
    turns = chain.turns[1:] if chain.items else chain.turns
    items = [msgspec.Raw(item.encode()) for item in chain.items]
    for response in turns:
        items += [*_items(response.input), *parse_output(response.response).output]
    return items


def _with_items(raw: bytes, earlier: Sequence[str | msgspec.Raw]) -> bytes:
    """Return a self-contained request, whose input contains the earlier items before its own."""
    fields = parsing.raws(raw)
    for name in ("previous_response_id", "conversation"):
        fields.pop(name, None)
    items = [msgspec.Raw(item.encode()) if isinstance(item, str) else item for item in earlier]
    fields["input"] = msgspec.Raw(_encode([*items, *item_forms.input_items(raw)]))
    return _encode(fields)


def _new_items(raw: bytes) -> tuple[ConversationItem, ...]:
    return item_forms.conversation_items(item_forms.input_items(raw), keep_ids=False)


class _BackgroundHead(msgspec.Struct):
    background: bool | None = None


_head = msgspec.json.Decoder(_BackgroundHead).decode


class DeletedResponseSchema(TypedDict):
    """A stored response that was deleted."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemSchema(TypedDict):
    """An item of a conversation; further fields depend on its type."""

    id: str
    type: str


class InputItemsSchema(list_pages.OpenAIPageSchema):
    """A page of the input items of a response."""

    data: Sequence[InputItemSchema]


class StoredResponseRoutes:
    """`/v1/responses/{response_id}`: the account's stored responses."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._auth = auth
        self._gateway = services.gateway
        self._store = services.responses
        self._background = BackgroundResponses(services)
        self._max_bytes = services.settings.inline_body_bytes

    async def show(self, request: HttpRequest) -> Response:
        """Return a response, or with `stream` its events with numbers above `starting_after`."""
        principal = await self._auth.enter(request)
        response_id = requests.path_value(request, "response_id")
        after = _starting_after(request)
        if requests.query_choice(request, "stream", ("true", "false"), _MAX_TEXT) != "true":
            return _stored(await self._background.shown(principal.tenant, response_id))
        self._background.hold_stream(request.scope, principal)
        body = await self._background.shown(principal.tenant, response_id)
        if after >= 0 and not (await PARSER.run_large(len(body), _head, body)).background:
            # Its live stream had one event for each part of a text, so its numbers differ from these.
            raise errors.BadRequest(
                "starting_after continues the stream of a background response, and this response did not run "
                "in the background: omit starting_after to read all events"
            )
        return self._background.stream(principal, response_id, after)

    async def delete(self, request: HttpRequest) -> Response:
        """Delete a response, first at the model server if that also stores it."""
        response_id, tenant = requests.path_value(request, "response_id"), await self._tenant(request)
        was_background = await self._background.delete(tenant, response_id)
        try:
            server, _, _ = (await self._store.server_of(tenant, response_id)).partition("/")
            if server:
                await self._gateway.delete_stored(server, f"/responses/{quote(response_id, safe='')}")
            await self._store.delete(tenant, response_id)
        except ResponseNotFound:
            # A background response that failed or was canceled is not stored.
            if not was_background:
                raise
        deletion: DeletedResponseSchema = {"id": response_id, "object": "response", "deleted": True}
        return web_responses.json(deletion)

    async def cancel(self, request: HttpRequest) -> Response:
        """Cancel a background response; return it unchanged if it has ended.

        Raises `BadRequest` for a response that did not run in the background.
        """
        tenant, response_id = await self._tenant(request), requests.path_value(request, "response_id")
        try:
            # A completed response is stored before its batch ends.
            stored = await self._store.get(tenant, response_id)
        except ResponseNotFound:
            if (body := await self._background.cancel(tenant, response_id)) is not None:
                return _stored(body)
            stored = await self._store.get(tenant, response_id)
        if not _head(stored).background:
            raise errors.BadRequest("Cannot cancel a synchronous response.")
        return _stored(stored)

    async def input_items(self, request: HttpRequest) -> Response:
        """Return a page of the items that the model received, including previous responses."""
        size = requests.page_size(request, _PAGE, _MAX_PAGE, _MAX_TEXT)
        order = requests.query_choice(request, "order", ("asc", "desc"), _MAX_TEXT) or "desc"
        after = requests.query_text(request, "after", _MAX_TEXT)
        response_id = requests.path_value(request, "response_id")
        tenant = await self._tenant(request)
        chain = await self._store.get_chain(tenant, response_id, self._max_bytes)
        if chain is None:
            if await self._background.find(tenant, response_id) is not None:
                raise errors.BadRequest(
                    f"The response {response_id} is not completed: request its input items later"
                )
            raise ResponseNotFound(response_id)
        content = await PARSER.run(_encoded_page, chain, order, after, size)
        return Response(content, headers=_NO_STORE, media_type="application/json")

    async def _tenant(self, request: HttpRequest) -> Tenant:
        return (await self._auth.enter(request)).tenant


def _starting_after(request: HttpRequest) -> int:
    value = requests.query_text(request, "starting_after", _MAX_TEXT) or "-1"
    if value != "-1" and not (value.isascii() and value.isdigit() and len(value) < 9):
        raise errors.BadRequest(f"starting_after must be the number of an event (got {value[:20]!r})")
    return int(value)


def _stored(body: str | bytes) -> Response:
    return Response(body, headers=_NO_STORE, media_type="application/json")


def _encoded_page(chain: ResponseChain, order: str, after: str, size: int) -> bytes:
    """Return a page of a chain's items as JSON; raises `BadRequest` for an unknown `after`."""
    items = items_by_id(chain)
    ids = list(items)
    if order == "desc":
        ids.reverse()
    if after and after not in items:
        raise errors.BadRequest(f"after must be the id of an item of this response (got {after})")
    start = ids.index(after) + 1 if after else 0
    page = [items[item_id] for item_id in ids[start : start + size]]
    return _encode(list_pages.openai_page(page, has_more=start + size < len(ids)))


def items_by_id(chain: ResponseChain) -> Mapping[str, Mapping[str, Any]]:
    """Return the input items of a chain's last response, oldest first, by their ids."""
    input_items: dict[str, Mapping[str, Any]] = {}
    last = chain.turns[-1]
    if chain.items:
        input_items = {item["id"]: item for item in map(_object, chain.items)}
        if len(chain.turns) == 1:
            for item in parse_output(last.response).output:
                input_items.pop(str(_object(item).get("id")), None)
    for response in chain.turns[1:] if chain.items else chain.turns:
        items = [(f"in{index}", item) for index, item in enumerate(_objects(response.input))]
        if response is not last:
            output = parse_output(response.response).output
            items += [(str(index), _object(item)) for index, item in enumerate(output)]
        for place, item in items:
            own_id = f"{item_forms.prefix_of(item)}_{response.id.removeprefix('resp_')}_{place}"
            full_item = item_forms.full_item(item, own_id)
            # A repeated item keeps its first position.
            input_items.setdefault(full_item["id"], full_item)
    return input_items
