"""Stored responses: continue a conversation from them, read them, delete them.

A continued conversation has all previous items as its input. If the previous response came from a server that
stores it (`"store": true`), the request is passed on unchanged, as that server has more context.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

import msgspec
from msgspec.structs import replace
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.chat_handler import CachedKeyAuth
from sixfold.api.gateway.openai import item_references, parsing, responses
from sixfold.api.gateway.openai.errors import PreviousResponseNotFound
from sixfold.api.gateway.openai.responses import ResponsesRequest
from sixfold.core import json_decoding
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.stored_responses import (
    Conversation,
    ResponseNotFound,
    ResponseStore,
    StoredResponse,
)
from sixfold.web import requests
from sixfold.web import responses as web_responses

_ENDS = ("response.completed", "response.incomplete")
_END_MARKS = tuple(f'"{end}"'.encode() for end in _ENDS)
_ENDED = frozenset({"completed", "incomplete"})
_ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}
_PAGE, _MAX_PAGE, _MAX_TEXT = 20, 100, 200
_NO_STORE = {"Cache-Control": "no-store"}
_TRUE = msgspec.Raw(b"true")
_encode = parsing.encode


class _StoredOutput(msgspec.Struct):
    id: str = ""
    status: str = ""
    store: Any = None
    output: list[msgspec.Raw] = []


class _ResponseEvent(msgspec.Struct):
    type: str = ""
    response: msgspec.Raw = msgspec.Raw(b"{}")


_parse_output = msgspec.json.Decoder(_StoredOutput).decode
_event = msgspec.json.Decoder(_ResponseEvent).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_objects = msgspec.json.Decoder(list[dict[str, Any]], float_hook=json_decoding.number).decode


class ResponseStorage:
    """Stores responses and resolves references to them; a conversation has at most `most` bytes."""

    def __init__(self, store: ResponseStore, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes

    def with_recorder(self, tenant: Tenant, request: ResponsesRequest, raw: bytes) -> ResponsesRequest:
        """Return the request with a recorder if its response is to be stored."""
        if not self._store.should_store(request.store):
            return request
        return replace(
            request,
            echo=lambda: {**request.echo(), "store": _TRUE},
            recorder=_ResponseCapture(self._store, tenant, request.previous, raw),
        )

    async def with_history(
        self, tenant: Tenant, request: ResponsesRequest, raw: bytes
    ) -> tuple[ResponsesRequest, bytes]:
        """Return the request with its history, and the body to pass on.

        Raises `PreviousResponseNotFound`, and `TooLong` for a conversation above the limit.
        """
        body = raw
        if request.previous:
            history = await self._history(tenant, request, raw)
            if history is None:
                # A model server with the Responses API may store it.
                return request, raw
            if history.turns[-1].server:
                parse = functools.partial(_parse, history, raw)
                return replace(request, parse=parse, stored_tokens=_stored_tokens(history)), raw
            body = _with_items(history, raw)
        if item_references.MARK in body:
            body = await item_references.resolve(self._store, tenant, body, self._max_bytes - len(body))
        return replace(request, parse=lambda: responses.parse(body)), body

    async def _history(self, tenant: Tenant, request: ResponsesRequest, raw: bytes) -> Conversation | None:
        try:
            return await self._store.get_conversation(tenant, request.previous, self._max_bytes - len(raw))
        except ResponseNotFound as error:
            raise PreviousResponseNotFound(error.response_id) from error


def _stored_tokens(history: Conversation) -> int:
    """Estimate the input tokens that a server adds from the responses it stores."""
    sizes = [
        len(response.input) + sum(map(len, _parse_output(response.response).output))
        for response in history.turns
    ]
    return chats.tokens_of(sum(sizes))


def _parse(history: Conversation, raw: bytes) -> ChatRequest:
    return responses.parse(_with_items(history, raw))


def _with_items(history: Conversation, raw: bytes) -> bytes:
    """Return a self-contained request: its input has all previous items and its own."""
    if isinstance(history.fault, ResponseNotFound):
        raise PreviousResponseNotFound(history.fault.response_id)
    if history.fault is not None:
        raise history.fault
    fields = parsing.raws(raw)
    del fields["previous_response_id"]
    items = [
        item
        for response in history.turns
        for item in (*_items(response.input), *_parse_output(response.response).output)
    ]
    fields["input"] = msgspec.Raw(_encode([*items, *_input_items(raw)]))
    return _encode(fields)


def _input_items(raw: bytes) -> list[msgspec.Raw]:
    """Return the items of a request's input; a text becomes a user message."""
    value = item_references.request_input(raw)
    if isinstance(value, list):
        return value
    content = [{"type": "input_text", "text": value}]
    return [msgspec.Raw(_encode({"type": "message", "role": "user", "content": content}))]


class _ResponseCapture:
    """Stores the response of one request."""

    def __init__(self, store: ResponseStore, tenant: Tenant, previous: str, raw: bytes) -> None:
        self._store = store
        self._tenant = tenant
        self._previous = previous
        self._raw = raw

    async def record(self, body: bytes, server: str) -> None:
        """Store a completed response."""
        try:
            output = _parse_output(body)
        except (msgspec.MsgspecError, UnicodeError):
            # A model server sent something else.
            return
        if not output.id or output.status not in _ENDED:
            return
        with_recorder = StoredResponse(
            id=output.id,
            previous=self._previous if self._previous not in ("", output.id) else None,
            server=server if output.store is True else "",
            input=_encode(_input_items(self._raw)).decode("utf-8", "replace"),
            response=body.decode("utf-8", "replace"),
        )
        await self._store.keep(self._tenant, with_recorder)

    async def record_stream(self, blocks: AsyncGenerator[bytes], server: str) -> AsyncGenerator[bytes]:
        """Yield the events, storing the response before its last event."""
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                if any(mark in block for mark in _END_MARKS):
                    for body in _completed_responses(block):
                        await self.record(body, server)
                yield block


