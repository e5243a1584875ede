"""Responses that are kept: gone on from, read again, forgotten.

A conversation goes on with all that was said in it as its input. Where the response before came from a server
that says that it stored it (`"store": true`), the request goes on as it came: that server knows more of it.
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
_MARKS = tuple(f'"{end}"'.encode() for end in _ENDS)
_ENDED = frozenset({"completed", "incomplete"})
_LETTERS = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}
_PAGE, _MAX_PAGE, _MAX_TEXT = 20, 100, 200
_FRESH = {"Cache-Control": "no-store"}
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


_told = msgspec.json.Decoder(_StoredOutput).decode
_event = msgspec.json.Decoder(_ResponseEvent).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_objects = msgspec.json.Decoder(list[dict[str, Any]], float_hook=json_decoding.number).decode


class ResponseStorage:
    """What a request has to do with responses that are kept; a conversation has up to `most` bytes."""

    def __init__(self, shelf: ResponseStore, most: int) -> None:
        self._shelf = shelf
        self._most = most

    def kept(self, tenant: Tenant, wanted: ResponsesRequest, raw: bytes) -> ResponsesRequest:
        """The request with whoever keeps its response, where it is to be kept."""
        if not self._shelf.should_store(wanted.store):
            return wanted
        return replace(
            wanted,
            echo=lambda: {**wanted.echo(), "store": _TRUE},
            keeper=_ResponseCapture(self._shelf, tenant, wanted.previous, raw),
        )

    async def continued(
        self, tenant: Tenant, wanted: ResponsesRequest, raw: bytes
    ) -> tuple[ResponsesRequest, bytes]:
        """The request with what it refers to, and the body to pass on.

        Raises `PreviousResponseNotFound`, and `TooLong` for a conversation that is too long to go on.
        """
        whole = raw
        if wanted.previous:
            before = await self._before(tenant, wanted, raw)
            if before is None:  # a server that speaks responses may know it
                return wanted, raw
            if before.turns[-1].server:
                parse = functools.partial(_parse, before, raw)
                return replace(wanted, parse=parse, recalled=_recalled(before)), raw
            whole = _whole(before, raw)
        if item_references.MARK in whole:
            whole = await item_references.resolved(self._shelf, tenant, whole, self._most - len(whole))
        return replace(wanted, parse=lambda: responses.parse(whole)), whole

    async def _before(self, tenant: Tenant, wanted: ResponsesRequest, raw: bytes) -> Conversation | None:
        try:
            return await self._shelf.get_conversation(tenant, wanted.previous, self._most - len(raw))
        except ResponseNotFound as unknown:
            raise PreviousResponseNotFound(unknown.response_id) from unknown


def _recalled(before: Conversation) -> int:
    """About how many tokens of input a server adds that remembers what was said before."""
    said = [len(kept.input) + sum(map(len, _told(kept.response).output)) for kept in before.turns]
    return chats.tokens_of(sum(said))


def _parse(before: Conversation, raw: bytes) -> ChatRequest:
    return responses.parse(_whole(before, raw))


def _whole(before: Conversation, raw: bytes) -> bytes:
    """A request that goes on from nothing: its input is all that was said before, and its own."""
    if isinstance(before.fault, ResponseNotFound):
        raise PreviousResponseNotFound(before.fault.response_id)
    if before.fault is not None:
        raise before.fault
    fields = parsing.raws(raw)
    del fields["previous_response_id"]
    said = [item for kept in before.turns for item in (*_items(kept.input), *_told(kept.response).output)]
    fields["input"] = msgspec.Raw(_encode([*said, *_asked(raw)]))
    return _encode(fields)


def _asked(raw: bytes) -> list[msgspec.Raw]:
    """The items of a request's input; a text is a message of its user."""
    given = item_references.given(raw)
    if isinstance(given, list):
        return given
    content = [{"type": "input_text", "text": given}]
    return [msgspec.Raw(_encode({"type": "message", "role": "user", "content": content}))]


class _ResponseCapture:
    """Keeps the response of one request."""

    def __init__(self, shelf: ResponseStore, tenant: Tenant, previous: str, raw: bytes) -> None:
        self._shelf = shelf
        self._tenant = tenant
        self._previous = previous
        self._raw = raw

    async def whole(self, body: bytes, server: str) -> None:
        """Keep a response that has come to its end."""
        try:
            told = _told(body)
        except (msgspec.MsgspecError, UnicodeError):
            return  # a server's own, and no response
        if not told.id or told.status not in _ENDED:
            return
        kept = StoredResponse(
            id=told.id,
            previous=self._previous if self._previous not in ("", told.id) else None,
            server=server if told.store is True else "",
            input=_encode(_asked(self._raw)).decode("utf-8", "replace"),
            response=body.decode("utf-8", "replace"),
        )
        await self._shelf.keep(self._tenant, kept)

    async def watch(self, blocks: AsyncGenerator[bytes], server: str) -> AsyncGenerator[bytes]:
        """Whole events as they come; the response is kept before its end is told."""
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                if any(mark in block for mark in _MARKS):
                    for body in _ended(block):
                        await self.whole(body, server)
                yield block


