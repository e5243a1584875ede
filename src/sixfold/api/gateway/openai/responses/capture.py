"""Storage of a response and its items before the caller receives the end of the response."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from itertools import islice
from typing import Any

import msgspec

from sixfold.api.gateway import provider_objects
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.responses import items as item_forms
from sixfold.api.gateway.openai.responses import references
from sixfold.api.gateway.openai.responses.mcp import tools
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.loop_turns import TURNS
from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.conversations.conversations import ConversationItem, ConversationLock
from sixfold.core.gateway.conversations.responses import (
    ConversationAddition,
    OwnedObjects,
    ResponseStore,
    StoredResponse,
)
from sixfold.web import bodies

_ENDS = ("response.completed", "response.incomplete")
_END_MARKS = tuple(f'"{end}"'.encode() for end in _ENDS)
_ENDED = frozenset({"completed", "incomplete"})
# Items of a response that are stored in its conversation or belong to its account; a model writes fewer.
_MAX_ITEMS = chats.MAX_RESPONSE_PARTS
# Lines that are read in one iteration of the event loop, about 2 ms.
_TURN_LINES = 500
_encode = parsing.encode


class ResponseOutput(msgspec.Struct):
    """The fields of a response that are read."""

    id: str = ""
    status: str = ""
    store: Any = None
    output: list[msgspec.Raw] = []


class _ResponseEvent(msgspec.Struct):
    type: str = ""
    response: msgspec.Raw = msgspec.Raw(b"{}")


parse_output = msgspec.json.Decoder(ResponseOutput).decode
_event = msgspec.json.Decoder(_ResponseEvent).decode


class CapturePlan(msgspec.Struct, frozen=True):
    """The parts of a response to store.

    The response is stored if `keep` is set; its items are added to the conversation after `items`. A
    background response has the id `background_id`, with which its request was accepted.
    """

    tenant: Tenant
    keep: bool
    previous: str
    raw: bytes
    lock: ConversationLock | None = None
    items: tuple[ConversationItem, ...] = ()
    background_id: str = ""

    @property
    def conversation(self) -> msgspec.Raw | None:
        """The field of the response that names its conversation."""
        return None if self.lock is None else msgspec.Raw(_encode({"id": self.lock.conversation_id}))


class ResponseCapture:
    """Stores the response of one request."""

    def __init__(self, store: ResponseStore, plan: CapturePlan) -> None:
        self._store = store
        self._plan = plan
        # Whether the end of a stream has been received.
        self._has_ended = False

    async def record(self, body: bytes, server: str) -> bytes:
        """Store a completed response, and return it with its conversation."""
        plan = self._plan
        if not (plan.keep or plan.lock or server):
            return body
        body, response, objects, addition = await bodies.parse(lambda raw: self._read(raw, server), body)
        if response is not None or addition is not None or objects is not None:
            # Calls of tools may have had effects, so that the response remains charged.
            in_background = bool(plan.background_id) and not tools.may_name_servers(plan.raw)
            await self._store.record(plan.tenant, response, objects, addition, in_background=in_background)
        return body

    def _read(
        self, body: bytes, server: str
    ) -> tuple[bytes, StoredResponse | None, OwnedObjects | None, ConversationAddition | None]:
        plan = self._plan
        try:
            output = parse_output(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # A model server sent something else.
            return body, None, None, None
        if not 0 < len(output.id) <= provider_objects.MAX_ID or output.status not in _ENDED:
            return body, None, None, None
        response, objects, addition = None, None, None
        are_read = bool(server) or plan.lock is not None
        output_items = [*islice(filter(references.is_item, output.output), _MAX_ITEMS)] if are_read else []
        response_id = plan.background_id or output.id
        if plan.background_id:
            body = _in_background(body, output.id, response_id, is_own=not server)
        if plan.conversation is not None and server:
            body = _encode({**parsing.raws(body), "conversation": plan.conversation})
        if server:
            created = references.created(output_items, stored=output.store is True)
            objects = OwnedObjects(server, response_id, created) if created else None
        if plan.lock is not None:
            items = item_forms.conversation_items(output_items, keep_ids=True)
            addition = ConversationAddition(plan.lock, (*plan.items, *items))
        if plan.keep:
            response = StoredResponse(
                id=response_id,
                previous=plan.previous if plan.previous not in ("", response_id) else None,
                server=server if output.store is True and not plan.background_id else "",
                input=_encode(item_forms.input_items(plan.raw)).decode("utf-8", "replace"),
                response=body.decode("utf-8", "replace"),
            )
        return body, response, objects, addition

    async def record_stream(self, blocks: AsyncGenerator[bytes], server: str) -> AsyncGenerator[bytes]:
        """Yield the events, storing the response before its last event."""
        names = server and self._plan.lock is not None
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                if names or any(mark in block for mark in _END_MARKS):
                    yield await self._record_lines(block, server)
                else:
                    yield block
                del block  # it would stay in memory until the next one

    async def _record_lines(self, block: bytes, server: str) -> bytes:
        """Return the lines of a block, with the conversation added to their responses."""
        lines = block.split(b"\n")
        named = [number for number, line in enumerate(lines) if _names_response(line)]
        for count, number in enumerate(named, 1):
            lines[number] = await self._record_line(lines[number], server)
            if not count % _TURN_LINES:
                await TURNS.next(LOOP_BYTES)
        return b"\n".join(lines)

    async def _record_line(self, line: bytes, server: str) -> bytes:
        data = line.removeprefix(b"data:")
        try:
            event = _event(data)
            if event.type in _ENDS:
                if self._has_ended:
                    return line
                # A model server that sends several ends would store the conversation as often.
                self._has_ended = True
                response = await self.record(bytes(event.response), server)
            elif self._plan.conversation is not None and server and bytes(event.response) != b"{}":
                fields = {**parsing.raws(event.response), "conversation": self._plan.conversation}
                response = _encode(fields)
            else:
                return line
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return line
        if not (server and self._plan.lock):
            return line
        changed = _encode({**parsing.raws(data), "response": msgspec.Raw(response)})
        return b"data: " + changed + (b"\r" if line.endswith(b"\r") else b"")


def _in_background(body: bytes, old_id: str, new_id: str, *, is_own: bool) -> bytes:
    """Return a response with the id of its background request, which the ids of its items contain."""
    if is_own:
        body = body.replace(old_id.partition("_")[2].encode(), new_id.partition("_")[2].encode())
    return _encode({**parsing.raws(body), "id": new_id, "background": True, "store": True})


def _names_response(line: bytes) -> bool:
    return line.startswith(b"data:") and b'"response"' in line
