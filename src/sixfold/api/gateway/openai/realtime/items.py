"""Items of a realtime conversation: parsed from client events, and rendered in server events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core import ids
from sixfold.core.gateway.realtime.conversation import MAX_ITEMS, RealtimeConversation, check_size
from sixfold.core.gateway.realtime.items import (
    AudioContent,
    CallItem,
    CallOutputItem,
    ContentPart,
    ImageContent,
    MessageItem,
    MessageRole,
    RealtimeItem,
    ServerCallItem,
    TextContent,
    ToolListItem,
)

_MAX_ID = 64
_MAX_PARTS = 100
_ROLES: Mapping[str, MessageRole] = {"user": "user", "assistant": "assistant", "system": "system"}
# The types of parts by role.
_TEXT_TYPES = {"user": "input_text", "system": "input_text", "assistant": "output_text"}
_AUDIO_TYPES = {"user": "input_audio", "assistant": "output_audio"}
REFERENCE = "item_reference"


def new_id() -> str:
    return ids.new("item")


def parse(value: Any, name: str = "item") -> RealtimeItem:
    """Return an item of a client; raises `InvalidRequest`."""
    item = parsing.mapping(value, name)
    item_id = _text(item, "id", name, default="") or new_id()
    if len(item_id) > _MAX_ID:
        raise InvalidRequest(f"{name}.id must have at most {_MAX_ID} characters", param=f"{name}.id")
    match item.get("type"):
        case "message":
            return _message(item, item_id, name)
        case "function_call":
            call_id = _text(item, "call_id", name, default="") or ids.new("call")
            return CallItem(item_id, call_id, _text(item, "name", name), _text(item, "arguments", name))
        case "function_call_output":
            return CallOutputItem(item_id, _text(item, "call_id", name), _text(item, "output", name))
        case kind:
            kinds = "message, function_call or function_call_output"
            raise InvalidRequest(
                f"{name}.type must be {kinds} (got {str(kind)[:40]!r})", param=f"{name}.type"
            )


def parse_input(value: Any, conversation: RealtimeConversation) -> Sequence[RealtimeItem]:
    """Return the items of `response.input`, which may refer to items of the conversation.

    Raises `InvalidRequest`, and `TooLarge` if the items exceed a limit of conversations.
    """
    rows = parsing.items(value, "response.input")
    if len(rows) > MAX_ITEMS:
        raise InvalidRequest(
            f"response.input must have at most {MAX_ITEMS:,} items (got {len(rows):,})",
            param="response.input",
        )
    known = conversation.by_id()
    parsed: list[RealtimeItem] = []
    for index, row in enumerate(rows):
        name = f"response.input[{index}]"
        item = parsing.mapping(row, name)
        if item.get("type") == REFERENCE:
            item_id = _text(item, "id", name)
            parsed.append(known.get(item_id) or conversation.find(item_id))
        else:
            parsed.append(parse(item, name))
    check_size(parsed)
    return parsed


def _message(item: Mapping[str, Any], item_id: str, name: str) -> MessageItem:
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise InvalidRequest(f"{name}.role must be user, assistant or system", param=f"{name}.role")
    path = f"{name}.content"
    content = parsing.items(item.get("content"), path)
    if len(content) > _MAX_PARTS:
        raise InvalidRequest(f"{path} must have at most {_MAX_PARTS} parts (got {len(content)})", param=path)
    parts = [_part(parsing.mapping(part, path), role, path) for part in content]
    return MessageItem(item_id, role, parts)


def _part(part: Mapping[str, Any], role: MessageRole, path: str) -> ContentPart:
    kind = part.get("type")
    if kind == _TEXT_TYPES[role]:
        return TextContent(_text(part, "text", path))
    if kind == "input_image" and role == "user":
        return ImageContent(parsing.image_part(part.get("image_url"), f"{path}.image_url"))
    if kind == _AUDIO_TYPES.get(role) and part.get("audio") is None:
        return AudioContent(_text(part, "transcript", path))
    kinds = [_TEXT_TYPES[role], *(["input_image"] if role == "user" else []), _AUDIO_TYPES.get(role, "")]
    allowed = " or ".join(filter(None, kinds))
    if kind in kinds:
        raise InvalidRequest(
            f"{path}.audio cannot be sent in an item: send audio with input_audio_buffer.append, or a "
            "transcript",
            param=f"{path}.audio",
        )
    raise InvalidRequest(
        f"{path}.type must be {allowed} in a message with the role {role} (got {str(kind)[:40]!r})",
        param=f"{path}.type",
    )


def _text(item: Mapping[str, Any], field: str, name: str, default: str | None = None) -> str:
    value = item.get(field, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise InvalidRequest(f"{name}.{field} is required and must be a string", param=f"{name}.{field}")
    return value


def render(item: RealtimeItem) -> dict[str, Any]:
    """Return an item as server events contain it."""
    if isinstance(item, ServerCallItem | ToolListItem):
        return _rendered_of_server(item)
    shared = {"id": item.id, "object": "realtime.item", "status": item.status}
    match item:
        case MessageItem():
            content = [_rendered(part, item.role) for part in item.parts]
            return {**shared, "type": "message", "role": item.role, "content": content}
        case CallItem():
            call = {"name": item.name, "call_id": item.call_id, "arguments": item.arguments}
            return {**shared, "type": "function_call", **call}
        case CallOutputItem():
            output = {"call_id": item.call_id, "output": item.output}
            return {**shared, "type": "function_call_output", **output}


def _rendered_of_server(item: ServerCallItem | ToolListItem) -> dict[str, Any]:
    shared = {"id": item.id, "object": "realtime.item", "server_label": item.server}
    if isinstance(item, ToolListItem):
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in item.tools
        ]
        return {**shared, "type": "mcp_list_tools", "tools": tools}
    failure = {"type": "tool_execution_error", "message": item.output} if item.failed else None
    return {
        **shared,
        "type": "mcp_call",
        "name": item.name,
        "arguments": item.arguments,
        "output": None if item.failed else item.output,
        "error": failure,
        "approval_request_id": None,
    }


def _rendered(part: ContentPart, role: MessageRole) -> dict[str, Any]:
    match part:
        case TextContent():
            return {"type": _TEXT_TYPES[role], "text": part.text}
        case ImageContent():
            image = part.image
            url = image.url or f"data:{image.media_type};base64,{image.data}"
            return {"type": "input_image", "image_url": url}
        case AudioContent():
            return {"type": _AUDIO_TYPES[role], "transcript": part.transcript}
