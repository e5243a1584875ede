"""Tools that providers run and charge for by use: searches, and containers that run code.

The number of uses is limited in the request, so that the hold covers them; a caller may set a lower limit. A
tool with an unknown price has an error, which is raised for every server that is not free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core.gateway.pricing.usage import TokenUsage, Units
from sixfold.core.input_limits import byte_search

MAX_USES = 10
_WEB_SEARCH, _PREVIEW, _WEB_FETCH = "web_search", "web_search_preview", "web_fetch"
_CODE_EXECUTION = "code_execution"
# Tools whose results may be of any size.
_UNLIMITED = frozenset({"mcp", "mcp_toolset"})
# Maximum tokens that one use adds to the input: of a search (OpenAI charges some models for exactly this
# many), of a search in files with 20 chunks, of a page unless the request sets a limit, and of all output of
# code.
_SEARCHED_TOKENS, _FOUND_TOKENS, _FETCHED_TOKENS, _PRINTED_TOKENS = 8_000, 16_000, 8_000, 10_000
# OpenAI charges more for a container with more memory.
_PRICED_MEMORY = (None, "1g")
# Models whose searches with the preview tool cost as much as those with the current tool.
_REASONING = re.compile(r"(?:.*/)?(?:o\d|gpt-[5-9](?!.*chat))")
# Models of chat completions that search the web for every answer.
_SEARCH_MODEL = re.compile(r"-search-(?:preview|api)")
# Tools that run code for free with their searches, from this version on.
_FREE_CODE = re.compile(r"web_(?:search|fetch)_(\d{8})")
_FREE_CODE_SINCE = 20260209
# Tools without a cost besides their tokens, by API; tools without a type are functions.
_FREE: Mapping[str, re.Pattern[str]] = {
    "chat": re.compile(r"function|custom"),
    "responses": re.compile(
        r"function|custom|mcp|local_shell|apply_patch|computer|computer_use_preview|tool_search|namespace"
    ),
    "messages": re.compile(
        r"custom|mcp_toolset|(?:bash|text_editor|computer|memory|web_fetch|tool_search_tool)_.*"
    ),
}
_PRICED: Mapping[str, re.Pattern[str]] = {
    "responses": re.compile(r"web_search.*|file_search|code_interpreter|shell"),
    "messages": re.compile(r"(?:web_search|code_execution)_.*"),
}
# Fields that make servers search, or answer faster or elsewhere, at a different price; and their free values.
_UNPRICED_FIELDS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "chat": dict.fromkeys(("enable_search", "search_parameters", "web_search"), (None, False)),
    "messages": {"speed": (None, "standard"), "inference_geo": (None, "global")},
}
# Fields of a request that are read here.
_NAMES = re.compile(
    rb'"(?:tools|web_search_options|enable_search|search_parameters|web_search|speed|inference_geo|mcp_servers)"'
)
_encode = msgspec.json.Encoder().encode


class _Tool(msgspec.Struct, omit_defaults=True):
    type: Any = None
    max_uses: Any = None
    max_content_tokens: Any = None
    container: Any = None
    environment: Any = None

    def is_kind(self, prefix: str) -> bool:
        return isinstance(self.type, str) and self.type.startswith(prefix)

    @property
    def place(self) -> dict[str, Any]:
        """The place where the tool runs code."""
        place = self.environment if self.type == "shell" else self.container
        return cast("dict[str, Any]", place) if isinstance(place, dict) else {}

    @property
    def runs_code(self) -> bool:
        """Whether the provider runs code in a separate container."""
        hosted = self.type == "shell" and self.place.get("type") not in (None, "local")
        return hosted or self.is_kind("code_interpreter")


class _Request(msgspec.Struct):
    tools: list[msgspec.Raw] | None = None
    max_tool_calls: Any = None
    web_search_options: Any = None
    enable_search: Any = None
    search_parameters: Any = None
    web_search: Any = None
    speed: Any = None
    inference_geo: Any = None
    mcp_servers: Any = None


_request = msgspec.json.Decoder(_Request).decode
_tool = msgspec.json.Decoder(_Tool).decode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_EMPTY = _Request()


class RequestTools:
    """The tools of a request that its provider runs; `answers` is the number of requested answers."""

    def __init__(self, wire: str, body: bytes, answers: int = 1) -> None:
        self._wire = wire
        self._answers = answers
        self._request = _parsed(body)
        self._tools = _tools_of(self._request)

    @property
    def is_empty(self) -> bool:
        """Whether the request contains none of the fields that this module reads."""
        return self._request is _EMPTY

    def max_uses(self, model: str) -> Units | None:
        """Return the maximum number of tool uses by a provider's model, or None without tools."""
        if self.is_empty and (self._wire != "chat" or _SEARCH_MODEL.search(model) is None):
            return None
        match self._wire:
            case "chat":
                units = self._chat(model)
            case "responses":
                units = self._responses(model)
            case "messages":
                units = self._messages()
            case _:
                return None
        return units if any(msgspec.structs.astuple(units)) else None

    def max_tokens(self, model: str, limit: int) -> int:
        """Return the maximum tokens that results of tools add to the input; `limit` for unlimited tools."""
        units = self.max_uses(model) or Units()
        if self._request.mcp_servers or any(str(tool.type) in _UNLIMITED for tool in self._tools):
            return limit
        fetched = sum(
            _limit(tool.max_uses) * _limit(tool.max_content_tokens, _FETCHED_TOKENS, limit)
            for tool in self._tools
            if tool.is_kind(_WEB_FETCH)
        )
        searches = units.web_searches + units.preview_searches
        runs = units.code_containers + sum(tool.is_kind(_CODE_EXECUTION) for tool in self._tools)
        files = _FOUND_TOKENS * units.file_searches
        return fetched + _SEARCHED_TOKENS * searches + files + _PRINTED_TOKENS * runs

    def used(self, model: str, usage: TokenUsage) -> TokenUsage:
        """Return the usage with the reported tool uses, at the prices of the request."""
        limits = self.max_uses(model)
        if limits is None and usage.units is None:
            return usage
        allowed, units = limits or Units(), usage.units or Units()
        if self._wire == "chat":
            # Servers do not report these searches.
            searches, previews = allowed.web_searches, allowed.preview_searches
        else:
            previews = units.web_searches if allowed.preview_searches else 0
            searches = units.web_searches - previews
        charged = msgspec.structs.replace(
            units,
            web_searches=searches,
            preview_searches=previews,
            code_executions=min(units.code_executions, allowed.code_executions),
        )
        return usage if charged == units else msgspec.structs.replace(usage, units=charged)

    @property
    def unpriced(self) -> errors.SixfoldError | None:
        """The error for a tool or a field whose price is unknown, or None."""
        if self.is_empty:
            return None
        for name, free in _UNPRICED_FIELDS.get(self._wire, {}).items():
            if getattr(self._request, name) not in free:
                return errors.InvalidInput.of(name, f"{name} has no price: omit it")
        free_kinds = _FREE.get(self._wire)
        if free_kinds is None:
            return None
        priced = _PRICED.get(self._wire)
        for index, tool in enumerate(self._tools):
            kind = "function" if tool.type is None else str(tool.type)
            if tool.type is None or free_kinds.fullmatch(kind) is not None:
                continue
            if priced is None or priced.fullmatch(kind) is None:
                return errors.InvalidInput.of(f"tools[{index}]", _without_price(kind))
            if tool.place.get("memory_limit") not in _PRICED_MEMORY:
                return errors.InvalidInput.of(f"tools[{index}]", "container.memory_limit must be 1g")
        return None

    def _responses(self, model: str) -> Units:
        uses = _limit(self._request.max_tool_calls)
        searches = uses * any(tool.is_kind(_WEB_SEARCH) for tool in self._tools)
        # If both kinds are present, the response does not state which one was used.
        is_preview = any(tool.is_kind(_PREVIEW) for tool in self._tools) and not _REASONING.match(model)
        return Units(
            web_searches=0 if is_preview else searches,
            preview_searches=searches if is_preview else 0,
            file_searches=uses * any(tool.is_kind("file_search") for tool in self._tools),
            code_containers=sum(tool.runs_code for tool in self._tools),
        )

    def _messages(self) -> Units:
        versions = [_FREE_CODE.match(str(tool.type)) for tool in self._tools]
        is_free = any(version is not None and int(version[1]) >= _FREE_CODE_SINCE for version in versions)
        runs_code = not is_free and any(tool.is_kind(_CODE_EXECUTION) for tool in self._tools)
        return Units(
            web_searches=sum(_limit(tool.max_uses) for tool in self._tools if tool.is_kind(_WEB_SEARCH)),
            code_executions=int(runs_code),
        )

    def _chat(self, model: str) -> Units:
        searches = _SEARCH_MODEL.search(model) is not None or self._request.web_search_options is not None
        count = self._answers * searches
        return Units(web_searches=count) if _REASONING.match(model) else Units(preview_searches=count)


