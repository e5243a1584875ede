"""Whether the ComfyUI that an engine is to use answers, and has a model for what the engine does."""

from __future__ import annotations

import asyncio

import httpx

from sixfold.core.work.catalog import EngineSpec
from sixfold.core.work.choosing import Standing
from sixfold.engines.remote.comfyui_stock import DEFAULT_URL, Found, probe

PROBE_SECONDS = 1.0


class ComfyStandings:
    """Asks each server once for all engines that ask at the same time. `looks` false asks none."""

    def __init__(self, client: httpx.AsyncClient, *, looks: bool) -> None:
        self._client = client
        self._looks = looks
        self._asking: dict[str, asyncio.Task[Found]] = {}

    async def __call__(self, spec: EngineSpec) -> Standing:
        """How an engine's server answers now."""
        if not self._looks:
            return Standing(False, "no ComfyUI is looked for (SIXFOLD_PROBE=0)")
        url = str(spec.options.get("url") or DEFAULT_URL)
        found = await self._found(url)
        if found.problem:
            return Standing(False, found.problem)
        task = str(spec.options.get("task", ""))
        model = found.serves.get(task)
        if model is None:
            return Standing(False, found.missing.get(task, f"ComfyUI at {url} cannot do {task}"))
        return Standing(True, f"{model}, ComfyUI {found.version} at {found.url}")

    async def _found(self, url: str) -> Found:
        asking = self._asking.get(url)
        if asking is None:
            asking = self._asking[url] = asyncio.create_task(probe(self._client, url, seconds=PROBE_SECONDS))
            asking.add_done_callback(lambda _done: self._asking.pop(url, None))
        return await asyncio.shield(asking)
