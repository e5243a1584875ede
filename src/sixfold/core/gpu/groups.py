"""Groups of programs that share a GPU: the setting `gpu_groups`, or all programs of this machine."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

OFF = "off"
# The members that run in this server: local weights, and GGUF files.
OWN = ("weights", "gguf")
MAX_GROUPS = 16
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_MEMBER = re.compile(r"[A-Za-z0-9_.\[\]:-]{1,255}")
_GIB = 2**30
_THIS_MACHINE = "127.0.0.1"
# The names of the host machine inside a container.
_SELF = frozenset({"localhost", "host.docker.internal", "host.containers.internal"})


class GpuGroup(msgspec.Struct, frozen=True):
    """Programs that share a GPU with `memory_bytes` of memory (0: as reported).

    A member is `host`, `host:port`, or one of `OWN`.
    """

    name: str
    members: frozenset[str]
    memory_bytes: int = 0
    is_default: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the GPU is on this machine."""
        return any(member in OWN or member.partition(":")[0] == _THIS_MACHINE for member in self.members)

    def has_server(self, url: str) -> bool:
        parts = urlsplit(url)
        host = _host(parts.hostname or "")
        return bool(host) and (host in self.members or f"{host}:{parts.port}" in self.members)


DEFAULT = GpuGroup("gpu", frozenset({_THIS_MACHINE, *OWN}), is_default=True)


def parse(entries: Iterable[str]) -> tuple[GpuGroup, ...]:
    """Parse entries such as `card0=127.0.0.1+weights@24`; raises `ValueError`.

    If there are no entries, the programs of this machine are one group; `off` disables all groups.
    """
    texts = [entry.strip() for entry in entries if entry.strip()]
    if not texts:
        return (DEFAULT,)
    if texts == [OFF]:
        return ()
    if len(texts) > MAX_GROUPS:
        raise ValueError(f"gpu_groups must have at most {MAX_GROUPS} entries (got {len(texts)})")
    groups = [_group(text) for text in texts]
    for index, group in enumerate(groups):
        for other in groups[:index]:
            if group.name == other.name or group.members & other.members:
                raise ValueError(
                    f"gpu_groups: {other.name} and {group.name} have the same name or share a member"
                )
    return tuple(groups)


def _group(text: str) -> GpuGroup:
    name, equals, rest = text.partition("=")
    members, at, memory = rest.partition("@")
    parts = [part.strip() for part in members.split("+")]
    if not equals or not _NAME.fullmatch(name.strip()) or not all(map(_MEMBER.fullmatch, parts)):
        raise ValueError(
            "gpu_groups must be entries such as card0=127.0.0.1:11434+127.0.0.1:8188+weights@24 "
            f"(got {text[:100]!r})"
        )
    try:
        gib = float(memory) if at else 0.0
    except ValueError:
        gib = -1.0
    if at and not 0 < gib <= 100_000:
        raise ValueError(f"gpu_groups: the memory of {name} must be a number of GiB (got {memory[:40]!r})")
    return GpuGroup(name.strip(), frozenset(_member(part) for part in parts), int(gib * _GIB))


def _member(text: str) -> str:
    if text in OWN:
        return text
    parts = urlsplit(f"//{text}")
    host = _host(parts.hostname or "")
    return f"{host}:{parts.port}" if parts.port else host


def _host(host: str) -> str:
    """Return a host's name; all addresses of this machine have the same name."""
    host = host.lower()
    if host in _SELF:
        return _THIS_MACHINE
    try:
        return _THIS_MACHINE if ipaddress.ip_address(host).is_loopback else host
    except ValueError:
        return host
