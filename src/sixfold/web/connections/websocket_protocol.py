"""uvicorn's websocket protocol, which parses frames in slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from sixfold.core.concurrency.loop_turns import CONNECTION_TURNS, MAX_PARTS
from sixfold.web.connections.send_memory import SendMemory

# A read of 256 KiB may have 40,000 frames, which take 100 ms to parse.
_SLICE_BYTES = 2 * 1024
# The slices that are parsed before other callbacks run.
_TURN_BYTES = 16 * 1024
_MAX_FRAMES = 16_384
_INVALID = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
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
    # Whether reading is paused until that data has been parsed.
    _is_held = False
    # The frames of this turn, and whether the last turn had many of them.
    _frames = 0
    _is_dense = False

    def data_received(self, data: bytes) -> None:
        """Parse some of the data now, and the rest in later callbacks; no more data is read meanwhile."""
        if not self.handshake_initiated:
            self._read_handshake(data)
            return
        unread = self._data[self._at :]
        self._data, self._at = unread + data, 0
        if unread:
            return
        if self._is_dense:
            self._continue_later()
        else:
            self._parse_slices()

    def _read_handshake(self, data: bytes) -> None:
        """Read the whole request; respond and close the connection if it is not a valid handshake."""
        super().data_received(data)
        if self.handshake_initiated or self.transport.is_closing():
            return
        self.handshake_complete = self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()) or _INVALID)
        self.transport.close()

    def _parse_slices(self) -> None:
        self._frames = 0
        end = self._at + _TURN_BYTES
        while self._at < min(end, len(self._data)) and self._frames <= MAX_PARTS:
            if self.transport.is_closing():
                self._data = b""
                return
            piece = self._data[self._at : self._at + _SLICE_BYTES]
            self._at += len(piece)
            super().data_received(piece)
        self._is_dense = self._frames > MAX_PARTS
        if self.transport.is_closing():
            return
        if self._at < len(self._data):
            self._continue_later()
            return
        # Release the buffer of an idle connection.
        self._data, self._at = b"", 0
        if self._is_held and not self.read_paused:
            self.transport.resume_reading()
        self._is_held = False

    def _continue_later(self) -> None:
        """Parse the rest in a later callback; data with many frames waits for a turn of all connections."""
        self._is_held = True
        self.transport.pause_reading()
        if self._is_dense:
            CONNECTION_TURNS.call(self._parse_slices)
        else:
            self.loop.call_soon(self._parse_slices)

    def handle_events(self) -> None:
        """Count the frames that were parsed, and handle them."""
        self._frames += len(self.conn.events)
        super().handle_events()

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
