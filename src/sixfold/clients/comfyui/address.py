"""The URL of the operator's ComfyUI: the configured one, or the first host on which it is found."""

from __future__ import annotations

from sixfold.clients import local_servers
from sixfold.clients.hosts import LOOPBACK, ProbeHosts


class ComfyAddress:
    """The URL of the ComfyUI in use; `url` is empty if none may be called.

    A configured URL is used as is. Otherwise each probed host is a candidate, this machine first, unless the
    port is this server's own; the prober sets `url` to the candidate that responded.
    """

    def __init__(self, configured: str, hosts: ProbeHosts, own_ports: frozenset[int] = frozenset()) -> None:
        self.configured = configured
        self._hosts = hosts
        self._own = local_servers.COMFYUI.port in own_ports
        self.url = configured or self._url_on(LOOPBACK)

    async def candidates(self) -> tuple[str, ...]:
        """Return the URLs to probe, in order of preference."""
        if self.configured:
            return (self.configured,)
        urls = [self._url_on(host) for host in await self._hosts.reachable()]
        return tuple(url for url in urls if url)

    def _url_on(self, host: str) -> str:
        if host not in self._hosts.names or (self._own and host == LOOPBACK):
            return ""
        return local_servers.COMFYUI.url_on(host)
