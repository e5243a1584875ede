"""Construction of the tool servers from the tables `[mcp.NAME]` of the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from sixfold.clients.mcp import McpToolServer
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.tools.servers import ToolServers
from sixfold.net.clients import HttpClients
from sixfold.settings import InvalidSetting, Settings

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_RESERVED = frozenset({"memory", "web", "draw"})
_URL = re.compile(r"https?://[^\s@?#]+")
_FIELDS = frozenset({"url", "api_key", "api_key_env", "accounts", "tools", "timeout_seconds"})
_SECONDS, _MIN_SECONDS, _MAX_SECONDS = 30.0, 1.0, 120.0


def build(settings: Settings, clients: HttpClients, gateway: Gateway) -> ToolServers:
    """Return the tool servers; raises `InvalidSetting`."""
    tables: Mapping[str, Any] = settings.tables.get("mcp", {})
    return ToolServers([_server(name, row, clients) for name, row in tables.items()], gateway)


def _server(name: str, row: Any, clients: HttpClients) -> McpToolServer:
    label = f"[mcp.{name}]"
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise InvalidSetting(
            f"{label} must have a name of at most 32 lowercase letters, digits and hyphens, other than "
            f"{', '.join(sorted(_RESERVED))}"
        )
    if not isinstance(row, Mapping):
        raise InvalidSetting(f"{label} must be a table")
    fields = cast("Mapping[str, Any]", row)
    if unknown := sorted(fields.keys() - _FIELDS):
        raise InvalidSetting(
            f"{label} has an unknown setting {unknown[0]!r}; use {', '.join(sorted(_FIELDS))}"
        )
    url, accounts = fields.get("url"), fields.get("accounts", "operators")
    if not isinstance(url, str) or not _URL.fullmatch(url):
        # The value is not shown, because an invalid URL may contain a password.
        raise InvalidSetting(f"{label} url must be a URL such as http://127.0.0.1:9000/mcp")
    if accounts not in ("operators", "all"):
        raise InvalidSetting(f"{label} accounts must be operators or all, not {accounts!r}")
    tools = fields.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in cast("list[Any]", tools)):
        raise InvalidSetting(f"{label} tools must be a list of names")
    seconds = fields.get("timeout_seconds", _SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidSetting(f"{label} timeout_seconds must be a number, not {seconds!r}")
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise InvalidSetting(
            f"{label} timeout_seconds must be from {_MIN_SECONDS:g} to {_MAX_SECONDS:g}, not {seconds:g}"
        )
    return McpToolServer(
        name,
        url,
        clients.configured,
        api_key=str(fields.get("api_key", "")),
        shared=accounts == "all",
        tools=frozenset(cast("list[str]", tools)),
        timeout_seconds=float(seconds),
    )
