"""Runs of a ComfyUI server that shares its GPU with other programs."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sixfold import errors
from sixfold.clients.comfyui.errors import ComfyError, ComfyNodeFailed
from sixfold.clients.comfyui.events import Event, EventCallback, NodeProgress
from sixfold.core.gpu.arbiter import GpuAccess

Outputs = Mapping[str, Mapping[str, Any]]
GraphRun = Callable[[EventCallback], Awaitable[Outputs]]


async def run(gpu: GpuAccess | None, model: str, graph_run: GraphRun, on_event: EventCallback) -> Outputs:
    """Run a graph when the GPU has enough free memory for `model`; raises `ComfyError`.

    If memory runs out nevertheless, the run is repeated once with exclusive use of the GPU.
    """
    if gpu is None:
        return await graph_run(on_event)
    try:
        lease = await gpu.acquire(model, math.inf)
    except errors.GpuBusy as busy:
        raise ComfyError(f"{busy.message}.") from busy

    def handle(event: Event) -> None:
        # A sampler takes its first step after its model is loaded.
        if isinstance(event, NodeProgress):
            lease.ready()
        on_event(event)

    try:
        try:
            return await graph_run(handle)
        except ComfyNodeFailed as failed:
            if not failed.memory:
                raise
            try:
                await lease.take_all(math.inf)
            except errors.GpuBusy:
                raise failed from None
            return await graph_run(handle)
    finally:
        lease.release()
