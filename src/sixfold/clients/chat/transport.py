"""HTTP transport to model servers.

A transport does not follow redirects, does not decompress, and ignores proxy variables of the environment.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from sixfold import __version__
from sixfold.core.gateway.ports import UpstreamStream

USER_AGENT = f"Sixfold/{__version__}"
HEADERS = {"X-Sixfold-Hop": "1"}


class Transport(Protocol):
    """Opens response streams; the client is created at its first use and closed with the server."""

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        """POST `body`; raises `UpstreamFailure`. With `stream`, wait only for the response headers."""
        ...

    def get(self, url: str, headers: Mapping[str, str]) -> Coroutine[Any, Any, UpstreamStream]:
        """GET; raises `UpstreamFailure`."""
        ...

    def delete(self, url: str, headers: Mapping[str, str]) -> Coroutine[Any, Any, UpstreamStream]:
        """DELETE; raises `UpstreamFailure`."""
        ...

    async def aclose(self) -> None: ...
