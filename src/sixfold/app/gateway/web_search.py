"""Construction of the web search from the table `[search]` of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sixfold import setting_tables
from sixfold.clients.searxng import SearxngClient
from sixfold.core.configuration.ports import ServerProbe
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.search.service import WebSearch
from sixfold.net.clients import HttpClients
from sixfold.setting_tables import SECRET
from sixfold.settings import InvalidSetting, Settings


class _SearchTable(msgspec.Struct):
    searxng: Annotated[
        str,
        Meta(
            pattern=r"^(https?://[^\s@?#]+)?\Z",
            description="a URL such as http://127.0.0.1:8888",
            extra=SECRET,
        ),
    ] = ""
    timeout_seconds: Annotated[float, Meta(ge=1, le=60)] = 10.0


async def probe(clients: HttpClients, url: str) -> ServerProbe:
    """Make a test search on a server; raises `InvalidSetting` for an invalid URL."""
    search_engine = _client(_parse({"searxng": url}), clients)
    if search_engine is None:
        return ServerProbe(problem="Enter the URL of a SearXNG server")
    await search_engine.probe()
    status = search_engine.status
    return ServerProbe(problem="" if status.state == "found" else status.detail)


def check(settings: Settings) -> None:
    """Raise `InvalidSetting` for an invalid table."""
    _parse(settings.tables.get("search", {}))


def engine(settings: Settings, clients: HttpClients) -> SearxngClient | None:
    """Return the client of the configured server, or None; raises `InvalidSetting`."""
    return _client(_parse(settings.tables.get("search", {})), clients)


def build(settings: Settings, clients: HttpClients, gateway: Gateway) -> WebSearch:
    """Return the web search; raises `InvalidSetting`."""
    return WebSearch(engine(settings, clients), gateway)


def _parse(table: object) -> _SearchTable:
    with InvalidSetting.of(ValueError):
        return setting_tables.convert("[search]", table, _SearchTable)


def _client(table: _SearchTable, clients: HttpClients) -> SearxngClient | None:
    if not table.searxng:
        return None
    return SearxngClient(clients.configured, table.searxng, table.timeout_seconds)
