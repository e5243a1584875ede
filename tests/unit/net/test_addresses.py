from __future__ import annotations

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sixfold.net.addresses import AllowList, embedded_ipv4, is_public

V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6)

SPECIAL = """
    0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 127.0.0.1
    127.255.255.255 168.63.129.16 169.254.0.0 169.254.169.254 172.16.0.0 172.31.255.255 192.0.0.0
    192.0.0.192 192.0.0.255 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.168.0.1 192.175.48.1
    198.18.0.0 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.0
    255.255.255.255 :: ::1 ::7f00:1 ::ffff:8.8.8.8 ::ffff:0:8.8.8.8 64:ff9b::8.8.8.8 64:ff9b:1::1 100::1
    2001::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1 2002:808:808::1 3ffe::1 3fff::1
    2620:4f:8000::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fd20:ce::254 fe80::1 fec0::1 feff::1 ff02::1
    ff0e::1 2606:4700::5efe:10.0.0.1
"""

PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
    168.63.129.15 169.253.255.255 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0
    198.17.255.255 198.20.0.0 223.255.255.255 2001:200::1 2001:4860:4860::8888 2606:4700::1111
    2a00:1450:4001::1 2400:cb00::1 2606:4700::5efe:8.8.8.8
"""


@pytest.mark.parametrize("text", SPECIAL.split())
def test_a_special_address_is_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC.split())
def test_an_ordinary_address_is_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@given(V4 | V6)
def test_special_addresses_of_the_standard_library_are_private(address: ipaddress.IPv4Address) -> None:
    special = (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or not address.is_global
    )
    assert not (special and is_public(address))


@given(V4, st.integers(0, 2**64 - 1))
@example(ipaddress.IPv4Address("127.0.0.1"), 0)
@example(ipaddress.IPv4Address("8.8.8.8"), 1)
def test_embedded_address_is_public_only_if_both_are(inner: ipaddress.IPv4Address, rest: int) -> None:
    value = int(inner)
    tunnelled = (
        value,
        0xFFFF << 32 | value,
        0xFFFF << 48 | value,
        0x64FF9B << 96 | value,
        0x64FF9B0001 << 80 | value,
        0x2002 << 112 | value << 80 | rest,
        0x20010000 << 96 | rest << 32 | (value ^ 0xFFFFFFFF),
    )
    assert not any(is_public(ipaddress.IPv6Address(number)) for number in tunnelled)
    isatap = ipaddress.IPv6Address(0x2606_4700 << 96 | 0x5EFE << 32 | value)
    assert embedded_ipv4(isatap) == inner
    assert is_public(isatap) == is_public(inner)


@given(V6)
def test_an_address_with_a_zone_is_never_public_or_allowed(address: ipaddress.IPv6Address) -> None:
    zoned = ipaddress.IPv6Address(f"{address}%1")
    assert not is_public(zoned)
    assert not AllowList.parse("::/0").permits(zoned)


def test_allow_list_accepts_separators_addresses_and_families() -> None:
    allow = AllowList.parse(" 127.0.0.0/8, 10.1.0.0/16 ::1\tfd00:1::/64,192.168.0.7 ,")
    permitted = ["127.9.9.9", "10.1.2.3", "::1", "fd00:1::5", "192.168.0.7"]
    refused_addresses = ["10.2.0.0", "128.0.0.1", "::2", "fd00:2::1", "192.168.0.8", "::ffff:127.0.0.1"]
    assert all(allow.permits(ipaddress.ip_address(text)) for text in permitted)
    assert not any(allow.permits(ipaddress.ip_address(text)) for text in refused_addresses)


def test_an_empty_setting_allows_nothing() -> None:
    assert AllowList.parse("  ") == AllowList() == AllowList.parse("")


@pytest.mark.parametrize(
    "text", ["example.internal", "127.0.0.1/8", "10.0.0.0/33", "fe80::1%lo", "10.*", "*"]
)
def test_invalid_network_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a network") as excinfo:
        AllowList.parse(f"127.0.0.0/8, {text}")
    assert repr(text) in str(excinfo.value)


def test_allowed_nat64_network_opens_only_public_addresses() -> None:
    allow = AllowList.parse("64:ff9b::/96 10.1.0.0/16")
    assert allow.permits(ipaddress.ip_address("64:ff9b::8.8.8.8"))
    assert allow.permits(ipaddress.ip_address("64:ff9b::10.1.0.1"))
    assert not allow.permits(ipaddress.ip_address("64:ff9b::127.0.0.1"))


def test_host_needs_all_addresses_allowed_and_a_web_port() -> None:
    allow = AllowList.parse("127.0.0.0/8")
    public, local, other = (ipaddress.ip_address(text) for text in ("8.8.8.8", "127.0.0.1", "10.0.0.1"))
    assert allow.admits([public], 80)
    assert allow.admits([public], 443)
    assert not allow.admits([public], 8080)
    assert allow.admits([local], 8080)
    assert allow.admits([public, local], 443)
    assert not allow.admits([public, local], 8080)
    assert not allow.admits([public, other], 443)
    assert not allow.admits([], 443)
