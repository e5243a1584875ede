"""Resolves references to items of stored responses, which clients send instead of the items.

Our item ids contain the id of their response (`msg_<response>_<number>`). References to items of other
servers are passed on.
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


_parse_request = msgspec.json.Decoder(_RequestItems).decode
_item = msgspec.json.Decoder(_Item).decode
_parse_response = msgspec.json.Decoder(_ReferencedItems).decode


def request_input(raw: bytes) -> str | list[msgspec.Raw]:
    """Return the input of a request: a text, or its unparsed items."""
    return _parse_request(raw).input


async def resolve(store: ResponseStore, tenant: Tenant, raw: bytes, max_bytes: int) -> bytes:
    """Return the request with references replaced with the items stored here; other references stay.

    Raises `TooLong` if the responses that have the items exceed `most` bytes, and `InvalidRequest` for an
    item of another tenant, as for an unknown one: a server that stores it too must not be asked for it.
    """
    items = request_input(raw)
    if isinstance(items, str):
        return raw
    references = {index: item_id for index, item in enumerate(items) if (item_id := _referenced_id(item))}
    try:
        stored_items = _by_id(
            await store.get_many(
                tenant, {_response_id(item_id) for item_id in references.values()}, max_bytes
            )
        )
    except ResponseNotFound as error:
        index = next(
            index for index, item_id in references.items() if _response_id(item_id) == error.response_id
        )
        message = f"Item with id '{references[index]}' not found."
        raise errors.InvalidRequest(message, status=404, param=f"input[{index}]") from None
    if not stored_items:
        return raw
    resolved_items = [stored_items.get(references.get(index, ""), item) for index, item in enumerate(items)]
    return _encode({**parsing.raws(raw), "input": resolved_items})


def _referenced_id(item: msgspec.Raw) -> str:
    """Return the id that a reference names, or an empty string for other items."""
    try:
        parsed = _item(item)
    except msgspec.MsgspecError:
        # The parser of the request reports the error.
        return ""
    return parsed.id or "" if parsed.type == "item_reference" else ""


def _response_id(item_id: str) -> str:
    """Return the id of the response that an item's id names."""
    return f"resp_{item_id.partition('_')[2].rpartition('_')[0]}"


def _by_id(responses: Iterable[str]) -> Mapping[str, msgspec.Raw]:
    """Return the items of the responses by their ids."""
    items = (item for response in responses for item in _parse_response(response).output)
    return {parsed.id: item for item in items if (parsed := _item(item)).id}
