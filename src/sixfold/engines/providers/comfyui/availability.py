"""Probes that check whether an engine's ComfyUI responds and has a model for the engine's task."""

from __future__ import annotations

import asyncio

import httpx

from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.reachability import Outage, Reachability
from sixfold.engines.providers.comfyui import capabilities
from sixfold.engines.providers.comfyui.capabilities import UPSCALE, FoundModels, probe
from sixfold.engines.providers.comfyui.video_graphs import IMAGE_TO_VIDEO, TEXT_TO_VIDEO

PROBE_SECONDS = 3.0  # for each response; a closed port refuses the connection at once


class ComfyAvailability:
    """Probes ComfyUI servers for the engines that use them, and sets `address` to a server that responds.

    Concurrent calls for one server share a probe. `seconds` is the timeout of each response. `latest` maps
    the URL of each server to its last probe. A server that was ready may load a large model for two minutes
    without responding.
    """

    def __init__(
        self, client: httpx.AsyncClient, address: ComfyAddress, *, seconds: float | None = None
    ) -> None:
        self._client = client
        self._address = address
        self._seconds = seconds
        self.latest: dict[str, FoundModels] = {}
        self._probes: dict[str, asyncio.Task[FoundModels]] = {}
        self._last_good: dict[str, FoundModels] = {}
        self._reachability: dict[str, Reachability] = {}

    async def __call__(self, spec: EngineSpec) -> EngineStatus:
        """Probe the server of an engine and return the engine's status."""
        url = str(spec.options.get("url") or "")
        servers = (await self._found(url),) if url else await self._all_found()
        if not servers:
            return EngineStatus(False, "the search for ComfyUI is disabled (SIXFOLD_PROBE=0)")
        statuses = [_status(spec, server, self.outage(server.url)) for server in servers]
        return next((status for status in statuses if status.ready), statuses[0])

    def outage(self, url: str) -> Outage | None:
        """Return since when a server that is configured, or was found, does not respond."""
        reachability = self._reachability.get(url)
        if reachability is None or not (reachability.was_ready or url in self._address.configured):
            return None
        return reachability.outage

    async def _all_found(self) -> tuple[FoundModels, ...]:
        """Probe all candidates; return the successful probes, or the failed probe of the preferred server."""
        urls = await self._address.candidates()
        results = tuple(await asyncio.gather(*(self._found(url) for url in urls)))
        for stale_url in self.latest.keys() - set(urls):
            del self.latest[stale_url]
        ready = [each for each in results if not each.problem]
        self._address.ready = tuple(each.url for each in ready)
        if not results:
            return ()
        # The server in use stays selected while it responds, since workflows are in progress there.
        ready.sort(key=lambda each: each.url != self._address.url)
        servers = tuple(ready) or results[:1]
        self._address.url = servers[0].url
        return servers

    async def _found(self, url: str) -> FoundModels:
        task = self._probes.get(url)
        if task is None:
            task = self._probes[url] = asyncio.create_task(
                probe(self._client, url, seconds=self._seconds or PROBE_SECONDS)
            )
            task.add_done_callback(lambda _: self._probes.pop(url, None))
        server = self.latest[url] = self._or_last_good(url, await asyncio.shield(task))
        return server

    def _or_last_good(self, url: str, server: FoundModels) -> FoundModels:
        """Return the probe, or the last successful probe of a server that became slow only recently."""
        reachability = self._reachability.setdefault(url, Reachability(1))
        if not server.problem:
            reachability.record_response()
            self._last_good[url] = server
            return server
        reason = server.problem.removeprefix("ComfyUI ").rstrip(".")
        reachability.record_failure(reason, is_slow=server.slow)
        return server if reachability.outage is not None else self._last_good[url]


def _status(spec: EngineSpec, server: FoundModels, outage: Outage | None) -> EngineStatus:
    if server.problem:
        return EngineStatus(False, server.problem, "" if outage is None else f"ComfyUI {outage.clause}")
    task = str(spec.options.get("task", ""))
    model = server.serves.get(task)
    if model is None:
        return EngineStatus(
            False, server.missing.get(task, f"ComfyUI at {server.url} does not support {task}")
        )
    checkpoint = str(spec.options.get("checkpoint", ""))
    if checkpoint and task != UPSCALE:
        makes_video = task in (TEXT_TO_VIDEO, IMAGE_TO_VIDEO)
        pinned = capabilities.pinned(checkpoint, server.videos if makes_video else server.models)
        if pinned is None:
            return EngineStatus(False, capabilities.NOT_FOUND.format(checkpoint))
        model = pinned
    return EngineStatus(True, f"{model}, ComfyUI {server.version} at {server.url}")
