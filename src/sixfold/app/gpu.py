"""Discovery of the programs that share a GPU, and their access to its arbiter."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

import httpx
import msgspec

from sixfold.clients import nvml
from sixfold.clients.chat.llama.server import GgufServer
from sixfold.clients.chat.servers import ModelServer
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.clients.comfyui.errors import ComfyError
from sixfold.clients.comfyui.server import ComfyLimits, ComfyServer
from sixfold.clients.gpu_holders import ComfyHolder, GgufHolder, LlamaRouterHolder, OllamaHolder
from sixfold.clients.hosts import ProbeHosts
from sixfold.core import ids
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.gateway.ports import Upstream
from sixfold.core.gpu import groups, report
from sixfold.core.gpu.arbiter import GpuAccess, GpuArbiter, GpuFigures
from sixfold.core.gpu.groups import GpuGroup
from sixfold.core.gpu.ports import GpuHolder
from sixfold.core.gpu.report import GpuSchema
from sixfold.core.gpu.state import GpuState
from sixfold.drivers.gpu_workers import WeightsHolder
from sixfold.settings import InvalidSetting, Settings
from sixfold.store.gpu_state import GpuStateFile

_REFRESH_SECONDS = 15.0
# A server that does not list its models within this time is not a member yet.
ANSWER_SECONDS = 3.0
# Loading the driver's library takes tens of milliseconds.
_CARDS_SECONDS = 1.0
_LIMITS = ComfyLimits(connect_seconds=2.0, answer_seconds=5.0)
# The kinds of model servers that can list and unload their models.
_HOLDERS = frozenset({"ollama", "llamacpp", "llamaswap"})
_SEVERAL = "this machine has more than one GPU: list the programs of each GPU in SIXFOLD_GPU_GROUPS"
_SEVERAL_COMFYUI = (
    "this machine has more than one ComfyUI server: list the programs of each GPU in SIXFOLD_GPU_GROUPS"
)
_UNKNOWN = "the memory of the GPU is not known"


class ServerSource(Protocol):
    """A port for the gateway's model servers."""

    def model_servers(self) -> Sequence[Upstream]:
        """Return all model servers, including unreachable ones."""
        ...

    async def wait_refreshed(self) -> None:
        """Wait until the first refresh is complete."""
        ...


class _SharedGpu(msgspec.Struct):
    """A group with its arbiter and programs.

    `note` is the reason why the programs do not take turns, or an empty string.
    """

    group: GpuGroup
    file: GpuStateFile
    arbiter: GpuArbiter
    note: str = _UNKNOWN
    # The keys are the names of programs.
    holders: dict[str, GpuHolder] = {}
    watching: asyncio.Task[None] | None = None


class _Program(msgspec.Struct, frozen=True):
    """A program that currently uses GPU memory, and the function that sets its access."""

    holder: GpuHolder
    attach: Callable[[GpuAccess | None], None]


