"""uvicorn's websockets, which release their connection and are disconnected where nobody reads them."""

from __future__ import annotations

from collections.abc import Callable

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketLine(WebSocketsSansIOProtocol):
    """One websocket. `unsent` and `stalled_since` are those of `protocol.Sweep`."""

    on_lost: Callable[[], None] | None = None
    unsent = 0
    stalled_since = 0.0

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held."""
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None
        super().connection_lost(exc)
