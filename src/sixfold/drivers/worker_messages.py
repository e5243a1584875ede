"""Decoding of the messages of a worker: in their order, large ones in a thread, and many in parts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from sixfold.core.concurrency.single_thread import LOOP_BYTES, PARSER
from sixfold.drivers import large_messages, results
from sixfold.worker import protocol

# Messages that are handled together. 256 KiB can contain 13,000, which blocked the event loop for 0.8 s.
_MAX_MESSAGES = 256
_PAUSE_SECONDS = 0.02


class WorkerMessages:
    """Calls `handle` with each message, and `fail` with the reason if the worker violates the protocol."""

    def __init__(self, handle: Callable[[protocol.ToServer], None], fail: Callable[[str], None]) -> None:
        self._handle = handle
        self._fail = fail
        self._frames = protocol.FrameSplitter()
        self._waiting: deque[bytes] = deque()
        self._decoding: asyncio.Task[None] | None = None

    def feed(self, data: bytes, transport: asyncio.Transport) -> None:
        """Handle the messages that `data` completes; a large one, or many, pause the transport."""
        try:
            for number, body in enumerate(self._frames.feed(data)):
                if self._decoding is None and len(body) <= LOOP_BYTES and number < _MAX_MESSAGES:
                    self._handle(large_messages.decode(body))
                    continue
                self._waiting.append(body)
                if self._decoding is None:
                    transport.pause_reading()
                    self._decoding = asyncio.create_task(self._decode(transport))
        except results.VIOLATIONS as error:
            self._violated(error)

    async def finish(self) -> None:
        """Wait until all received messages are handled."""
        if self._decoding is not None:
            await self._decoding

    async def _decode(self, transport: asyncio.Transport) -> None:
        handled = 0
        try:
            while self._waiting:
                body = self._waiting.popleft()
                self._handle(await PARSER.run_large(len(body), large_messages.decode, body))
                handled += 1
                if handled % _MAX_MESSAGES == 0:
                    await asyncio.sleep(_PAUSE_SECONDS)
        except results.VIOLATIONS as error:
            self._waiting.clear()
            self._violated(error)
        finally:
            self._decoding = None
        if not transport.is_closing():
            transport.resume_reading()

    def _violated(self, error: Exception) -> None:
        self._fail(f"violated the protocol ({error}) and was killed")
