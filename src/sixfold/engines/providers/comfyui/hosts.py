"""Selection of the ComfyUI server for each run: the least busy server that has the model."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from sixfold.clients.comfyui import shared_gpu
from sixfold.clients.comfyui.errors import ComfyError, ComfyUnreachable
from sixfold.clients.comfyui.events import Event, EventCallback
from sixfold.clients.comfyui.server import ComfyServer, Graph
from sixfold.core.catalog.engines import EngineError
from sixfold.core.gpu import run_clock
from sixfold.core.gpu.arbiter import GpuAccess
from sixfold.engines.host_services import HostServices
from sixfold.engines.providers.comfyui import capabilities
from sixfold.engines.providers.comfyui.capabilities import DEFAULT_URL, InstalledModels

_CACHE_SECONDS = 300.0
# A server that does not return the length of its queue within this time is tried last.
_LOAD_SECONDS = 2.0
# Returns the models limited to those of a run; raises `EngineError` if the server cannot run it.
Select = Callable[[InstalledModels], InstalledModels]


class ComfyHost:
    """One server, with its models as of the last read."""

    def __init__(self, server: ComfyServer) -> None:
        self.server = server
        self.installed: InstalledModels | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def read(self) -> InstalledModels:
        """Return the models, read again every five minutes and after errors."""
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self.installed is None or now - self._read_at > _CACHE_SECONDS:
                self.installed = await capabilities.read(self.server)
                self._read_at = now
            return self.installed

    async def queue_length(self) -> int | None:
        """Return the number of running and waiting prompts, or None if the server does not respond."""
        with contextlib.suppress(ComfyError, TimeoutError):
            async with asyncio.timeout(_LOAD_SECONDS):
                return await self.server.queue_length()
        return None


class HostRun(msgspec.Struct):
    """A run on one server. `started` is set by the first event; a started run stays on its server."""

    host: ComfyHost
    installed: InstalledModels
    gpu: GpuAccess | None = None
    started: bool = msgspec.field(default=False)

    @property
    def server(self) -> ComfyServer:
        return self.host.server

    async def run(
        self,
        graph: Graph,
        output_nodes: Collection[str],
        on_event: EventCallback,
        model: str,
        *,
        previews: bool = False,
    ) -> Mapping[str, Mapping[str, Any]]:
        """Run a graph with `model` when its GPU has room; raises `ComfyError`."""

        async def graph_run(handle: EventCallback) -> Mapping[str, Mapping[str, Any]]:
            loop = asyncio.get_running_loop()
            submitted_at = loop.time()

            def start(event: Event) -> None:
                # The first event ends the time in ComfyUI's queue, which is not part of the run.
                if not self.started:
                    run_clock.exclude(submitted_at, loop.time())
                self.started = True
                handle(event)

            return await self.server.run(graph, output_nodes, start, previews=previews)

        return await shared_gpu.run(self.gpu, model, graph_run, on_event)


class ComfyHosts:
    """The servers that an engine may use: the configured URL, or the servers that the last probe found."""

    def __init__(self, outside: HostServices, url: str) -> None:
        self._outside = outside
        self._url = url
        self._hosts: dict[str, ComfyHost] = {}
        # The host of the last run.
        self.last = self._host(url or DEFAULT_URL)

    def _urls(self) -> tuple[str, ...]:
        if self._url or self._outside.comfyui is None:
            return (self._url or DEFAULT_URL,)
        address = self._outside.comfyui
        return address.ready or (address.url or DEFAULT_URL,)

    def _host(self, url: str) -> ComfyHost:
        if url not in self._hosts:
            self._hosts[url] = ComfyHost(ComfyServer(self._outside.client, url))
        return self._hosts[url]

    def has_others(self, run: HostRun) -> bool:
        """Return whether the engine may use a server other than that of the run."""
        return any(url != run.server.url for url in self._urls())

    @asynccontextmanager
    async def use(self, select: Select, excluded: Collection[str] = ()) -> AsyncIterator[HostRun]:
        """Select the least busy server for a run; raises `EngineError` if `select` rejects all servers.

        Servers in `excluded` are used only if all servers are excluded.
        """
        urls = self._urls()
        for stale_url in self._hosts.keys() - {*urls, self.last.server.url}:
            del self._hosts[stale_url]
        hosts = [self._host(url) for url in urls if url not in excluded] or [self._host(urls[0])]
        address = None if self._url else self._outside.comfyui
        active: Counter[str] = Counter() if address is None else address.active
        gpus = None if self._outside.comfyui is None else self._outside.comfyui.gpus
        queued = await _queue_lengths(hosts)
        failure: EngineError | None = None
        while hosts:
            host = min(hosts, key=lambda each: _load(each, queued, active))
            hosts.remove(host)
            active[host.server.url] += 1
            try:
                try:
                    gpu = None if gpus is None else gpus.get(host.server.url)
                    run = HostRun(host, select(await host.read()), gpu)
                except EngineError as error:
                    host.installed = None
                    # The error names the preferred server's reason.
                    failure = failure or error
                    continue
                self.last = host
                yield run
                return
            finally:
                active[host.server.url] -= 1
        raise failure or ComfyUnreachable("ComfyUI cannot be reached.")


async def _queue_lengths(hosts: list[ComfyHost]) -> dict[str, int | None]:
    """Return the length of each server's queue by its URL; a single server is not queried."""
    if len(hosts) < 2:
        return {}
    lengths = await asyncio.gather(*(host.queue_length() for host in hosts))
    return {host.server.url: length for host, length in zip(hosts, lengths, strict=True)}


def _load(host: ComfyHost, queued: dict[str, int | None], active: Counter[str]) -> tuple[bool, int]:
    """Return the sort key of a server: the length of its queue, at least the runs submitted by this process.

    Servers with a queue of unknown length are last.
    """
    length = queued.get(host.server.url)
    return length is None, max(length or 0, active[host.server.url])
