"""Construction of the tool servers from the tables `[mcp.NAME]` of the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sixfold import setting_tables
from sixfold.clients.mcp import McpToolServer
from sixfold.core.configuration.ports import ServerProbe
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.tools.servers import ToolServerFailed, ToolServers
from sixfold.net.clients import HttpClients
from sixfold.setting_tables import SECRET
from sixfold.settings import InvalidSetting, Settings

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_PROBE_SECONDS = 5
_RESERVED = frozenset({"memory", "web", "draw"})


class _ToolServerTable(msgspec.Struct):
    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s@?#]+\Z",
            description="a URL such as http://127.0.0.1:9000/mcp",
            extra=SECRET,
        ),
    ]
    api_key: Annotated[str, Meta(extra=SECRET)] = ""
    # Replaced by `api_key` when the file is read.
    api_key_env: Annotated[str, Meta(extra=SECRET)] = ""
    accounts: Literal["operators", "all"] = "operators"
    tools: tuple[str, ...] = ()
    timeout_seconds: Annotated[float, Meta(ge=1, le=120)] = 30.0


def build(settings: Settings, clients: HttpClients, gateway: Gateway) -> ToolServers:
    """Return the tool servers; raises `InvalidSetting`."""
    return ToolServers(servers(settings, clients), gateway)


def servers(settings: Settings, clients: HttpClients) -> list[McpToolServer]:
    """Return the configured servers; raises `InvalidSetting`."""
    tables: dict[str, Any] = settings.tables.get("mcp", {})
    return [server(name, row, clients) for name, row in tables.items()]


def server(name: str, row: object, clients: HttpClients) -> McpToolServer:
    """Return the client of a table `[mcp.NAME]`; raises `InvalidSetting`."""
    table = _parse(name, row)
    return McpToolServer(
        name,
        table.url,
        clients.configured,
        api_key=table.api_key,
        shared=table.accounts == "all",
        tools=frozenset(table.tools),
        timeout_seconds=table.timeout_seconds,
    )


async def probe(clients: HttpClients, name: str, row: Mapping[str, Any]) -> ServerProbe:
    """Query a server for the names of its tools; raises `InvalidSetting` for an invalid table."""
    limited = {**row, "timeout_seconds": _PROBE_SECONDS}
    try:
        async with server(name, limited, clients).session() as session:
            return ServerProbe(tuple(tool.name for tool in await session.tools()))
    except ToolServerFailed as failed:
        return ServerProbe(problem=failed.message)


def check(settings: Settings) -> None:
    """Raise `InvalidSetting` for an invalid table."""
    tables: dict[str, Any] = settings.tables.get("mcp", {})
    for name, row in tables.items():
        _parse(name, row)


def _parse(name: str, row: object) -> _ToolServerTable:
    where = f"[mcp.{name}]"
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise InvalidSetting(
            f"{where} must have a name of at most 32 lowercase letters, digits and hyphens, other than "
            f"{', '.join(sorted(_RESERVED))}"
        )
    with InvalidSetting.of(ValueError):
        return setting_tables.convert(where, row, _ToolServerTable)
