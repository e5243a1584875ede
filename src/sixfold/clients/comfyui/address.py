"""Where the operator's ComfyUI is: at the configured address, or on the first host where one is found."""

from __future__ import annotations

from sixfold.clients import local_servers
from sixfold.clients.hosts import LOOPBACK, ProbeHosts


class ComfyAddress:
    """The address of the ComfyUI that is used; `url` is empty where none may be asked.

    A configured address stands. Otherwise each probed host is a candidate, this machine first, unless its
    port is this server's own; who probes the candidates sets `url` to the one that answered.
    """

    def __init__(self, configured: str, hosts: ProbeHosts, own_ports: frozenset[int] = frozenset()) -> None:
        self.configured = configured
        self._hosts = hosts
        self._own = local_servers.COMFYUI.port in own_ports
        self.url = configured or self._url_on(LOOPBACK)

    async def candidates(self) -> tuple[str, ...]:
        """Return the addresses to probe, the preferred one first."""
        if self.configured:
            return (self.configured,)
        urls = [self._url_on(host) for host in await self._hosts.reachable()]
        return tuple(url for url in urls if url)

    def _url_on(self, host: str) -> str:
        if host not in self._hosts.names or (self._own and host == LOOPBACK):
            return ""
        return local_servers.COMFYUI.url_on(host)