def _completed_responses(block: bytes) -> Iterator[bytes]:
    """Yield the completed responses in a block of events."""
    for line in block.splitlines():
        if line.startswith(b"data:") and any(mark in line for mark in _END_MARKS):
            try:
                event = _event(line.removeprefix(b"data:"))
            except (msgspec.MsgspecError, UnicodeError):
                continue
            if event.type in _ENDS:
                yield bytes(event.response)


class DeletedResponseSchema(TypedDict):
    """A stored response that was deleted."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemSchema(TypedDict):
    """An item of a conversation; further fields depend on its type."""

    id: str
    type: str


class InputItemsSchema(TypedDict):
    """A page of the input items of a response."""

    object: Literal["list"]
    data: Sequence[InputItemSchema]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StoredResponseRoutes:
    """`/v1/responses/{response_id}`: the account's stored responses."""

    def __init__(self, auth: CachedKeyAuth, store: ResponseStore, max_bytes: int) -> None:
        self._auth = auth
        self._store = store
        self._max_bytes = max_bytes

    async def show(self, request: HttpRequest) -> Response:
        """Return a response as it was sent."""
        if requests.query_choice(request, "stream", ("true", "false"), _MAX_TEXT) == "true":
            raise errors.BadRequest("A stored response cannot be streamed; omit stream")
        body = await self._store.get(await self._tenant(request), requests.path_value(request, "response_id"))
        return Response(body, headers=_NO_STORE, media_type="application/json")

    async def delete(self, request: HttpRequest) -> Response:
        """Delete a response."""
        response_id = requests.path_value(request, "response_id")
        await self._store.delete(await self._tenant(request), response_id)
        deleted: DeletedResponseSchema = {"id": response_id, "object": "response", "deleted": True}
        return web_responses.json(deleted)

    async def cancel(self, request: HttpRequest) -> Response:
        """Raise `BadRequest`: stored responses have ended."""
        await self._store.get(await self._tenant(request), requests.path_value(request, "response_id"))
        raise errors.BadRequest("Cannot cancel a synchronous response.")

    async def input_items(self, request: HttpRequest) -> Response:
        """Return a page of the items that the model received, including previous responses."""
        size = requests.page_size(request, _PAGE, _MAX_PAGE, _MAX_TEXT)
        order = requests.query_choice(request, "order", ("asc", "desc"), _MAX_TEXT) or "desc"
        after = requests.query_text(request, "after", _MAX_TEXT)
        response_id = requests.path_value(request, "response_id")
        conversation = await self._store.get_conversation(
            await self._tenant(request), response_id, self._max_bytes
        )
        if conversation is None:
            raise ResponseNotFound(response_id)
        items = _items_by_id(conversation.turns)
        ids = list(items)
        if order == "desc":
            ids.reverse()
        if after and after not in ids:
            raise errors.BadRequest(f"after must be the id of an item of this response (got {after})")
        start = ids.index(after) + 1 if after else 0
        page = [items[item_id] for item_id in ids[start : start + size]]
        return web_responses.json(_page(page, more=start + size < len(ids)), headers=_NO_STORE)

    async def _tenant(self, request: HttpRequest) -> Tenant:
        return (await self._auth.enter(request)).tenant


def _page(items: Sequence[Mapping[str, Any]], *, more: bool) -> InputItemsSchema:
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {
        "object": "list",
        "data": cast("Sequence[InputItemSchema]", items),
        "first_id": first,
        "last_id": last,
        "has_more": more,
    }


def _items_by_id(turns: Sequence[StoredResponse]) -> Mapping[str, Mapping[str, Any]]:
    """Return the input items of a conversation's last response, oldest first, by their ids."""
    input_items: dict[str, Mapping[str, Any]] = {}
    for response in turns:
        items = [(f"in{index}", item) for index, item in enumerate(_objects(response.input))]
        if response is not turns[-1]:
            output = _parse_output(response.response).output
            items += [(str(index), msgspec.json.decode(item)) for index, item in enumerate(output)]
        for position, item in items:
            full_item = _full_item(item, response.id, position)
            # A repeated item keeps its first position.
            input_items.setdefault(full_item["id"], full_item)
    return input_items


def _full_item(item: Mapping[str, Any], response_id: str, place: str) -> dict[str, Any]:
    """Return an item in its full form: with an id, and its text as a part."""
    kind = str(item.get("type") or "message")
    prefix = _ID_PREFIXES.get(kind, "item")
    own_id = f"{prefix}_{response_id.removeprefix('resp_')}_{place}"
    full_item = {**item, "id": str(item.get("id") or own_id), "type": kind}
    if kind in _ID_PREFIXES:
        full_item.setdefault("status", "completed")
    if isinstance(full_item.get("content"), str):
        part = "output_text" if full_item.get("role") == "assistant" else "input_text"
        full_item["content"] = [{"type": part, "text": full_item["content"]}]
    return full_item
