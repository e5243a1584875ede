"""Objects that model servers store: the fields with their ids in all APIs, and the check of ownership.

A model server receives only the operator's key, so it would give every account access to all stored objects.
Therefore the id of an object is forwarded only to the server that stores it, for the account that created it
through this server (`relay_object`), and for the operator.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.api.gateway.chat_handler import ChatCall
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.conversations.responses import OwnedObjects, ResponseStore
from sixfold.core.gateway.routing import ModelRouter
from sixfold.core.input_limits import byte_search, json_decoding
from sixfold.web import bodies

# Fields, at any depth, whose values are ids of objects that a model server stores.
ID_FIELDS = frozenset(
    {"container", "container_id", "file_id", "file_ids", "skill_id", "vector_store_id", "vector_store_ids"}
)
# Fields, at any depth, whose values are objects with such an `id`.
_OBJECT_FIELDS = frozenset({"audio", "container", "voice"})
# Fields by API whose values are the caller's own, or are only shown to the model.
_OPAQUE_FIELDS: Mapping[str, frozenset[str]] = {
    "chat": frozenset({"annotations", "logprobs", "metadata", "parameters", "schema"}),
    "responses": frozenset({"annotations", "logprobs", "metadata", "parameters", "results", "schema"}),
    "messages": frozenset({"citations", "input", "input_schema", "metadata", "schema"}),
}
# Skills that the provider offers to everybody.
_PUBLIC_SKILL = "anthropic"
_NAMES = re.compile(rb'"(?:' + "|".join(sorted(ID_FIELDS | _OBJECT_FIELDS)).encode() + rb')"')
# Requests, by API, after which a server may store an object.
_MAKES = {"chat": re.compile(rb"audio"), "messages": re.compile(rb'"(?:tools|container)"')}
_MADE = {"chat": re.compile(rb'"audio"'), "messages": re.compile(rb'"container"|"file_id"')}
_MAX_REFERENCES, _MAX_OBJECTS = 5000, 1000
# Longer ids of model servers are ignored.
MAX_ID: Final = 200
# Decoding a document takes up to this many times as long as to scan it for usage.
_DECODING_COST = 8
_FORM_NAME = re.compile(r"[^\[\].]+")
_decode = msgspec.json.Decoder(Any, float_hook=json_decoding.number).decode


class InvalidReference(errors.UpstreamRefused):
    """The request names an object of another account, or names one where references are not allowed."""

    code = "invalid_value"


class ObjectPolicy(msgspec.Struct, frozen=True):
    """The owner of the objects that a request may name: the tenant, or anyone if `trusted` (the operator).

    `servers` are the names of the model servers that may receive the request unchanged.
    """

    tenant: Tenant
    trusted: bool
    servers: frozenset[str]

    @property
    def server(self) -> str:
        """The only model server that may receive the request unchanged, or an empty string."""
        return next(iter(self.servers)) if len(self.servers) == 1 else ""

    def owns(self, objects: OwnedObjects | None) -> bool:
        """Return whether an object belongs to the tenant and is stored at one of the servers."""
        return objects is not None and objects.server.partition("/")[0] in self.servers


def policy(router: ModelRouter, principal: Principal, model: str, wire: str) -> ObjectPolicy:
    try:
        targets = router.resolve(model)
    except errors.SixfoldError:
        # The gateway reports the error.
        targets = ()
    servers = frozenset(target.upstream.name for target in targets if target.accepts(wire))
    return ObjectPolicy(principal.tenant, principal.is_operator, servers)


def check_form(names: Iterable[str]) -> None:
    """Raise `InvalidReference` if a form field refers to an object, since forms contain files themselves."""
    for name in names:
        words = {*_FORM_NAME.findall(name)}
        if words & ID_FIELDS or (words & _OBJECT_FIELDS and "id" in words):
            raise InvalidReference(
                f"{name[:MAX_ID]} must be sent as JSON, not in a form", param=name[:MAX_ID]
            )


def may_refer(raw: bytes) -> bool:
    """Return False if a body certainly does not name an object, otherwise True."""
    return byte_search.may_have_name(_NAMES, raw)


def _marks(wire: str, raw: bytes) -> tuple[bool, bool]:
    """Return whether a body may name an object, and whether it may cause a server to store one."""
    if byte_search.has_escaped_name(raw):
        return True, True
    return byte_search.has_match(_NAMES, raw), byte_search.has_match(_MAKES[wire], raw)


def object_ids(value: Any, wire: str) -> Iterator[str]:
    """Yield the ids of objects in a part of a request, except in fields with arbitrary content."""
    opaque: Container[str] = _OPAQUE_FIELDS.get(wire, ())
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, list):
            stack += cast("list[Any]", each)
        elif isinstance(each, dict):
            fields = cast("dict[str, Any]", each)
            for name, inner in fields.items():
                if name in opaque:
                    continue
                if name in ID_FIELDS and not (name == "skill_id" and fields.get("type") == _PUBLIC_SKILL):
                    yield from _texts(inner)
                if name in _OBJECT_FIELDS and isinstance(inner, dict):
                    yield from _texts(cast("dict[str, Any]", inner).get("id"))
                if isinstance(inner, dict | list):
                    stack.append(inner)


def _texts(value: Any) -> Iterator[str]:
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    yield from (text for text in values if isinstance(text, str) and text)


def check(policy: ObjectPolicy, objects: Mapping[str, str], owned: Mapping[str, OwnedObjects]) -> None:
    """Raise `InvalidReference`, with the parameter, if an object does not belong to the tenant."""
    for object_id, param in objects.items():
        if not policy.trusted and not policy.owns(owned.get(object_id)):
            # The same error as for an unknown object, so that ids cannot be probed.
            message = f"Object with id '{object_id[:MAX_ID]}' not found."
            raise InvalidReference(message, status=404, param=param)


def created_ids(wire: str, document: Any) -> Iterator[str]:
    """Yield the ids of objects that a server states that it has stored, in a response or one of its events.

    Only fields that a server fills by itself count: neither a model nor a tool of the caller chooses them.
    """
    yield from _CREATED_IDS[wire](document)


def _ids_in_chat(document: Any) -> Iterator[str]:
    for choice in _list(document, "choices"):
        for name in ("message", "delta"):
            yield from _texts(_field(_field(_field(choice, name), "audio"), "id"))


def _ids_in_message(document: Any) -> Iterator[str]:
    for part in (document, _field(document, "message"), _field(document, "delta")):
        yield from _texts(_field(_field(part, "container"), "id"))
        for block in _list(part, "content"):
            yield from _ids_in_block(block)
    yield from _ids_in_block(_field(document, "content_block"))


def _ids_in_block(block: Any) -> Iterator[str]:
    """Yield the ids of files written by code that the server ran, from the tool's result."""
    if str(_field(block, "type")).endswith("code_execution_tool_result"):
        for output in _list(_field(block, "content"), "content"):
            yield from _texts(_field(output, "file_id"))


