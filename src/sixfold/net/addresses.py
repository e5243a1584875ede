"""Addresses that a URL from a request may reach: the public internet and the operator's allowlist.

`ipaddress.is_global` is not sufficient: on Python 3.11 it accepts NAT64, 6to4, site-local and multicast
addresses, and the host agent of one cloud. The tables below are complete: an IPv4 address is public unless
listed, and an IPv6 address is public only inside 2000::/3 and unless listed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_DENIED_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network; 0.0.0.0 connects to loopback on Linux
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT, with 100.100.100.200, a metadata service
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's host agent, although the address is globally routed
        "169.254.0.0/16",  # link-local, with 169.254.169.254, the usual metadata service
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, with 192.0.0.192, a metadata service
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112 name servers
        "192.52.193.0/24",  # automatic multicast tunnelling
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112 name servers
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, with the broadcast address
    )
)

# All addresses outside this network are excluded: loopback, mapped and compatible IPv4, NAT64, ULA (with the
# metadata services fd00:ec2::254 and fd20:ce::254), link-local, site-local, multicast.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")

_DENIED_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112 name servers
        "3ffe::/16",  # the retired 6bone
        "3fff::/20",  # documentation
    )
)

_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = frozenset((0x00005EFE, 0x02005EFE))


def is_public(address: Address) -> bool:
    """Return whether an address, and any IPv4 address embedded in it, is public."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _DENIED_V4)
    if address.scope_id is not None or address not in _GLOBAL_V6:
        return False
    if any(address in network for network in _DENIED_V6):
        return False
    inner = embedded_ipv4(address)
    return inner is None or is_public(inner)


def embedded_ipv4(address: Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a gateway would extract from an IPv6 address, or None."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    value = int(address)
    compatible = address in _COMPATIBLE and value > 1  # :: and ::1 do not contain an IPv4 address
    isatap = (value >> 32) & 0xFFFFFFFF in _ISATAP
    if compatible or isatap or address in _TRANSLATED or address in _NAT64:
        return ipaddress.IPv4Address(value & 0xFFFFFFFF)
    return None


class AllowList(msgspec.Struct, frozen=True):
    """The networks that the operator allows in addition to the public internet, on any port."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AllowList:
        """Parse networks separated by commas or spaces; raises `ValueError` for an invalid one."""
        return cls(tuple(_network(part) for part in text.replace(",", " ").split()))

    def permits(self, address: Address) -> bool:
        """Return whether an address is in an allowed network.

        An IPv6 address in an allowed network that embeds an IPv4 address (for example in 64:ff9b::/96) is
        permitted only if that address is public or permitted itself. An address with a zone is never
        permitted.
        """
        if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
            return False
        if not any(address.version == net.version and address in net for net in self.networks):
            return False
        inner = embedded_ipv4(address)
        return inner is None or is_public(inner) or self.permits(inner)

    def admits(self, addresses: Iterable[Address], port: int) -> bool:
        """Return whether all addresses of a host may be reached on a port; False if there are none."""
        all_addresses = tuple(addresses)
        return bool(all_addresses) and all(
            self.permits(address) or (port in PUBLIC_PORTS and is_public(address))
            for address in all_addresses
        )


PUBLIC_PORTS = frozenset((80, 443))


def _network(text: str) -> Network:
    if "%" in text:
        raise ValueError(f"{text!r} is not a network: it must not contain an IPv6 zone ID")
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a network such as 10.1.0.0/16, 127.0.0.1 or fd00:1::/64 "
            "(names cannot be allowed, and the bits after the prefix must be zero)"
        ) from error
