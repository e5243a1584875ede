"""Items of inputs and outputs: their ids and their full form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sixfold.api.gateway.openai import parsing
from sixfold.core import ids
from sixfold.core.gateway.conversations.conversations import ConversationItem
from sixfold.core.input_limits import json_decoding

# Prefixes of item ids, by the type of the item.
ID_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
}
_encode = parsing.encode
_decode = msgspec.json.Decoder(dict[str, Any], float_hook=json_decoding.number).decode


class _RequestItems(msgspec.Struct):
    input: str | list[msgspec.Raw] | None = None


_parse_request = msgspec.json.Decoder(_RequestItems).decode


def request_input(raw: bytes) -> str | list[msgspec.Raw]:
    """Return the input of a request: a string, or its unparsed items."""
    return _parse_request(raw).input or []


def input_items(raw: bytes) -> list[msgspec.Raw]:
    """Return the items of a request's input; a string becomes a user message."""
    value = request_input(raw)
    if isinstance(value, list):
        return value
    content = [{"type": "input_text", "text": value}]
    return [msgspec.Raw(_encode({"type": "message", "role": "user", "content": content}))]


def prefix_of(item: Mapping[str, Any]) -> str:
    return ID_PREFIXES.get(str(item.get("type") or "message"), "item")


def full_item(item: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    """Return an item in its full form: with an id (by default `own_id`), and its text as a part."""
    kind = str(item.get("type") or "message")
    full = {**item, "id": str(item.get("id") or own_id), "type": kind}
    if kind in ID_PREFIXES:
        full.setdefault("status", "completed")
    if isinstance(full.get("content"), str):
        part = "output_text" if full.get("role") == "assistant" else "input_text"
        full["content"] = [{"type": part, "text": full["content"]}]
    return full


def conversation_items(items: Iterable[msgspec.Raw], *, keep_ids: bool) -> tuple[ConversationItem, ...]:
    """Return items in the form in which conversations store them, with new ids unless `keep_ids`."""
    return tuple(_conversation_item(_decode(item), keep_id=keep_ids) for item in items)


def _conversation_item(item: dict[str, Any], *, keep_id: bool) -> ConversationItem:
    if not keep_id:
        item.pop("id", None)
    full = full_item(item, ids.new(prefix_of(item)))
    return ConversationItem(full["id"], _encode(full).decode())