def ids_in_item(item: Any) -> Iterator[str]:
    """Yield the ids of objects that an output item of a response shows to be stored at its server."""
    match _field(item, "type"):
        case "code_interpreter_call":
            yield from _texts(_field(item, "container_id"))
        case "shell_call":
            yield from _texts(_field(_field(item, "environment"), "container_id"))
        case "message":
            for part in _list(item, "content"):
                for note in _list(part, "annotations"):
                    if _field(note, "type") == "container_file_citation":
                        yield from _texts(_field(note, "container_id"))
                        yield from _texts(_field(note, "file_id"))
        case _:
            return


_CREATED_IDS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "chat": _ids_in_chat,
    "messages": _ids_in_message,
}


def _field(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _list(value: Any, name: str) -> list[Any]:
    items = _field(value, name)
    return cast("list[Any]", items) if isinstance(items, list) else []


class ObjectGuard:
    """Refuses requests that name objects of other accounts, and records the objects of responses."""

    def __init__(self, store: ResponseStore, router: ModelRouter) -> None:
        self._store = store
        self._router = router

    async def admit(self, principal: Principal, call: ChatCall, raw: bytes, wire: str) -> ChatCall:
        """Return a chat call that records what its response stores; raises `InvalidReference`."""
        refers, makes = await bodies.parse(functools.partial(_marks, wire), raw)
        if refers:
            await self.check(principal, call.model, raw, wire)
        if not makes:
            return call
        return replace(call, recorder=ObjectRecorder(self._store, principal.tenant, wire))

    async def check(self, principal: Principal, model: str, raw: bytes, wire: str) -> None:
        """Raise `InvalidReference` if a request names an object that its principal does not own."""
        if not await bodies.parse(may_refer, raw):
            return
        references = await bodies.parse(lambda body: _find(body, wire), raw)
        if not references:
            return
        if len(references) > _MAX_REFERENCES:
            raise InvalidReference(
                f"A request may refer to at most {_MAX_REFERENCES} objects (got {len(references)})"
            )
        owned = await self._store.owned(principal.tenant, references)
        check(policy(self._router, principal, model, wire), references, owned)


def _find(raw: bytes, wire: str) -> Mapping[str, str]:
    """Return the parameters by object id, for all objects that a request names."""
    try:
        body = _decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(bodies.INVALID_JSON) from error
    references: dict[str, str] = {}
    for name, value in cast("dict[str, Any]", body if isinstance(body, dict) else {}).items():
        rows = cast("list[Any]", value) if name == "messages" and isinstance(value, list) else None
        if rows is None:
            references |= dict.fromkeys(object_ids({name: value}, wire), name)
        else:
            for index, row in enumerate(rows):
                references |= dict.fromkeys(object_ids(row, wire), f"messages[{index}]")
    return references


class ObjectRecorder:
    """Records the objects of one response for its tenant, before the caller receives their ids."""

    def __init__(self, store: ResponseStore, tenant: Tenant, wire: str) -> None:
        self._store = store
        self._tenant = tenant
        self._wire = wire
        self._known: set[str] = set()

    async def record(self, body: bytes, server: str) -> bytes:
        if server and _MADE[self._wire].search(body) is not None:
            await self._keep(await bodies.parse(self._created_ids, body), server)
        return body

    async def record_stream(self, blocks: AsyncGenerator[bytes], server: str) -> AsyncGenerator[bytes]:
        """Yield the blocks of a stream, recording the objects of each before it."""
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                if server and _MADE[self._wire].search(block) is not None:
                    # The lines are decoded, which takes longer than to parse the block.
                    cost = _DECODING_COST * len(block)
                    await self._keep(await PARSER.run_large(cost, self._ids_of_events, block), server)
                yield block

    def _ids_of_events(self, block: bytes) -> tuple[str, ...]:
        object_ids: dict[str, None] = {}
        for line in block.split(b"\n"):
            if line.startswith(b"data:") and _MADE[self._wire].search(line) is not None:
                object_ids |= dict.fromkeys(self._created_ids(line.removeprefix(b"data:")))
        return tuple(object_ids)

    def _created_ids(self, raw: bytes) -> tuple[str, ...]:
        try:
            return tuple(dict.fromkeys(created_ids(self._wire, _decode(raw))))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # The model server did not return JSON in the expected form.
            return ()

    async def _keep(self, object_ids: Iterable[str], server: str) -> None:
        valid = (each for each in object_ids if 0 < len(each) <= MAX_ID and each not in self._known)
        new = [*islice(valid, _MAX_OBJECTS - len(self._known))]
        if new:
            self._known.update(new)
            await self._store.record(self._tenant, None, OwnedObjects(server, "", tuple(new)))
