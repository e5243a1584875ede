"""Construction of the web search from the table `[search]` of the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sixfold.clients.searxng import SearxngClient
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.search.service import WebSearch
from sixfold.net.clients import HttpClients
from sixfold.settings import InvalidSetting, Settings

_URL = re.compile(r"https?://[^\s@?#]+")
_SECONDS, _MIN_SECONDS, _MAX_SECONDS = 10.0, 1.0, 60.0
_NAMES = ("searxng", "timeout_seconds")


def engine(settings: Settings, clients: HttpClients) -> SearxngClient | None:
    """Return the client of the configured server, or None; raises `InvalidSetting`."""
    table: Mapping[str, Any] = settings.tables.get("search", {})
    if unknown := sorted(table.keys() - _NAMES):
        raise InvalidSetting(
            f"[search] has an unknown setting {unknown[0]!r}; use {', '.join(sorted(_NAMES))}"
        )
    url, seconds = table.get("searxng", ""), table.get("timeout_seconds", _SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidSetting(f"[search] timeout_seconds must be a number, not {seconds!r}")
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise InvalidSetting(
            f"[search] timeout_seconds must be from {_MIN_SECONDS:g} to {_MAX_SECONDS:g}, not {seconds:g}"
        )
    if not url:
        return None
    if not isinstance(url, str) or not _URL.fullmatch(url):
        # The value is not shown, because an invalid URL may contain a password.
        raise InvalidSetting("[search] searxng must be a URL such as http://127.0.0.1:8888")
    return SearxngClient(clients.configured, url, float(seconds))


def build(settings: Settings, clients: HttpClients, gateway: Gateway) -> WebSearch:
    """Return the web search; raises `InvalidSetting`."""
    return WebSearch(engine(settings, clients), gateway)