class GpuSharing:
    """The GPUs that are shared by programs, as configured or detected.

    `has_weights` returns whether weights are installed on this server, and `list_cards` returns the GPUs of
    this machine.
    """

    def __init__(
        self,
        settings: Settings,
        client: httpx.AsyncClient,
        comfyui: ComfyAddress | None,
        list_cards: Callable[[], Sequence[nvml.GpuDevice]] = nvml.list_gpus,
    ) -> None:
        self.owner = ids.new("gpu")
        self.weights = WeightsHolder(self.owner)
        self.servers: ServerSource | None = None
        self.has_weights: Callable[[], bool] = lambda: False
        self._client = client
        self._comfyui = comfyui or ComfyAddress((), ProbeHosts(probe=False))
        self._list_cards = list_cards
        self._known_cards: Sequence[nvml.GpuDevice] = ()
        self._cards_expire_at = 0.0
        self._weights_access: GpuAccess | None = None
        self._refreshing = asyncio.Lock()
        self._attached: dict[str, Callable[[GpuAccess | None], None]] = {}
        with InvalidSetting.of(ValueError):
            parsed = groups.parse(settings.gpu_groups)
        self._gpus = [self._open(settings, group) for group in parsed]

    def _open(self, settings: Settings, group: GpuGroup) -> _SharedGpu:
        file = GpuStateFile(settings.data_dir / "gpu", group.name, self.owner)
        arbiter = GpuArbiter(group.name, file, settings.gpu_turn_seconds, settings.gpu_wait_seconds)
        gpu = _SharedGpu(group, file, arbiter)
        arbiter.free_bytes = lambda: self._free_bytes(gpu)
        return gpu

    def weights_access(self) -> GpuAccess | None:
        """Return the GPU that this server's weights share with other programs, or None."""
        return self._weights_access

    def switch_seconds(self, engine: EngineSpec) -> float:
        if engine.kind == "weights" and self._weights_access is not None:
            return self._weights_access.switch_seconds()
        if engine.kind == "comfyui":
            url = str(engine.options.get("url") or self._comfyui.url)
            access = self._comfyui.gpus.get(url)
            return 0.0 if access is None else access.switch_seconds()
        return 0.0

    def reports(self) -> tuple[GpuSchema, ...]:
        """Return the memory that each program uses on each GPU that at least two programs share."""
        now = time.monotonic()
        return tuple(
            report.report(
                gpu.group.name,
                gpu.note,
                tuple(gpu.holders),
                GpuState() if gpu.note else gpu.arbiter.view(),
                now,
            )
            for gpu in self._gpus
            if len(gpu.holders) > 1 or not gpu.group.is_default
        )

    def figures(self) -> Mapping[str, GpuFigures]:
        return {gpu.group.name: gpu.arbiter.figures for gpu in self._gpus}

    async def run(self) -> None:
        """Look for programs periodically until canceled."""
        if self.servers is not None:
            await self.servers.wait_refreshed()
        while self._gpus:
            await self.refresh()
            await asyncio.sleep(_REFRESH_SECONDS)
        await asyncio.Event().wait()

    async def refresh(self) -> None:
        """Find the programs of each GPU and the models that they have loaded."""
        async with self._refreshing:
            await self._refresh()

    async def _refresh(self) -> None:
        attached: dict[str, Callable[[GpuAccess | None], None]] = {}
        for gpu in self._gpus:
            # The loaded models matter only if several programs share the GPU.
            is_shared = not gpu.group.is_default or self._candidates(gpu.group) > 1
            programs = await self._programs(gpu.group) if is_shared else []
            gpu.holders = {program.holder.name: program.holder for program in programs}
            gpu.note = ""
            total, free = await self._memory(gpu) if is_shared else (0, None)
            if len(programs) < 2:
                gpu.note = gpu.note or "it is not shared by two programs"
            if not gpu.note and await self._start(gpu, total, free):
                for program in programs:
                    program.attach(gpu.arbiter.access(program.holder))
                    attached[program.holder.name] = program.attach
                with contextlib.suppress(OSError):
                    await gpu.arbiter.refresh()
        for name, attach in self._attached.items():
            if name not in attached:
                attach(None)
        self._attached = attached

    async def aclose(self) -> None:
        """Stop this process's use of the GPUs and release its locks."""
        for gpu in self._gpus:
            if gpu.watching is not None:
                gpu.watching.cancel()
                await asyncio.gather(gpu.watching, return_exceptions=True)
            await gpu.arbiter.aclose()
            gpu.file.close()

    async def _start(self, gpu: _SharedGpu, total: int, free: int | None) -> bool:
        try:
            await gpu.arbiter.set_total(total, free)
        except OSError as error:
            gpu.note = f"its state cannot be shared: {error}"
            return False
        if gpu.watching is None:
            gpu.watching = asyncio.create_task(gpu.arbiter.watch(), name=f"gpu {gpu.group.name}")
        return True

    # -- programs ----------------------------------------------------------------------------------

    def _candidates(self, group: GpuGroup) -> int:
        """Return how many programs may be members, as far as is known without querying them."""
        servers = self.servers.model_servers() if self.servers is not None else ()
        has_own_engines = "weights" in group.members and self.has_weights()
        return (
            sum(server.ready and _may_share(group, server) for server in servers)
            + sum(group.has_server(url) for url in self._comfyui.configured or self._comfyui.ready)
            + has_own_engines
        )

    async def _programs(self, group: GpuGroup) -> list[_Program]:
        servers = self.servers.model_servers() if self.servers is not None else ()
        candidates = [await self._program(group, server) for server in servers if server.ready]
        programs = [program for program in candidates if program is not None]
        for url in self._comfyui.configured or self._comfyui.ready:
            if group.has_server(url):
                holder = ComfyHolder(_place("ComfyUI", url), ComfyServer(self._client, url, _LIMITS))
                programs.append(_Program(holder, lambda access, url=url: self._set_comfyui(url, access)))
        if "weights" in group.members and self.has_weights() and await self._cards():
            programs.append(_Program(self.weights, self._set_weights))
        return programs

    async def _program(self, group: GpuGroup, server: Upstream) -> _Program | None:
        def attach(access: GpuAccess | None) -> None:
            server.gpu = access

        if isinstance(server, GgufServer):
            if "gguf" not in group.members or not server.uses_gpu or not await self._cards():
                return None
            return _Program(GgufHolder(self.owner, server), attach)
        if not isinstance(server, ModelServer) or not group.has_server(server.base_url):
            return None
        name = _place(server.name, server.base_url)
        if server.gpu is not None and server.gpu.holder.name == name:
            return _Program(server.gpu.holder, attach)
        holder = _holder(server, name)
        residents = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                residents = None if holder is None else await holder.residents()
        # A server that does not list its loaded models cannot unload them either.
        return None if holder is None or residents is None else _Program(holder, attach)

    def _set_comfyui(self, url: str, access: GpuAccess | None) -> None:
        if access is None:
            self._comfyui.gpus.pop(url, None)
        else:
            self._comfyui.gpus[url] = access

    def _set_weights(self, access: GpuAccess | None) -> None:
        self._weights_access = access

    # -- memory ------------------------------------------------------------------------------------

    async def _cards(self) -> Sequence[nvml.GpuDevice]:
        now = time.monotonic()
        if now >= self._cards_expire_at:
            self._known_cards = await asyncio.to_thread(self._list_cards)
            self._cards_expire_at = now + _CARDS_SECONDS
        return self._known_cards

    async def _memory(self, gpu: _SharedGpu) -> tuple[int, int | None]:
        """Return the total and free bytes of a GPU; set its note if they are unknown."""
        group = gpu.group
        cards = await self._cards() if group.is_local else ()
        if len(cards) == 1:
            return group.memory_bytes or cards[0].total_bytes, cards[0].free_bytes
        if group.memory_bytes:
            return group.memory_bytes, None
        if len(cards) > 1 and group.is_default:
            gpu.note = _SEVERAL
            return 0, None
        servers = [url for url in self._comfyui.configured or self._comfyui.ready if group.has_server(url)]
        if len(servers) > 1 and group.is_default:
            gpu.note = _SEVERAL_COMFYUI
            return 0, None
        for url in servers:
            with contextlib.suppress(ComfyError):
                stats = await ComfyServer(self._client, url, _LIMITS).stats()
                if stats.kind == "cpu" or not stats.memory_bytes:
                    gpu.note = _UNKNOWN
                return stats.memory_bytes, stats.memory_free_bytes
        # While ComfyUI loads a model, it may not respond.
        total = gpu.arbiter.view().total if servers else 0
        if not total:
            gpu.note = _UNKNOWN
        return total, None

    async def _free_bytes(self, gpu: _SharedGpu) -> int | None:
        return (await self._memory(gpu))[1]


def _may_share(group: GpuGroup, server: Upstream) -> bool:
    if isinstance(server, GgufServer):
        return "gguf" in group.members and server.uses_gpu
    return isinstance(server, ModelServer) and server.kind in _HOLDERS and group.has_server(server.base_url)


def _holder(server: ModelServer, name: str) -> GpuHolder | None:
    match server.kind:
        case "ollama":
            return OllamaHolder(name, server.queries())
        case "llamacpp" | "llamaswap":
            return LlamaRouterHolder(name, server.queries(), swap=server.kind == "llamaswap")
        case _:
            return None


def _place(name: str, url: str) -> str:
    """Return a program's name with its port, which processes with other configurations use as well."""
    parts = urlsplit(url)
    return f"{name} ({parts.hostname}:{parts.port})"
