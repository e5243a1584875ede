"""Translates the tools of a response for servers that support only functions, and their calls back.

A plain-text tool becomes a function with one string parameter. The name of a tool in a namespace includes the
namespace.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.api.gateway.openai import parsing
from sixfold.core.gateway.chat import ToolCall, ToolSpec
from sixfold.core.input_limits import json_limits

_FIELD = "input"
_TEXT: Mapping[str, Any] = {
    "type": "object",
    "properties": {_FIELD: {"type": "string", "description": "All of the tool's input, as plain text"}},
    "required": [_FIELD],
    "additionalProperties": False,
}
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_TEXT_START = re.compile(r'\s*\{\s*"' + _FIELD + r'"\s*:\s*"')
_NAMESPACE = "namespace"
# The tools that become functions; the tools of a namespace are part of the same list.
_SENT = frozenset({"function", "custom"})
_KIND, _MAX_KINDS = re.compile(r"[A-Za-z0-9_.-]{1,64}"), 20
# Possessive, since the matcher would otherwise store 200 bytes for each character.
_COMPLETE_TEXT = re.compile(r'(?:[^"\\]++|\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....|\\[^u])*+')
# The maximum length of the prefix of the arguments in which the text is searched for.
_MAX_START_CHARS = 1_000


class ToolKind(msgspec.Struct, frozen=True):
    """A tool as its caller defines it; `text` if its input is plain text."""

    name: str
    namespace: str = ""
    text: bool = False


def wire_name(name: str, namespace: str = "") -> str:
    """Return the name of a tool in requests to a server."""
    return f"{namespace}{'' if namespace.endswith('__') else '__'}{name}" if namespace else name


def function_specs(value: Any) -> tuple[ToolSpec, ...]:
    """Return the tools for a server that supports only functions; omit those that only a provider can run."""
    return tuple(
        _text_tool(row, namespace, path) if row["type"] == "custom" else _function(row, namespace, path)
        for row, namespace, path in _rows(value)
    )


def tool_kinds(value: Any) -> Mapping[str, ToolKind]:
    """Return the tools with a namespace or plain-text input, by their names in requests to a server."""
    tools = (
        ToolKind(str(row.get("name") or ""), namespace, row["type"] == "custom")
        for row, namespace, _ in _rows(value)
    )
    return {wire_name(kind.name, kind.namespace): kind for kind in tools if kind.text or kind.namespace}


def ignored_kinds(value: Any) -> tuple[str, ...]:
    """Return the types of the tools that a server which supports only functions does not receive."""
    kinds: dict[str, None] = {}
    for row in parsing.items(value or [], "tools"):
        inner = row.get("tools") if row.get("type") == _NAMESPACE else [row]
        kinds |= dict.fromkeys(str(each.get("type")) for each in cast("list[Any]", inner or []))
    names = (kind for kind in kinds if kind not in _SENT)
    # The names are part of a header.
    return tuple(name for name in names if _KIND.fullmatch(name))[:_MAX_KINDS]


def tool_call(item: Mapping[str, Any]) -> ToolCall:
    """Convert an earlier tool call for a server that supports only functions."""
    arguments = str(item.get("arguments") or "{}")
    if item.get("type") == "custom_tool_call":
        arguments = json.dumps({_FIELD: str(item.get("input") or "")}, ensure_ascii=False)
    name = wire_name(str(item.get("name") or ""), str(item.get("namespace") or ""))
    return ToolCall(str(item.get("call_id") or ""), name, arguments)


def _rows(
    items: Any, namespace: str = "", param: str = "tools"
) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    for index, value in enumerate(parsing.items(items or [], param)):
        path = f"{param}[{index}]"
        row = parsing.mapping(value, path)
        match row.get("type"):
            case "function" | "custom":
                yield row, namespace, path
            case "namespace" if not namespace:
                yield from _rows(row.get("tools"), str(row.get("name") or ""), f"{path}.tools")
            case _:
                # Only the provider could run this tool, and the model can respond without it.
                pass


def _function(row: Mapping[str, Any], namespace: str, path: str) -> ToolSpec:
    schema = parsing.mapping(row.get("parameters") or _NO_PARAMETERS, f"{path}.parameters")
    return ToolSpec(
        wire_name(str(row.get("name") or ""), namespace), str(row.get("description") or ""), schema
    )


def _text_tool(row: Mapping[str, Any], namespace: str, path: str) -> ToolSpec:
    """Return a plain-text tool; its grammar can only be described, not enforced."""
    description = str(row.get("description") or "")
    input_format = parsing.mapping(row.get("format") or {}, f"{path}.format")
    if input_format.get("type") == "grammar":
        syntax, grammar = input_format.get("syntax"), input_format.get("definition")
        description += f"\n\nThe input follows this grammar ({syntax}):\n{grammar}"
    return ToolSpec(wire_name(str(row.get("name") or ""), namespace), description.strip(), _TEXT)


class PlainTool:
    """Extracts the plain text from streamed arguments."""

    def __init__(self) -> None:
        self._raw = io.StringIO()
        self._returned = io.StringIO()
        # The end of the arguments that has not been returned yet.
        self._rest = ""
        self._has_begun = self._has_ended = False

    def add(self, piece: str) -> str:
        self._raw.write(piece)
        if self._has_ended:
            return ""
        self._rest += piece
        if not self._has_begun:
            opening = _TEXT_START.match(self._rest)
            if opening is None:
                # The text is found at the end.
                self._has_ended = len(self._rest) > _MAX_START_CHARS
                return ""
            self._has_begun, self._rest = True, self._rest[opening.end() :]
        match = _COMPLETE_TEXT.match(self._rest)
        if match is None or not match.group():
            return ""
        self._rest = self._rest[match.end() :]
        self._has_ended = self._rest.startswith('"')
        text = _unescape(match.group())
        self._returned.write(text)
        return text

    def finish(self) -> str:
        """Return the remaining text at the end; all of it if the arguments are not the expected object."""
        text, returned = text_of(self._raw.getvalue()), self._returned.getvalue()
        return text.removeprefix(returned) if text.startswith(returned) else ""


def text_of(arguments: str) -> str:
    """Return the plain text in complete arguments; arguments in another form are returned unchanged."""
    try:
        json_limits.DEFAULT.check(arguments.encode("utf-8", "surrogatepass"))
        value: Any = json.loads(arguments or '""', strict=False)
    except (ValueError, RecursionError, errors.InputTooLarge):
        return arguments
    if isinstance(value, dict):
        values = list(cast("dict[str, Any]", value).values())
        value = values[0] if len(values) == 1 else None
    return _without_surrogates(value) if isinstance(value, str) else arguments


def _unescape(escaped: str) -> str:
    try:
        return _without_surrogates(str(json.loads(f'"{escaped}"', strict=False)))
    except ValueError:
        return escaped


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON responses cannot contain."""
    return text.encode("utf-8", "replace").decode()
