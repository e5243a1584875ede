"""Client addresses, and limits on the connections of each."""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from typing import Protocol

from sixfold import errors
from sixfold.settings import Settings
from sixfold.web.connections import overload
from sixfold.web.connections.overload import Refusal


class PeerConnection(Protocol):
    """The part of a connection that is used here."""

    client: tuple[str, int] | None


def client_address(connection: PeerConnection) -> str:
    """Return the client's IP address, or an empty string for a local socket."""
    return connection.client[0] if connection.client else ""


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is certainly this machine."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_private(address: str) -> bool:
    """Return whether an address is on this machine or a private network, where a trusted proxy may be."""
    try:
        return ipaddress.ip_address(address).is_private
    except ValueError:
        return False


@functools.lru_cache(maxsize=4096)
def network(address: str) -> str:
    """Return the address whose limits apply: for IPv6 its /64, since a subscriber has all addresses in it."""
    try:
        ip_address = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if ip_address.ipv4_mapped is not None:
        return str(ip_address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(ip_address) >> 64 << 64, 64)))


@functools.lru_cache(maxsize=4096)
def limited_network(address: str, *, behind_proxy: bool) -> str | None:
    """Return the network whose limits apply to an address, or None if the address is not limited.

    Addresses of this machine are not limited. With `behind_proxy`, private addresses are not limited either,
    because one connection of a proxy serves many clients.
    """
    if not address or is_loopback(address) or (behind_proxy and is_private(address)):
        return None
    return network(address)


class PeerLimits:
    """Counts of the open connections and unfinished requests of each address; a limit of 0 is off.

    A request is unfinished until its headers and body have been received. The limits of one address are at
    most half of the capacity of the process.
    """

    def __init__(
        self,
        connections: int = 0,
        unfinished: int = 0,
        all_unfinished: int = 0,
        *,
        behind_proxy: bool = False,
    ) -> None:
        self.behind_proxy = behind_proxy
        self._max_connections = connections
        self._max_unfinished = unfinished
        self._all_unfinished = all_unfinished
        self.connections = Counter[str]()
        self.unfinished = Counter[str]()
        self.unfinished_total = 0

    @classmethod
    def of(cls, settings: Settings) -> PeerLimits:
        return cls(
            settings.connections_per_peer,
            settings.unfinished_requests_per_peer,
            settings.unfinished_requests,
            behind_proxy=bool(settings.public_url),
        )

    def peer(self, address: str) -> str | None:
        """Return the key under which an address is counted, or None if it has no limits."""
        return limited_network(address, behind_proxy=self.behind_proxy)

    def connect(self, peer: str | None) -> Refusal | None:
        """Count a connection and return None, or return the error if there are too many."""
        if peer is None:
            return None
        limit = _bounded(self._max_connections)
        if limit and self.connections[peer] >= limit:
            return errors.TooManyPeerConnections(
                f"Your address has {limit} connections to this server, which is the limit: close some"
            )
        self.connections[peer] += 1
        return None

    def disconnect(self, peer: str | None) -> None:
        _decrement(self.connections, peer)

    def is_crowded(self) -> bool:
        """Return whether the process has reached its limit of unfinished requests."""
        limit = _bounded(self._all_unfinished)
        return bool(limit) and self.unfinished_total >= limit

    def begin(self, peer: str | None) -> Refusal | None:
        """Count an unfinished request and return None, or return the error if there are too many."""
        limit = _bounded(self._max_unfinished)
        if peer is not None and limit and self.unfinished[peer] >= limit:
            return errors.TooManyUnfinishedRequests(
                f"Your address has {limit} incomplete requests at this server, which is the limit: "
                "finish or close some"
            )
        if self.is_crowded():
            return errors.TooManyConnections("The server has too many incomplete requests: retry in a moment")
        self.unfinished_total += 1
        if peer is not None:
            self.unfinished[peer] += 1
        return None

    def finish(self, peer: str | None) -> None:
        """Remove a request from the count of unfinished ones."""
        self.unfinished_total -= 1
        _decrement(self.unfinished, peer)


def _bounded(limit: int) -> int:
    return min(limit, max(1, overload.capacity().connections // 2)) if limit else 0


def _decrement(counts: Counter[str], peer: str | None) -> None:
    if peer is None:
        return
    counts[peer] -= 1
    if counts[peer] <= 0:
        del counts[peer]
