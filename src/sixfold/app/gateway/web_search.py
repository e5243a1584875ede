"""Construction of the web search from the table `[search]` of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sixfold import setting_tables
from sixfold.clients.searxng import SearxngClient
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


def engine(settings: Settings, clients: HttpClients) -> SearxngClient | None:
    """Return the client of the configured server, or None; raises `InvalidSetting`."""
    with InvalidSetting.of(ValueError):
        table = setting_tables.convert("[search]", settings.tables.get("search", {}), _SearchTable)
    if not table.searxng:
        return None
    return SearxngClient(clients.configured, table.searxng, table.timeout_seconds)


def build(settings: Settings, clients: HttpClients, gateway: Gateway) -> WebSearch:
    """Return the web search; raises `InvalidSetting`."""
    return WebSearch(engine(settings, clients), gateway)
