"""The URLs of the operator's ComfyUI servers: configured ones, or those found on probed hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sixfold.clients import local_servers
from sixfold.clients.hosts import LOOPBACK, ProbeHosts
from sixfold.core.gpu.arbiter import GpuAccess


class ComfyAddress:
    """The URLs of the ComfyUI servers in use; `url` is the first one, empty if no server may be called.

    Configured URLs are used as they are. Otherwise each probed host is a candidate, this machine first,
    unless the port is this server's own. The prober sets `ready` to the servers that responded last, and
    `url` to one of them. `active` counts the runs in progress by URL. `gpus` are the GPUs that servers share
    with other programs, by URL.
    """

    def __init__(
        self, configured: Sequence[str], hosts: ProbeHosts, own_ports: frozenset[int] = frozenset()
    ) -> None:
        self.configured = tuple(configured)
        self._hosts = hosts
        self._own = local_servers.COMFYUI.port in own_ports
        self.url = self.configured[0] if self.configured else self._url_on(LOOPBACK)
        self.ready: tuple[str, ...] = ()
        self.active: Counter[str] = Counter()
        self.gpus: dict[str, GpuAccess] = {}

    def configure(self, urls: Sequence[str]) -> None:
        """Use these URLs, or the probed hosts if there are none."""
        self.configured = tuple(urls)
        if self.configured and self.url not in self.configured:
            self.url = self.configured[0]
        elif not self.configured:
            self.url = self._url_on(LOOPBACK)

    async def candidates(self) -> tuple[str, ...]:
        """Return the URLs to probe, in order of preference."""
        if self.configured:
            return self.configured
        urls = [self._url_on(host) for host in await self._hosts.reachable()]
        return tuple(url for url in urls if url)

    def _url_on(self, host: str) -> str:
        if host not in self._hosts.names or (self._own and host == LOOPBACK):
            return ""
        return local_servers.COMFYUI.url_on(host)
