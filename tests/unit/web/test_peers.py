"""Limits on open requests by client address."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.web.connections import overload, peers
from sixfold.web.connections.overload import ConnectionCapacity
from sixfold.web.connections.peers import PeerLimits


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("no address", "no address"),
    ],
)
def test_network_is_an_ipv4_address_or_the_64_of_an_ipv6_one(address: str, network: str) -> None:
    assert peers.network(address) == network


@pytest.mark.parametrize(
    ("address", "direct", "behind_proxy"),
    [
        ("127.0.0.1", None, None),
        ("::1", None, None),
        ("::ffff:127.0.0.1", None, None),
        ("", None, None),
        ("10.0.0.2", "10.0.0.2", None),
        ("fd00::1:2", "fd00::/64", None),
        ("93.184.216.34", "93.184.216.34", "93.184.216.34"),
    ],
)
def test_this_machine_and_proxies_have_no_limits(
    address: str, direct: str | None, behind_proxy: str | None
) -> None:
    assert PeerLimits().peer(address) == direct
    assert PeerLimits(behind_proxy=True).peer(address) == behind_proxy


def test_one_ipv6_subscriber_shares_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "capacity", lambda: ConnectionCapacity(1 << 16))
    limits = PeerLimits(connections=3, unfinished=2)
    addresses = [f"2a00:1:2:3::{number}" for number in range(1, 5)]
    assert [limits.connect(limits.peer(address)) for address in addresses[:3]] == [None] * 3
    refusal = limits.connect(limits.peer(addresses[3]))
    assert isinstance(refusal, errors.TooManyPeerConnections)
    assert (refusal.status, refusal.code) == (429, "too_many_connections")
    assert limits.connect(limits.peer("2a00:1:2:4::1")) is None
    peer = limits.peer(addresses[0])
    assert [limits.begin(peer) for _ in range(2)] == [None] * 2
    assert isinstance(limits.begin(peer), errors.TooManyUnfinishedRequests)
    for _ in range(2):
        limits.finish(peer)
    for _ in range(3):
        limits.disconnect(peer)
    limits.disconnect(limits.peer("2a00:1:2:4::1"))
    assert (limits.connections, limits.unfinished, limits.unfinished_total) == ({}, {}, 0)


def test_no_limit_is_above_half_of_the_capacity_and_zero_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "capacity", lambda: ConnectionCapacity(64))  # 24 connections
    limits = PeerLimits(connections=1_000)
    accepted = [limits.connect("192.0.2.1") for _ in range(20)]
    assert accepted.count(None) == 12
    assert all(PeerLimits().connect("192.0.2.1") is None for _ in range(100))


def test_unfinished_requests_of_all_are_limited_too() -> None:
    limits = PeerLimits(all_unfinished=2)
    assert [limits.begin(None) for _ in range(2)] == [None] * 2
    refusal = limits.begin("192.0.2.1")
    assert isinstance(refusal, errors.TooManyConnections)
    assert limits.is_crowded()
