"""Probed hosts: which hosts are probed, and slow name lookups that delay nothing."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from sixfold.clients import hosts, local_servers
from sixfold.clients.hosts import CONTAINER_HOST, LOOPBACK, ProbeHosts
from sixfold.clients.local_servers import CHAT


class Names:
    """A resolver: `known` names have an address, and while `held` is not set none is answered."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.queries: list[str] = []
        self.free = threading.Event()
        self.free.set()

    def __call__(self, host: str, *_args: Any, **_more: Any) -> list[Any]:
        self.queries.append(host)
        self.free.wait(60)
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "no such host")
        return []


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    result = Names("gpu-box")
    monkeypatch.setattr(hosts.socket, "getaddrinfo", result)
    monkeypatch.setattr(hosts, "in_container", lambda: False)
    return result


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (None, "host.docker.internal"),
        ("127.0.0.1\tlocalhost\n", "host.docker.internal"),
        ("10.88.0.1\thost.containers.internal\n", "host.containers.internal"),
        ("10.88.0.1\thost.containers.internal host.docker.internal\n", "host.docker.internal"),
    ],
)
def test_host_of_a_container_has_the_name_that_is_defined(
    tmp_path: Path, table: str | None, name: str
) -> None:
    if table is not None:
        (tmp_path / "hosts").write_text(table)
    assert hosts.container_host(tmp_path / "hosts") == name


def test_hosts_are_local_container_and_configured_once_each() -> None:
    assert ProbeHosts().names == (LOOPBACK, CONTAINER_HOST)
    assert ProbeHosts(["GPU-Box", "gpu-box", "localhost", "127.0.0.1", "10.0.0.5"]).names == (
        LOOPBACK,
        CONTAINER_HOST,
        "gpu-box",
        "10.0.0.5",
    )
    assert ProbeHosts(["gpu-box"], probe=False).names == ()


async def test_names_are_resolved_once_a_minute_and_addresses_never(names: Names) -> None:
    result = ProbeHosts(["gpu-box", "10.0.0.5", "fd00::5", "gone"])
    for _ in range(2):
        assert await result.reachable() == (LOOPBACK, "gpu-box", "10.0.0.5", "fd00::5")
    assert sorted(names.queries) == ["gone", "gpu-box", CONTAINER_HOST]


async def test_container_host_is_resolved_again_only_in_a_container(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "CACHE_SECONDS", 0.0)
    result = ProbeHosts()
    await result.reachable()
    await result.reachable()
    assert names.queries == [CONTAINER_HOST]
    monkeypatch.setattr(hosts, "in_container", lambda: True)
    inside = ProbeHosts()
    await inside.reachable()
    await inside.reachable()
    assert names.queries == [CONTAINER_HOST] * 3


async def test_slow_name_lookup_counts_as_unresolved(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "LOOKUP_SECONDS", 0.05)
    names.free.clear()
    try:
        assert not await ProbeHosts().resolves("gpu-box")
    finally:
        names.free.set()


def test_ipv6_address_is_written_in_brackets() -> None:
    assert CHAT[0].url_on("fd00::5") == "http://[fd00::5]:11434"


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *[
            (host, True)
            for host in ("vllm", "GPU.lan", "vllm.ai.svc", "vllm.ai.svc.cluster.local.", "10.0.0.4")
        ],
        *[(host, False) for host in ("api.example.com", "svc.example.com", "8.8.8.8")],
    ],
)
def test_server_in_the_local_network_is_known_by_its_name(host: str, is_local: bool) -> None:
    assert local_servers.is_in_local_network(host) is is_local
