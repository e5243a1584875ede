"""The tools of type `mcp` in a request: which servers the model may use, and which calls need an approval.

Source: https://platform.openai.com/docs/guides/tools-connectors-mcp. A server is one that the operator has
configured, by its name in `server_label`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from sixfold import errors
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.responses import mcp_items
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.routing import ModelRouter
from sixfold.core.gateway.tools.servers import ToolServers, model_name
from sixfold.core.input_limits import byte_search, json_decoding
from sixfold.web import bodies

_TYPE = "mcp"
_MARK = re.compile(rb'"mcp"')
_APPROVAL = re.compile(rb'"mcp_approval_response"')
_MAX_TOOLS = 128
# The fields that name a server other than the operator's, or its credentials.
_ADDRESSES = ("server_url", "connector_id", "tunnel_id", "authorization", "headers")
_Names = Annotated[list[str], Meta(max_length=_MAX_TOOLS)]


def may_name_servers(raw: bytes) -> bool:
    """Return whether a request may have tools of MCP servers, or approvals of their calls."""
    return byte_search.may_have_name(_MARK, raw) or byte_search.may_have_name(_APPROVAL, raw)


class McpToolNames(msgspec.Struct, frozen=True):
    """Tools of a server, by their names."""

    tool_names: _Names = []
    read_only: Any = None


class McpApprovals(msgspec.Struct, frozen=True):
    """The tools whose calls need an approval, and those whose calls do not."""

    always: McpToolNames | None = None
    never: McpToolNames | None = None


class McpServerTools(msgspec.Struct, frozen=True):
    """A tool of type `mcp`; its other fields have no effect."""

    server_label: str
    allowed_tools: _Names | McpToolNames | None = None
    require_approval: Literal["always", "never"] | McpApprovals | None = None

    @property
    def tool_names(self) -> frozenset[str] | None:
        """The names of the tools that may be called, or None for all."""
        allowed = self.allowed_tools
        names = allowed.tool_names if isinstance(allowed, McpToolNames) else allowed
        return None if names is None else frozenset(names)

    def needs_approval(self, name: str) -> bool:
        """Return whether a call needs an approval; OpenAI requires one unless the request says otherwise."""
        required = self.require_approval
        if isinstance(required, McpApprovals):
            return required.never is None or name not in required.never.tool_names
        return required != "never"

    @property
    def filters(self) -> Sequence[tuple[str, McpToolNames]]:
        """The filters with their fields."""
        approvals = self.require_approval
        filters = [("allowed_tools", self.allowed_tools)]
        if isinstance(approvals, McpApprovals):
            filters += [("require_approval.always", approvals.always)]
            filters += [("require_approval.never", approvals.never)]
        return [(path, each) for path, each in filters if isinstance(each, McpToolNames)]


class McpPlan(msgspec.Struct, frozen=True):
    """The tools that this server calls for one response, by their server.

    `approvals` are the ids of the approval requests that the request's input responds to.
    """

    tools: Mapping[str, McpServerTools]
    max_calls: int | None
    approvals: tuple[str, ...]

    @property
    def tool_names(self) -> Mapping[str, frozenset[str] | None]:
        """The names of the tools of each server that may be called, or None for all."""
        return {label: tool.tool_names for label, tool in self.tools.items()}


class McpPlanner:
    """Finds the tools that this server calls for a model."""

    def __init__(self, servers: ToolServers, router: ModelRouter) -> None:
        self._servers = servers
        self._router = router

    async def plan(self, principal: Principal, raw: bytes) -> tuple[McpPlan, bytes] | None:
        """Return the plan and the request without these tools, or None if this server does not call any.

        If the model's server has the protocol, it connects to the servers whose address the request contains.
        Raises `InvalidRequest`, and `Forbidden` for a key that may not call tools.
        """
        if not byte_search.may_have_name(_MARK, raw):
            return None
        body = await bodies.parse(_fields, raw)
        rows = {
            f"tools[{index}]": cast("dict[str, Any]", row)
            for index, row in enumerate(parsing.items(body.get("tools") or [], "tools"))
            if _is_mcp(row)
        }
        allowed = self._servers.names(principal)
        if not rows or (
            self._is_native(str(body.get("model", "")))
            and not any(_names_server(row, allowed) for row in rows.values())
        ):
            return None
        self._servers.check(principal)
        tools: dict[str, McpServerTools] = {}
        for path, row in rows.items():
            tool = _tool(path, row, allowed)
            if tool.server_label in tools:
                raise InvalidRequest(
                    f"{path}.server_label must be unique ({tool.server_label!r} is already used)",
                    param=f"{path}.server_label",
                )
            tools[tool.server_label] = tool
        limit = body.get("max_tool_calls")
        limit = limit if isinstance(limit, int) and not isinstance(limit, bool) else None
        plan = McpPlan(tools, limit, await bodies.parse(_approval_ids, raw))
        return plan, await bodies.parse(lambda _: _without_tools(body, plan), raw)

    def _is_native(self, model: str) -> bool:
        """Return whether a server of the model has the protocol; True for an unknown model."""
        try:
            return any(target.accepts("responses") for target in self._router.resolve_chat(model))
        except errors.SixfoldError:
            # The gateway reports the error.
            return True


def _fields(raw: bytes) -> dict[str, Any]:
    """Return the fields of a request; the input, which may be large, is not decoded."""
    return {
        name: value if name == "input" else json_decoding.decode(value)
        for name, value in parsing.raws(raw).items()
    }


def _approval_ids(raw: bytes) -> tuple[str, ...]:
    if not byte_search.may_have_name(_APPROVAL, raw):
        return ()
    return mcp_items.approval_ids(json_decoding.decode(parsing.raws(raw).get("input", b"null")))


def _is_mcp(row: Any) -> bool:
    return isinstance(row, dict) and cast("dict[str, Any]", row).get("type") == _TYPE


def _names_server(row: Mapping[str, Any], allowed: Sequence[str]) -> bool:
    """Return whether a tool names a server of the operator, without an address."""
    return row.get("server_label") in allowed and not any(row.get(name) for name in _ADDRESSES)


def _tool(path: str, row: Mapping[str, Any], allowed: Sequence[str]) -> McpServerTools:
    choice = f"one of {', '.join(allowed)}" if allowed else "the name of a server of the operator"
    for name in _ADDRESSES:
        if row.get(name) is not None:
            raise InvalidRequest(
                f"{path}.{name} must be omitted, and server_label must be {choice}: only the operator adds "
                "MCP servers",
                param=f"{path}.{name}",
            )
    try:
        tool = msgspec.convert(row, McpServerTools)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{path} is invalid: {error}", param=path) from error
    if tool.server_label not in allowed:
        raise InvalidRequest(
            f"{path}.server_label must be {choice} (got {tool.server_label[:40]!r}): only the operator adds "
            "MCP servers",
            param=f"{path}.server_label",
        )
    for place, names in tool.filters:
        if names.read_only is not None:
            raise InvalidRequest(
                f"{path}.{place}.read_only is not supported: name the tools in tool_names",
                param=f"{path}.{place}.read_only",
            )
    return tool


def _without_tools(body: Mapping[str, Any], plan: McpPlan) -> bytes:
    """Return a request without tools of this type; a choice of one of them becomes that of a function."""
    changed = {**body, "tools": [row for row in body["tools"] if not _is_mcp(row)]}
    choice = body.get("tool_choice")
    if _is_mcp(choice):
        fields = cast("dict[str, Any]", choice)
        label, name = fields.get("server_label"), fields.get("name")
        if label not in plan.tools:
            labels = ", ".join(plan.tools)
            raise InvalidRequest(
                f"tool_choice.server_label must be one of the request's servers: {labels}",
                param="tool_choice.server_label",
            )
        named = {"type": "function", "name": model_name(str(label), str(name))}
        changed["tool_choice"] = named if name else "required"
    return parsing.encode(changed)