def _ended(block: bytes) -> Iterator[bytes]:
    """The responses whose end is told in some whole events."""
    for line in block.splitlines():
        if line.startswith(b"data:") and any(mark in line for mark in _MARKS):
            try:
                event = _event(line.removeprefix(b"data:"))
            except (msgspec.MsgspecError, UnicodeError):
                continue  # as it is passed on, too
            if event.type in _ENDS:
                yield bytes(event.response)


class DeletedResponseSchema(TypedDict):
    """A stored response that was deleted."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemSchema(TypedDict):
    """An item of a conversation; it has more fields, by its type."""

    id: str
    type: str


class InputItemsSchema(TypedDict):
    """Some of the items that a response was made from."""

    object: Literal["list"]
    data: Sequence[InputItemSchema]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StoredResponseRoutes:
    """`/v1/responses/{response_id}`: what is kept of an account, for the keys that see it."""

    def __init__(self, door: CachedKeyAuth, shelf: ResponseStore, most: int) -> None:
        self._door = door
        self._shelf = shelf
        self._most = most

    async def show(self, request: HttpRequest) -> Response:
        """A response as it was told."""
        if requests.query_choice(request, "stream", ("true", "false"), _MAX_TEXT) == "true":
            raise errors.BadRequest("A response that has ended is not streamed again: leave stream out")
        body = await self._shelf.get(await self._tenant(request), requests.path_value(request, "response_id"))
        return Response(body, headers=_FRESH, media_type="application/json")

    async def forget(self, request: HttpRequest) -> Response:
        """Delete one."""
        response_id = requests.path_value(request, "response_id")
        await self._shelf.delete(await self._tenant(request), response_id)
        deleted: DeletedResponseSchema = {"id": response_id, "object": "response", "deleted": True}
        return web_responses.json(deleted)

    async def cancel(self, request: HttpRequest) -> Response:
        """Never: what is kept has ended."""
        await self._shelf.get(await self._tenant(request), requests.path_value(request, "response_id"))
        raise errors.BadRequest("Cannot cancel a synchronous response.")

    async def inputs(self, request: HttpRequest) -> Response:
        """What the model was asked: all that was said before and is still kept, and its own input."""
        size = requests.page_size(request, _PAGE, _MAX_PAGE, _MAX_TEXT)
        order = requests.query_choice(request, "order", ("asc", "desc"), _MAX_TEXT) or "desc"
        after = requests.query_text(request, "after", _MAX_TEXT)
        response_id = requests.path_value(request, "response_id")
        found = await self._shelf.get_conversation(await self._tenant(request), response_id, self._most)
        if found is None:
            raise ResponseNotFound(response_id)
        items = _inputs(found.turns)
        names = list(items)
        if order == "desc":
            names.reverse()
        if after and after not in names:
            raise errors.BadRequest(f"after names no item of this response: {after}")
        start = names.index(after) + 1 if after else 0
        page = [items[name] for name in names[start : start + size]]
        return web_responses.json(_page(page, more=start + size < len(names)), headers=_FRESH)

    async def _tenant(self, request: HttpRequest) -> Tenant:
        return (await self._door.enter(request)).tenant


def _page(items: Sequence[Mapping[str, Any]], *, more: bool) -> InputItemsSchema:
    """A list as clients page through it."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {
        "object": "list",
        "data": cast("Sequence[InputItemSchema]", items),
        "first_id": first,
        "last_id": last,
        "has_more": more,
    }


def _inputs(turns: Sequence[StoredResponse]) -> Mapping[str, Mapping[str, Any]]:
    """The items that the last of a conversation was asked with, from the first, by their ids."""
    found: dict[str, Mapping[str, Any]] = {}
    for kept in turns:
        said = [(f"in{index}", item) for index, item in enumerate(_objects(kept.input))]
        if kept is not turns[-1]:
            output = _told(kept.response).output
            said += [(str(index), msgspec.json.decode(item)) for index, item in enumerate(output)]
        for place, item in said:
            whole = _named(item, kept.id, place)
            found.setdefault(whole["id"], whole)  # one that was said again stands where it was said first
    return found


def _named(item: Mapping[str, Any], response_id: str, place: str) -> dict[str, Any]:
    """An item in its full form: with an id, and its text as a part."""
    kind = str(item.get("type") or "message")
    letters = _LETTERS.get(kind, "item")
    own = f"{letters}_{response_id.removeprefix('resp_')}_{place}"
    whole = {**item, "id": str(item.get("id") or own), "type": kind}
    if kind in _LETTERS:
        whole.setdefault("status", "completed")
    if isinstance(whole.get("content"), str):
        part = "output_text" if whole.get("role") == "assistant" else "input_text"
        whole["content"] = [{"type": part, "text": whole["content"]}]
    return whole
