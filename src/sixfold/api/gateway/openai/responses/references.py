"""References of a request to objects that are stored elsewhere: items, files, containers, vector stores.

A reference is passed on if the account owns the object, or for the operator; see `provider_objects`. Items of
stored responses replace their references where the model server does not have them. Items that are sent in
full get new ids, as a server might look them up by their ids.

Ids of this server's items contain the id of their response (`msg_<response>_<number>`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from sixfold import errors
from sixfold.api.gateway import provider_objects
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.responses import dialect
from sixfold.api.gateway.openai.responses import items as item_forms
from sixfold.api.gateway.provider_objects import ObjectPolicy
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.conversations.responses import (
    OwnedObjects,
    ResponseNotFound,
    ResponseStore,
    too_long,
)
from sixfold.core.input_limits import byte_search, json_decoding
from sixfold.web import bodies

# Items that are left out if only the model server could complete them: a request is complete without them.
_OMITTED_ITEMS = dialect.PROVIDER_TOOL_ITEMS | {"reasoning"}
# Fields of a request without references.
_PLAIN_FIELDS = frozenset({"input", "instructions", "metadata", "model", "text"})
_NAMES = re.compile(
    rb'"(?:id|approval_request_id|prompt|' + "|".join(sorted(provider_objects.ID_FIELDS)).encode() + rb')"'
)
# The fields with the id of an item, and of the item that it responds to.
OWN_ID: Final = ("id",)
ID_NAMES: Final = (*OWN_ID, "approval_request_id")
_MAX_REFERENCES, _MAX_OBJECTS = 5000, 1000
_ID_DIGITS = 48
_WIRE = "responses"
_encode = parsing.encode
_decode = msgspec.json.Decoder(Any, float_hook=json_decoding.number).decode


class _ReferencedItems(msgspec.Struct):
    output: list[msgspec.Raw] = []


class _ItemId(msgspec.Struct):
    id: str | None = None


_parse_response = msgspec.json.Decoder(_ReferencedItems).decode
_item_id = msgspec.json.Decoder(_ItemId).decode


class _References(msgspec.Struct):
    """The references of a request: items with an id by their index, and ids of other objects."""

    items: dict[int, dict[str, Any]] = {}
    bare: dict[int, str] = {}
    objects: dict[str, str] = {}
    has_prompt: bool = False

    def __bool__(self) -> bool:
        return bool(self.items or self.bare or self.objects or self.has_prompt)


def may_refer(raw: bytes) -> bool:
    """Return False if a body certainly does not contain references, otherwise True."""
    return byte_search.may_have_name(_NAMES, raw)


async def resolve(
    store: ResponseStore,
    policy: ObjectPolicy,
    raw: bytes,
    max_bytes: int,
    renamed: Container[str] = ID_NAMES,
) -> bytes:
    """Return the request without references that the policy does not allow.

    Only the ids in the fields `renamed` get new values.

    Raises `InvalidRequest` for an unknown object and for an object of another tenant, and `TooLong` if the
    responses that contain the items, or the items that replace the references, exceed `max_bytes`.
    """
    references = await bodies.parse(_find, raw)
    if not references:
        return raw
    if references.has_prompt and not policy.trusted:
        raise InvalidRequest(
            "prompt names an object that belongs to the operator at the provider: send instructions and "
            "input instead",
            param="prompt",
        )
    item_ids = {own_id for item in references.items.values() for own_id in _own_ids(item).values()}
    object_ids = {*item_ids, *references.bare.values(), *references.objects}
    if len(object_ids) > _MAX_REFERENCES:
        raise InvalidRequest(
            f"input may refer to at most {_MAX_REFERENCES} objects (got {len(object_ids)})", param="input"
        )
    owned = await store.owned(policy.tenant, object_ids)
    provider_objects.check(policy, references.objects, owned)
    same_server_ids = {each for each, row in owned.items() if row.server.partition("/")[0] == policy.server}
    stored = await _stored_items(store, policy, references, owned, same_server_ids, max_bytes)
    changed: dict[int, msgspec.Raw | None] = {
        index: stored[item_id] for index, item_id in references.bare.items() if item_id in stored
    }
    # Several references may name one item.
    sizes = {item_id: memoryview(item).nbytes for item_id, item in stored.items()}
    if sum(sizes.get(item_id, 0) for item_id in references.bare.values()) > max_bytes:
        raise too_long()
    if not policy.trusted:
        changed |= _renamed(policy.tenant, references.items, same_server_ids, renamed)
    return await bodies.parse(lambda body: _with_items(body, changed), raw) if changed else raw


def _find(raw: bytes) -> _References:
    references = _References()
    value = item_forms.request_input(raw)
    try:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if may_refer(bytes(item)):
                _find_in_item(references, index, _decode(item))
        for name, field_value in parsing.raws(raw).items():
            if name not in _PLAIN_FIELDS and may_refer(b'"%s":' % name.encode() + bytes(field_value)):
                decoded = _decode(field_value)
                references.has_prompt |= name == "prompt" and bool(decoded)
                references.objects |= dict.fromkeys(provider_objects.object_ids({name: decoded}, _WIRE), name)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(bodies.INVALID_JSON) from error
    return references


def _find_in_item(references: _References, index: int, item: Any) -> None:
    if not isinstance(item, dict):
        # The parser of the request reports the error.
        return
    fields = cast("dict[str, Any]", item)
    references.objects |= dict.fromkeys(provider_objects.object_ids(fields, _WIRE), f"input[{index}]")
    own_ids = _own_ids(fields)
    if fields.get("type") == "item_reference" or ("id" in own_ids and _is_bare(fields)):
        references.bare[index] = own_ids.get("id", "")
    elif own_ids:
        references.items[index] = fields


def _own_ids(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of an item and of the item that it responds to, by their fields."""
    values = ((name, item.get(name)) for name in ID_NAMES)
    return {name: value for name, value in values if isinstance(value, str) and value}


