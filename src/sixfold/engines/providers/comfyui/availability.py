"""Whether the ComfyUI that an engine is to use answers, and has a model for what the engine does."""

from __future__ import annotations

import asyncio

import httpx

from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec
from sixfold.engines.providers.comfyui import capabilities as comfyui_capabilities
from sixfold.engines.providers.comfyui.capabilities import UPSCALE, FoundModels, probe
from sixfold.engines.providers.comfyui.video_graphs import IMAGE_TO_FILM, TEXT_TO_FILM

PROBE_SECONDS = 3.0  # for each answer; a port where nothing listens is refused at once
BUSY_SECONDS = 120.0  # a server that was ready and loads a large model may be deaf for so long


class ComfyAvailability:
    """Asks each server once for all engines that ask at the same time; sets `address` to one that answers.

    `seconds` is how long a server may take for one answer. `latest` keeps what each server last said, by its
    URL.
    """

    def __init__(
        self, client: httpx.AsyncClient, address: ComfyAddress, *, seconds: float | None = None
    ) -> None:
        self._client = client
        self._address = address
        self._seconds = seconds
        self.latest: dict[str, FoundModels] = {}
        self._asking: dict[str, asyncio.Task[FoundModels]] = {}
        self._heard: dict[str, tuple[float, FoundModels]] = {}

    async def __call__(self, spec: EngineSpec) -> EngineStatus:
        """How an engine's server answers now."""
        url = str(spec.options.get("url") or "")
        found = await (self._found(url) if url else self._anywhere())
        if found is None:
            return EngineStatus(False, "no ComfyUI is looked for (SIXFOLD_PROBE=0)")
        if found.problem:
            return EngineStatus(False, found.problem)
        task = str(spec.options.get("task", ""))
        model = found.serves.get(task)
        if model is None:
            return EngineStatus(False, found.missing.get(task, f"ComfyUI at {found.url} cannot do {task}"))
        wanted = str(spec.options.get("checkpoint", ""))
        if wanted and task != UPSCALE:
            filmed = task in (TEXT_TO_FILM, IMAGE_TO_FILM)
            pinned = comfyui_capabilities.pinned(wanted, found.films if filmed else found.models)
            if pinned is None:
                return EngineStatus(False, comfyui_capabilities.NOT_THERE.format(wanted))
            model = pinned
        return EngineStatus(True, f"{model}, ComfyUI {found.version} at {found.url}")

    async def _anywhere(self) -> FoundModels | None:
        """The first server that answers of all the candidates, else what the preferred one said."""
        urls = await self._address.candidates()
        if not urls:
            return None
        found = await asyncio.gather(*(self._found(url) for url in urls))
        there = [each for each in found if not each.problem]
        # The one in use stays while it answers, as runs are under way there.
        best = next((each for each in there if each.url == self._address.url), (*there, found[0])[0])
        self._address.url = best.url
        return best

    async def _found(self, url: str) -> FoundModels:
        asking = self._asking.get(url)
        if asking is None:
            asking = self._asking[url] = asyncio.create_task(
                probe(self._client, url, seconds=self._seconds or PROBE_SECONDS)
            )
            asking.add_done_callback(lambda _done: self._asking.pop(url, None))
        found = self.latest[url] = self._or_before(url, await asyncio.shield(asking))
        return found

    def _or_before(self, url: str, found: FoundModels) -> FoundModels:
        """What was found; of a server that is only slow now, what it said the last time."""
        now = asyncio.get_running_loop().time()
        if not found.problem:
            self._heard[url] = (now, found)
        elif found.slow and url in self._heard and now - self._heard[url][0] < BUSY_SECONDS:
            return self._heard[url][1]
        return found
