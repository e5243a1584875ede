"""References to items of responses that are kept, where clients send them in place of what was said.

An id of ours names its response (`msg_<response>_<number>`), so an item is looked up where it was said. Those
of other servers are theirs to understand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from sixfold.api.gateway.openai import errors, parsing
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.gateway.stored_responses import ResponseNotFound, ResponseStore

MARK = b'"item_reference"'
_encode = parsing.encode


class _RequestItems(msgspec.Struct):
    input: str | list[msgspec.Raw]


class _Item(msgspec.Struct):
    type: str | None = None
    id: str | None = None


class _ReferencedItems(msgspec.Struct):
    output: list[msgspec.Raw] = []


_given = msgspec.json.Decoder(_RequestItems).decode
_item = msgspec.json.Decoder(_Item).decode
_told = msgspec.json.Decoder(_ReferencedItems).decode


def given(raw: bytes) -> str | list[msgspec.Raw]:
    """A request's input: a text, or its items, each as it was written."""
    return _given(raw).input


async def resolved(shelf: ResponseStore, tenant: Tenant, raw: bytes, most: int) -> bytes:
    """A request with the items that are kept here in place of references to them; the others stay.

    Raises `TooLong` where these are items of responses with more than `most` bytes, `InvalidRequest` for
    another tenant's, as for what nobody keeps: a server that knows them as well must not be asked for them.
    """
    said = given(raw)
    if isinstance(said, str):
        return raw
    wanted = {index: name for index, item in enumerate(said) if (name := _named(item))}
    try:
        known = _by_id(await shelf.get_many(tenant, {_response(name) for name in wanted.values()}, most))
    except ResponseNotFound as unknown:
        index = next(index for index, name in wanted.items() if _response(name) == unknown.response_id)
        message = f"Item with id '{wanted[index]}' not found."
        raise errors.InvalidRequest(message, status=404, param=f"input[{index}]") from None
    if not known:
        return raw
    items = [known.get(wanted.get(index, ""), item) for index, item in enumerate(said)]
    return _encode({**parsing.raws(raw), "input": items})


def _named(item: msgspec.Raw) -> str:
    """What an item refers to, or empty where it is none but itself."""
    try:
        found = _item(item)
    except msgspec.MsgspecError:
        return ""  # whoever reads the request says what is wrong with it
    return found.id or "" if found.type == "item_reference" else ""


def _response(name: str) -> str:
    """The response that an item's id names, if it is one of ours."""
    return f"resp_{name.partition('_')[2].rpartition('_')[0]}"


def _by_id(responses: Iterable[str]) -> Mapping[str, msgspec.Raw]:
    """The items that some responses told, by their ids."""
    items = (item for response in responses for item in _told(response).output)
    return {found.id: item for item in items if (found := _item(item)).id}
