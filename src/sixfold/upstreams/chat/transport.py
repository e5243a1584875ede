"""The way to a model server, over whichever HTTP client is installed.

pyreqwest costs a third of what other clients do for a call; where it cannot be installed, aiohttp does the
same. One client serves all servers of the configuration. It follows no redirect, reads no proxy from the
environment, and takes answers as they are sent.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol

from sixfold import __version__
from sixfold.core.relay.ports import Stream

MAX_ANSWER = 64 * 2**20
USER_AGENT = f"Sixfold/{__version__}"
HEADERS = {"X-Sixfold-Hop": "1"}
CLIENTS = ("pyreqwest", "aiohttp")  # the cheapest first


class Transport(Protocol):
    """Opens streams; its client is made at its first use, and closed with the server."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool) -> Stream:
        """POST `body`; raises `Broken`. Of a stream nothing is waited for but its head."""
        ...

    async def get(self, url: str, headers: Mapping[str, str]) -> Stream:
        """GET; raises `Broken`."""
        ...

    async def aclose(self) -> None:
        """Let go of the connections."""
        ...


def open_transport(
    connect_seconds: float, quiet_seconds: float, clients: tuple[str, ...] = CLIENTS
) -> Transport:
    """Over the first of these clients that is there; `quiet_seconds` is how long a server may say nothing."""
    *others, last = clients
    for name in others:
        try:
            return _over(name, connect_seconds, quiet_seconds)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != name:
                raise
    return _over(last, connect_seconds, quiet_seconds)


def _over(name: str, connect_seconds: float, quiet_seconds: float) -> Transport:
    module = importlib.import_module(f"sixfold.upstreams.chat.over_{name}")
    transport: Transport = module.Client(connect_seconds, quiet_seconds)
    return transport
