"""uvicorn's websocket protocol, which parses frames in slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from sixfold.web.connections.send_memory import SendMemory

# A read of 256 KiB may have 40,000 frames, which take 100 ms to parse.
_SLICE_BYTES = 16 * 1024
_MAX_FRAMES = 16_384
# The scope key of a function that sets the largest message of a connection in bytes, for a route that needs
# larger ones than all others; call it once the client is authenticated.
SET_MESSAGE_BYTES = "sixfold.set_message_bytes"


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A websocket connection that parses frames in slices, between which other callbacks run.

    `unsent`, `unsent_at` and `unread_credit` are those of `ConnectionSweep`.
    """

    on_lost: Callable[[], None] | None = None
    unsent = 0
    unsent_at = 0.0
    unread_credit = 0.0
    send_memory: SendMemory | None = None
    # Data that is not parsed yet, and the position at which it continues.
    _data = b""
    _at = 0

    def data_received(self, data: bytes) -> None:
        """Parse the first slice now and the others in later callbacks; no more data is read meanwhile."""
        unread = self._data[self._at :]
        self._data, self._at = unread + data, 0
        if not unread:
            self._parse_slice()

    def _parse_slice(self) -> None:
        if self.transport.is_closing():
            self._data = b""
            return
        piece = self._data[self._at : self._at + _SLICE_BYTES]
        self._at += len(piece)
        super().data_received(piece)
        if self.transport.is_closing():
            return
        if self._at < len(self._data):
            self.transport.pause_reading()
            self.loop.call_soon(self._parse_slice)
            return
        had_slices = len(self._data) > _SLICE_BYTES
        # Release the buffer of an idle connection.
        self._data, self._at = b"", 0
        if had_slices and not self.read_paused:
            self.transport.resume_reading()

    def handle_connect(self, event: Request) -> None:
        """Start the application, which may change the maximum message size."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast("dict[str, Any]", self.scope)[SET_MESSAGE_BYTES] = self._set_message_bytes

    def _set_message_bytes(self, size: int) -> None:
        self.conn.max_message_size = size

    async def receive(self) -> Any:
        """Return the next event; reading continues when all data has been parsed."""
        event = await super().receive()
        if self._at < len(self._data) and not self.transport.is_closing():
            self.transport.pause_reading()
        return event

    def handle_ping(self) -> None:
        """Respond to a ping, unless the client does not read: its pings would fill the memory."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_cont(self, event: Frame) -> None:
        """Add a frame to the message; close the connection if the message has too many."""
        if len(self.frames) < _MAX_FRAMES:
            super().handle_cont(event)
        elif not self.transport.is_closing():
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"A message may have at most {_MAX_FRAMES:,} frames")
            self.handle_parser_exception()

    def pause_writing(self) -> None:
        """Count the bytes that the client has not read, and make the application wait."""
        super().pause_writing()
        if self.send_memory is not None:
            self.send_memory.pause(self.transport, self.client[0] if self.client else "")

    def resume_writing(self) -> None:
        if self.send_memory is not None:
            self.send_memory.resume(self.transport)
        self.unsent = 0
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.send_memory is not None:
            self.send_memory.resume(self.transport)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None
        super().connection_lost(exc)