def _without_price(kind: str) -> str:
    if kind == "image_generation":
        return "tools of type image_generation have no price: use POST /v1/images/generations"
    return f"tools of type {kind[:100]} have no price: omit them"


def _parsed(body: bytes) -> _Request:
    if not byte_search.may_have_name(_NAMES, body):
        return _EMPTY
    try:
        return _request(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # The server reports this use.
        return _EMPTY


def _tools_of(request: _Request) -> list[_Tool]:
    try:
        return [_tool(raw) for raw in request.tools or ()]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []


def _limit(value: Any, default: int = MAX_USES, limit: int = 1000) -> int:
    """Return the caller's limit if it is valid; the provider rejects invalid limits."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value <= limit else default


def limit_responses(fields: dict[str, msgspec.Raw]) -> None:
    """Set `max_tool_calls` in a request with a tool that is charged by use, unless it is already set."""
    if "tools" not in fields or bytes(fields.get("max_tool_calls", b"null")) != b"null":
        return
    if RequestTools("responses", _encode({"tools": fields["tools"]})).max_uses("") is not None:
        fields["max_tool_calls"] = msgspec.Raw(_encode(MAX_USES))


def limit_messages(fields: dict[str, msgspec.Raw]) -> None:
    """Set `max_uses` of each web tool, and `max_content_tokens` of tools that fetch pages.

    Limits that the caller has set are kept.
    """
    if b'"web_' not in bytes(fields.get("tools", b"")) and b"\\u" not in bytes(fields.get("tools", b"")):
        return
    try:
        tools = _list(fields["tools"])
        rows = [_tool(raw) for raw in tools]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # The server reports this use.
        return
    for index, tool in enumerate(rows):
        limits: dict[str, int] = {}
        if tool.is_kind(_WEB_SEARCH) or tool.is_kind(_WEB_FETCH):
            limits = {"max_uses": MAX_USES} if tool.max_uses is None else {}
        if tool.is_kind(_WEB_FETCH) and tool.max_content_tokens is None:
            limits["max_content_tokens"] = _FETCHED_TOKENS
        if limits:
            tools[index] = msgspec.Raw(_encode({**_raws(tools[index]), **limits}))
    fields["tools"] = msgspec.Raw(_encode(tools))
