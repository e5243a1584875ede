"""Closing of connections that are idle, or whose client is too slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sixfold.web import refusals
from sixfold.web.connections.peers import client_address
from sixfold.web.connections.send_memory import NO_SEND_LIMIT, SendMemory
from sixfold.web.connections.uvicorn_protocol import TIMED_OUT, HttpProtocol
from sixfold.web.connections.websocket_protocol import WebSocketProtocol

# The longest allowed pause of a body.
_PAUSE_SECONDS = 30


class ConnectionSweep:
    """Closes connections that are idle, or whose client is too slow; called once a second.

    A client has `header_seconds` for the headers of a request. A body must arrive at `body_bytes_per_second`
    on average; a pause of 30 seconds is allowed, and time in which the server does not read is not counted. A
    client, also of a websocket, must read its pending data at the same rate; a pause of `send_seconds` is
    allowed. A limit of 0 is off.
    """

    def __init__(
        self,
        idle_seconds: float,
        header_seconds: float,
        body_bytes_per_second: int,
        send_seconds: float = 0,
        send_memory: SendMemory = NO_SEND_LIMIT,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._header_seconds = header_seconds
        self._body_rate = body_bytes_per_second
        self._send_seconds = send_seconds
        self._send_memory = send_memory

    def run(self, connections: Iterable[Any], now: float) -> None:
        """Check all connections; `now` is the event loop's time in seconds."""
        record = refusals.recorder()
        self._send_memory.check()
        for connection in list(connections):
            if not isinstance(connection, HttpProtocol | WebSocketProtocol):
                continue
            if self._send_seconds and self._is_behind(connection, now):
                record.add("slow_reader", client_address(connection))
                connection.transport.abort()
            elif isinstance(connection, HttpProtocol) and not connection.transport.is_closing():
                self._check(connection, now, record)
        record.log(now)

    def _check(self, connection: HttpProtocol, now: float, record: refusals.Refusals) -> None:
        if 0 < connection.idle_since <= now - self._idle_seconds:
            connection.timeout_keep_alive_handler()
        elif self._is_late_with_headers(connection, now):
            record.add("slow_headers", client_address(connection))
            connection.end(TIMED_OUT)
        elif self._is_late_with_body(connection):
            record.add("slow_body", client_address(connection))
            connection.end(TIMED_OUT)

    def _is_behind(self, connection: HttpProtocol | WebSocketProtocol, now: float) -> bool:
        unsent, before = connection.transport.get_write_buffer_size(), connection.unsent
        seconds = now - connection.unsent_at
        connection.unsent, connection.unsent_at = unsent, now
        rate = self._body_rate or 1
        allowance = rate * self._send_seconds
        if not before or not unsent:
            connection.unread_credit = allowance
            return False
        # This is a lower bound, because more may have been written meanwhile.
        read = max(0, before - unsent)
        connection.unread_credit = min(allowance, connection.unread_credit + read - rate * seconds)
        return connection.unread_credit <= 0

    def _is_late_with_headers(self, connection: HttpProtocol, now: float) -> bool:
        if not self._header_seconds or not 0 < connection.headers_since <= now - self._header_seconds:
            return False
        return connection.current is None

    def _is_late_with_body(self, connection: HttpProtocol) -> bool:
        cycle = connection.current
        if not self._body_rate or cycle is None or not cycle.more_body:
            return False
        allowance = float(self._body_rate * _PAUSE_SECONDS)
        if connection.receiving is not cycle:
            connection.receiving, connection.body_credit = cycle, allowance
        elif not connection.flow.read_paused and not cycle.waiting_for_100_continue:
            received = connection.body_bytes - connection.body_seen
            connection.body_credit = min(allowance, connection.body_credit + received - self._body_rate)
        connection.body_seen = connection.body_bytes
        return connection.body_credit <= 0
