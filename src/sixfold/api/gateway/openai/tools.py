"""The tools of a response, told to servers that know functions only, and their calls told back.

A tool of plain text is a function of one text there. What stands in a namespace has both names in one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sixfold.api.gateway.openai import parsing
from sixfold.core.gateway.chat import ToolCall, ToolSpec

_FIELD = "input"
_TEXT: Mapping[str, Any] = {
    "type": "object",
    "properties": {_FIELD: {"type": "string", "description": "All of the tool's input, as plain text"}},
    "required": [_FIELD],
    "additionalProperties": False,
}
_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
_OPENING = re.compile(r'\s*\{\s*"' + _FIELD + r'"\s*:\s*"')
_SAFE = re.compile(r'(?:[^"\\]|\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....|\\[^u])*')


@dataclass(frozen=True, slots=True)
class ToolKind:
    """A tool as its caller knows it; `text` where its input is plain text."""

    name: str
    namespace: str = ""
    text: bool = False


def wire(name: str, namespace: str = "") -> str:
    """The one name by which a server is told a tool."""
    return f"{namespace}{'' if namespace.endswith('__') else '__'}{name}" if namespace else name


def offered(given: Any) -> tuple[ToolSpec, ...]:
    """What a server that knows functions only is offered: not what the provider itself would run."""
    return tuple(
        _text(row, namespace, where) if row["type"] == "custom" else _function(row, namespace, where)
        for row, namespace, where in _rows(given)
    )


def kinds(given: Any) -> Mapping[str, ToolKind]:
    """By the names that a server is told, what their caller knows by others or gives plain text."""
    found = (
        ToolKind(str(row.get("name") or ""), namespace, row["type"] == "custom")
        for row, namespace, _ in _rows(given)
    )
    return {wire(kind.name, kind.namespace): kind for kind in found if kind.text or kind.namespace}


def call(item: Mapping[str, Any]) -> ToolCall:
    """A call that was made before, as a server that knows functions only is told it."""
    arguments = str(item.get("arguments") or "{}")
    if item.get("type") == "custom_tool_call":
        arguments = json.dumps({_FIELD: str(item.get("input") or "")}, ensure_ascii=False)
    name = wire(str(item.get("name") or ""), str(item.get("namespace") or ""))
    return ToolCall(str(item.get("call_id") or ""), name, arguments)


def _rows(
    given: Any, namespace: str = "", param: str = "tools"
) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    for index, value in enumerate(parsing.items(given or [], param)):
        where = f"{param}[{index}]"
        row = parsing.mapping(value, where)
        match row.get("type"):
            case "function" | "custom":
                yield row, namespace, where
            case "namespace" if not namespace:
                yield from _rows(row.get("tools"), str(row.get("name") or ""), f"{where}.tools")
            case _:
                pass  # the provider itself would run it, and the model can do without


def _function(row: Mapping[str, Any], namespace: str, where: str) -> ToolSpec:
    schema = parsing.mapping(row.get("parameters") or _NOTHING, f"{where}.parameters")
    return ToolSpec(wire(str(row.get("name") or ""), namespace), str(row.get("description") or ""), schema)


def _text(row: Mapping[str, Any], namespace: str, where: str) -> ToolSpec:
    """The grammar that the input shall follow can only be told, not enforced."""
    told = str(row.get("description") or "")
    form = parsing.mapping(row.get("format") or {}, f"{where}.format")
    if form.get("type") == "grammar":
        told += f"\n\nThe input follows this grammar ({form.get('syntax')}):\n{form.get('definition')}"
    return ToolSpec(wire(str(row.get("name") or ""), namespace), told.strip(), _TEXT)


class PlainTool:
    """The plain text within arguments that come piece by piece."""

    def __init__(self) -> None:
        self._raw = ""
        self._at = 0  # where in them the text begins that was not told yet; 0 before its quote came
        self._told = ""

    def more(self, piece: str) -> str:
        """What of the text this piece makes known."""
        self._raw += piece
        if not self._at:
            opening = _OPENING.match(self._raw)
            self._at = opening.end() if opening else 0
        if not self._at:
            return ""
        known = _SAFE.match(self._raw, self._at)
        if known is None or not known.group():
            return ""
        self._at = known.end()
        text = _unquoted(known.group())
        self._told += text
        return text

    def rest(self) -> str:
        """What is left at the end: all of it where the arguments were no object of one text."""
        whole = text_of(self._raw)
        return whole.removeprefix(self._told) if whole.startswith(self._told) else ""


def text_of(arguments: str) -> str:
    """The plain text within whole arguments; a model that keeps to no form has its say."""
    try:
        found: Any = json.loads(arguments or '""', strict=False)
    except ValueError:
        return arguments
    if isinstance(found, dict):
        values = list(cast("dict[str, Any]", found).values())
        found = values[0] if len(values) == 1 else None
    return _whole(found) if isinstance(found, str) else arguments


def _unquoted(escaped: str) -> str:
    try:
        return _whole(str(json.loads(f'"{escaped}"', strict=False)))
    except ValueError:
        return escaped


def _whole(text: str) -> str:
    """Without halves of characters, which no answer can carry."""
    return text.encode("utf-8", "replace").decode()
