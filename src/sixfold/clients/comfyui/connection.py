"""The websocket connection to a ComfyUI server, which parses frames in slices."""

from __future__ import annotations

import asyncio
from typing import cast

from websockets.asyncio.client import ClientConnection, connect

# A read of 256 KB may have 128,000 frames, which take half a second to parse.
SLICE_BYTES = 8 * 1024
# Each ping is answered, and a server that does not read the answers would fill the memory.
MAX_UNSENT_BYTES = 2**20


class ComfyConnect(connect):
    """Opens a connection without following redirects, by which a server could choose the address."""

    def process_redirect(self, exc: Exception) -> Exception:
        """Return the exception of the response, which ends the attempt."""
        return exc


class ComfyConnection(ClientConnection):
    """A connection that parses frames in slices, between which other callbacks run."""

    # Data that is not parsed yet, and the position at which it continues.
    _data = b""
    _at = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Continue with the data that is not parsed yet, when the queue of messages has space."""
        super().connection_made(transport)
        self.recv_messages.resume = self._resume

    def data_received(self, data: bytes) -> None:
        """Parse the first slice now and the others in later callbacks; no more data is read meanwhile."""
        unread = self._data[self._at :]
        self._data, self._at = unread + data, 0
        if not unread:
            self._parse_slice()

    def _parse_slice(self) -> None:
        transport = cast("asyncio.Transport", self.transport)
        if transport.is_closing():
            self._data = b""
            return
        piece = self._data[self._at : self._at + SLICE_BYTES]
        self._at += len(piece)
        super().data_received(piece)
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            transport.abort()
        elif self._at < len(self._data):
            transport.pause_reading()
            if not self.recv_messages.paused:
                self.loop.call_soon(self._parse_slice)
        elif not self.recv_messages.paused:
            self._data, self._at = b"", 0
            transport.resume_reading()

    def _resume(self) -> None:
        if self._at < len(self._data):
            self.loop.call_soon(self._parse_slice)
        else:
            cast("asyncio.Transport", self.transport).resume_reading()
