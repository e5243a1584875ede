"""Model servers that hold GPU memory: the loaded models, and how to unload them.

Sources: https://docs.ollama.com/api (ps, and generate with `keep_alive` 0), ComfyUI's server.py
(/system_stats, /free), llama.cpp's tools/server/README.md (/models and /models/unload of the router), and
llama-swap's README (/running, /api/models/unload/NAME). Only Ollama and ComfyUI state sizes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from sixfold.clients.chat.listing import ModelQueries, RunningModels, model_name
from sixfold.clients.chat.llama.server import GgufServer
from sixfold.clients.comfyui.errors import ComfyError
from sixfold.clients.comfyui.server import ComfyServer
from sixfold.core.gateway.capabilities import LATEST
from sixfold.core.gateway.ports import UpstreamFailure

_POLL_SECONDS = 0.1
# The context and compute buffers take memory in addition to the weights.
_OVERHEAD = 1.15
# Bytes of GPU memory that CUDA and torch use without a model.
_IDLE_BYTES = 512 * 2**20

Residents = Callable[[], Awaitable[Mapping[str, int | None] | None]]


class _OllamaModel(msgspec.Struct):
    name: Any = None
    model: Any = None
    size: Any = None
    size_vram: Any = None


class _OllamaModels(msgspec.Struct):
    models: list[_OllamaModel]


class _RouterModel(msgspec.Struct):
    id: Any = None
    status: Any = None


class _RouterModels(msgspec.Struct):
    data: list[_RouterModel]


class OllamaHolder:
    """An Ollama server, which states the memory of each model and unloads idle models itself."""

    private = ""
    self_managed = True

    def __init__(self, name: str, queries: ModelQueries) -> None:
        self.name = name
        self._queries = queries
        self._files: dict[str, int] = {}

    def canonical(self, model: str) -> str:
        """Return a model's name with its tag."""
        return model if ":" in model else model + LATEST

    async def residents(self) -> Mapping[str, int | None] | None:
        """Return the bytes of GPU memory of each loaded model, or None if the server does not respond."""
        try:
            loaded_models = await self._queries.get("/api/ps", _OllamaModels)
            if not self._files:
                await self._read_files()
        except UpstreamFailure:
            return None
        return (
            None
            if loaded_models is None
            else {_name(row): _count(row.size_vram) for row in loaded_models.models}
        )

    async def unload(self, model: str) -> None:
        """Unload a model and wait until it is no longer listed."""
        with contextlib.suppress(UpstreamFailure):
            await self._queries.post("/api/generate", {"model": model, "keep_alive": 0}, dict)
            await _wait_until_gone(self.residents, model)

    def expected_bytes(self, model: str) -> int | None:
        """Return the estimated bytes of a model with its context, or None if its size is unknown."""
        size = self._files.get(model)
        return None if not size else int(size * _OVERHEAD)

    async def _read_files(self) -> None:
        tags = await self._queries.get("/api/tags", _OllamaModels)
        self._files = {_name(row): _count(row.size) for row in (tags.models if tags is not None else ())}


class LlamaRouterHolder:
    """A llama.cpp server in router mode, or llama-swap (`swap`); neither states the sizes of models."""

    private = ""
    self_managed = True

    def __init__(self, name: str, queries: ModelQueries, *, swap: bool = False) -> None:
        self.name = name
        self._queries = queries
        self._swap = swap

    def canonical(self, model: str) -> str:
        return model

    async def residents(self) -> Mapping[str, int | None] | None:
        """Return the loaded models, or None if the server cannot unload models."""
        try:
            if self._swap:
                swapped = await self._queries.get("/running", RunningModels)
                return None if swapped is None else {model_name(row.model): None for row in swapped.running}
            model_list = await self._queries.get("/models", _RouterModels)
        except UpstreamFailure:
            return None
        # A server with a single model does not state its status and cannot unload it.
        if model_list is None or not any(isinstance(row.status, dict) for row in model_list.data):
            return None
        return {model_name(row.id): None for row in model_list.data if _status(row) in ("loaded", "sleeping")}

    async def unload(self, model: str) -> None:
        """Unload a model and wait until its process has ended."""
        with contextlib.suppress(UpstreamFailure):
            if self._swap:
                await self._queries.post(f"/api/models/unload/{quote(model, safe='')}", {}, dict)
            else:
                await self._queries.post("/models/unload", {"model": model}, dict)
            await _wait_until_gone(self.residents, model)

    def expected_bytes(self, model: str) -> int | None:
        """Return None, as these servers do not state file sizes."""
        return None


class ComfyHolder:
    """A ComfyUI server, which manages the memory of its models."""

    private = ""
    self_managed = True

    def __init__(self, name: str, server: ComfyServer) -> None:
        self.name = name
        self._server = server

    def canonical(self, model: str) -> str:
        return model

    async def residents(self) -> Mapping[str, int | None] | None:
        """Map `""`, the model of the last run, to the bytes reserved by torch; None without a response."""
        try:
            stats = await self._server.stats()
        except ComfyError:
            return None
        return {"": stats.reserved_bytes} if stats.reserved_bytes > _IDLE_BYTES else {}

    async def unload(self, model: str) -> None:
        """Unload all models, and wait until the memory is free."""
        with contextlib.suppress(ComfyError):
            await self._server.free_memory()
            await _wait_until_gone(self.residents, "")

    def expected_bytes(self, model: str) -> int | None:
        """Return None, as ComfyUI does not state file sizes."""
        return None


class GgufHolder:
    """The models that this process runs with llama.cpp; other processes cannot unload them."""

    name = "gguf"
    self_managed = False

    def __init__(self, owner: str, server: GgufServer) -> None:
        self.private = owner
        self._server = server

    def canonical(self, model: str) -> str:
        return model

    async def residents(self) -> Mapping[str, int | None]:
        return dict.fromkeys(self._server.pool.loaded())

    async def unload(self, model: str) -> None:
        """End the process of an idle model."""
        await self._server.pool.unload(model)

    def expected_bytes(self, model: str) -> int | None:
        """Return the estimated bytes of a model with its context, or None if its size is unknown."""
        file = self._server.files.get(model)
        with contextlib.suppress(OSError):
            return None if file is None else int(file.path.stat().st_size * _OVERHEAD)
        return None


async def _wait_until_gone(residents: Residents, model: str) -> None:
    while model in (await residents() or {}):  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(_POLL_SECONDS)


def _name(row: _OllamaModel) -> str:
    return model_name(row.name) or model_name(row.model)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _status(row: _RouterModel) -> str:
    return str(row.status.get("value", "")) if isinstance(row.status, dict) else ""