def _is_bare(item: Mapping[str, Any]) -> bool:
    """Return whether an item consists only of its id, by which a server must look it up."""
    match item.get("type"):
        case "image_generation_call":
            return not item.get("result")
        case str(kind) if kind in _OMITTED_ITEMS:
            return False
        case _:
            return not _has_content(item)


def _has_content(item: Mapping[str, Any]) -> bool:
    return any(item[name] for name in item.keys() - {"id", "type", "status"})


def _is_complete(item: Mapping[str, Any]) -> bool:
    """Return whether an item of another server is useful without the data that only that server has."""
    return bool(item.get("encrypted_content")) if item.get("type") == "reasoning" else _has_content(item)


async def _stored_items(
    store: ResponseStore,
    policy: ObjectPolicy,
    references: _References,
    owned: Mapping[str, OwnedObjects],
    stored_ids: set[str],
    max_bytes: int,
) -> Mapping[str, msgspec.Raw]:
    """Return the items that replace references, by id; the model server stores those of `stored_ids`."""
    response_ids = {
        item_id: owned[item_id].response_id if item_id in owned else _response_id(item_id)
        for item_id in references.bare.values()
        if item_id not in stored_ids
    }
    try:
        responses = await store.get_many(policy.tenant, set(response_ids.values()), max_bytes)
    except ResponseNotFound as error:
        raise _not_found(
            references, next(key for key, value in response_ids.items() if value == error.response_id)
        ) from None
    stored = await PARSER.run_large(sum(map(len, responses)), _by_id, responses)
    for item_id in response_ids:
        if item_id not in stored and not policy.trusted:
            raise _not_found(references, item_id)
    return {item_id: stored[item_id] for item_id in response_ids if item_id in stored}


def _not_found(references: _References, item_id: str) -> InvalidRequest:
    index = next(index for index, each in references.bare.items() if each == item_id)
    return InvalidRequest(f"Item with id '{item_id[:200]}' not found.", status=404, param=f"input[{index}]")


def _renamed(
    tenant: Tenant, items: Mapping[int, dict[str, Any]], stored_ids: set[str], names: Container[str]
) -> Mapping[int, msgspec.Raw | None]:
    """Return items with new ids by index; None for an item that only its server could complete."""
    changed: dict[int, msgspec.Raw | None] = {}
    for index, item in items.items():
        own_ids = ((name, value) for name, value in _own_ids(item).items() if name in names)
        foreign = {name: value for name, value in own_ids if value not in stored_ids}
        if "id" in foreign and not _is_complete(item):
            changed[index] = None
        elif foreign:
            new_ids = {name: renamed_id(tenant, value) for name, value in foreign.items()}
            changed[index] = msgspec.Raw(_encode({**item, **new_ids}))
    return changed


def renamed_id(tenant: Tenant, item_id: str) -> str:
    """Return the replacement of an id, which is different for every account."""
    prefix = item_id.partition("_")[0][:20]
    digest = hashlib.sha256(f"{tenant.account_id} {item_id}".encode()).hexdigest()
    return f"{prefix}_{digest[:_ID_DIGITS]}"


def _with_items(raw: bytes, changed: Mapping[int, msgspec.Raw | None]) -> bytes:
    items = [changed.get(index, item) for index, item in enumerate(item_forms.input_items(raw))]
    return _encode({**parsing.raws(raw), "input": [item for item in items if item is not None]})


def _response_id(item_id: str) -> str:
    return f"resp_{item_id.partition('_')[2].rpartition('_')[0]}"


def _by_id(responses: Iterable[str]) -> Mapping[str, msgspec.Raw]:
    items = (item for response in responses for item in _parse_response(response).output)
    return {parsed.id: item for item in items if (parsed := _item_id(item)).id}


def is_item(raw: msgspec.Raw) -> bool:
    """Return whether a value in the output of a model server is an object whose id, if any, is a text."""
    try:
        item: Any = _decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return isinstance(item, dict) and isinstance(cast("dict[str, Any]", item).get("id"), str | None)


def created(output: Iterable[msgspec.Raw], *, stored: bool) -> tuple[str, ...]:
    """Return the ids of the objects that a server stores for a response; items only if `stored` is set."""
    object_ids: dict[str, None] = {}
    for item in output:
        if stored:
            object_ids |= dict.fromkeys([_item_id(item).id or ""])
        if may_refer(bytes(item)):
            object_ids |= dict.fromkeys(provider_objects.ids_in_item(_decode(item)))
    return tuple(own for own in object_ids if 0 < len(own) <= provider_objects.MAX_ID)[:_MAX_OBJECTS]
