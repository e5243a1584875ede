"""A limit on the memory for responses and messages that clients have not read yet.

A whole response is in memory until its client has read it, and a client may read as slowly as it likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from sixfold.web import refusals


class SendTransport(Protocol):
    """The part of a transport that is used here."""

    def get_write_buffer_size(self) -> int: ...

    def abort(self) -> None: ...


class SendMemory:
    """The unread bytes of all connections of a process; above `max_bytes`, connections are closed.

    The connections with the most unread bytes are closed first, beginning with the address that has the most
    in total. A limit of 0 disables the check.
    """

    def __init__(self, max_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        # The address and the last count of unread bytes of each slow client, by transport.
        self._behind: dict[SendTransport, tuple[str, int]] = {}
        self._total = 0

    def pause(self, transport: SendTransport, peer: str) -> None:
        """Count a connection whose client does not read as fast as the server writes."""
        self.resume(transport)
        size = transport.get_write_buffer_size()
        self._behind[transport] = peer, size
        self._total += size
        if self._max_bytes and self._total > self._max_bytes:
            self.check()

    def resume(self, transport: SendTransport) -> None:
        """Stop counting a connection whose client has read nearly everything, or that is closed."""
        _, size = self._behind.pop(transport, ("", 0))
        self._total -= size

    def check(self) -> None:
        """Count all unread bytes again, and close connections until the limit is met."""
        if not self._max_bytes:
            return
        self._behind = {
            transport: (peer, transport.get_write_buffer_size())
            for transport, (peer, _) in self._behind.items()
        }
        self._total = sum(size for _, size in self._behind.values())
        if self._total <= self._max_bytes:
            return
        peers = Counter[str]()
        for peer, size in self._behind.values():
            peers[peer] += size
        while self._total > self._max_bytes and self._behind:
            worst = peers.most_common(1)[0][0]
            transport = max(self._behind, key=_unread(self._behind, worst))
            peers[worst] -= self._behind[transport][1]
            self.resume(transport)
            refusals.recorder().add("send_memory", worst)
            transport.abort()


NO_SEND_LIMIT = SendMemory()


def _unread(
    behind: dict[SendTransport, tuple[str, int]], peer: str
) -> Callable[[SendTransport], tuple[bool, int]]:
    """Return the order of connections: those of an address before others, then by their bytes."""
    return lambda transport: (behind[transport][0] == peer, behind[transport][1])
