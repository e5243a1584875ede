"""Report of the resources for engines: GPU, weights, ComfyUI, model servers and provider keys.

The report uses the last results of the engines' probes and does not send requests. GPUs are read through the
driver's library, since importing torch takes seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import platform
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from sixfold.clients import local_servers, nvml
from sixfold.clients.chat.servers import ServerStatus
from sixfold.clients.hosts import LOOPBACK
from sixfold.clients.local_servers import LocalServer
from sixfold.core.catalog.availability import Resource
from sixfold.core.gateway.capabilities import EMBEDDINGS
from sixfold.core.gateway.search.service import SearchEngine
from sixfold.core.reachability import Outage
from sixfold.engines import model_files
from sixfold.engines.providers.comfyui.availability import ComfyAvailability
from sixfold.engines.providers.comfyui.capabilities import FoundModels
from sixfold.providers import CHAT_PROVIDERS, PROVIDERS
from sixfold.settings import Settings
from sixfold.store import secrets

REFRESH_SECONDS = 2.0
_GIB = 2**30
_ON_THIS_MACHINE = " on this machine"
_CHAT = f"chat, text-llm and vision{_ON_THIS_MACHINE}"
_WEB_SEARCH = "web search in chats, responses and MCP"
_OWN_HOSTS = frozenset({"", LOOPBACK, "localhost", "::1"})  # "" for models in this process
Refresh = Callable[[], Awaitable[object]]


class InstalledResources:
    """Reports the resources of one installation.

    `kinds` are the kinds of engines in the catalog. `comfyui` and `chat` contain the results of the last
    probes of their servers, and `probes` repeat these probes.
    """

    def __init__(
        self,
        settings: Settings,
        kinds: Iterable[str],
        comfyui: ComfyAvailability | None,
        chat: Callable[[], Sequence[ServerStatus]],
        probes: Sequence[Refresh],
        search: Callable[[], SearchEngine | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._kinds = frozenset(kinds)
        self._comfyui = comfyui
        self._chat = chat
        self._search = search
        self._probes = (*probes, self._probe_search)
        self._refreshing: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Probe all servers again, waiting at most 2 seconds; concurrent calls share one refresh."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="refresh-resources")
        done, _ = await asyncio.wait([self._refreshing], timeout=REFRESH_SECONDS)
        for task in done:
            task.result()

    async def _refresh(self) -> None:
        await asyncio.gather(*(probe() for probe in self._probes))

    async def _probe_search(self) -> None:
        if (engine := self._search()) is not None:
            await engine.probe()

    async def resources(self) -> tuple[Resource, ...]:
        """Return all resources, whether available or not."""
        gpus, families = await asyncio.gather(
            asyncio.to_thread(_gpus), asyncio.to_thread(_weights, self._settings.data_dir)
        )
        is_needed = "weights" in self._kinds
        return (
            *_embedded(),
            _resource("GPU", "weights", gpus, "weights engines at their full speed", used=is_needed),
            _resource("weights", "weights", families, "models on this machine", used=is_needed),
            *self._comfyui_resources(),
            *_chat_resources(self._chat()),
            _search_resource(self._search()),
            *self._providers(),
        )

    def _comfyui_resources(self) -> Iterator[Resource]:
        """Yield the servers that are ready as one resource, and then each server that does not respond."""
        missing = Resource(
            "ComfyUI", "comfyui", None, "images by its models", "start ComfyUI", "comfyui" in self._kinds
        )
        if self._comfyui is None or not self._comfyui.latest:
            yield missing
            return
        probes = self._comfyui.latest.values()
        ready = [probe for probe in probes if not probe.problem]
        failed = [row for probe in probes if probe.problem if (row := self._failed_comfyui(missing, probe))]
        if ready:
            where = " and ".join(f"{probe.version} at {probe.url}" for probe in ready)
            models = tuple(dict.fromkeys(model for probe in ready for model in probe.models))
            tasks = _tasks(ready[0]) or missing.unlocks
            url = ready[0].url
            yield replace(missing, found=where, state="found", url=url, models=models, unlocks=tasks)
        yield from failed if ready else failed or [missing]

    def _failed_comfyui(self, missing: Resource, probe: FoundModels) -> Resource | None:
        """Return the resource of a ComfyUI that does not respond, or None if none was expected there."""
        if probe.slow:
            reason = probe.problem.removeprefix("ComfyUI ").rstrip(".")
            how = f"wait for ComfyUI: {probe.url} {reason}"
            return replace(missing, state="slow", url=probe.url, how=how)
        outage = None if self._comfyui is None else self._comfyui.outage(probe.url)
        return None if outage is None else _unreachable(missing, probe.url, outage)

    def _providers(self) -> Iterator[Resource]:
        for spec in PROVIDERS.values():
            is_needed = "provider" in self._kinds or bool(spec.dialect)
            key = secrets.provider_key(self._settings, spec.key)
            where = f"{spec.variable} is set" if getattr(self._settings, spec.key) else "a key is stored"
            location = f"{where} ({secrets.hint(key)})" if key else None
            yield _resource(
                spec.title, "provider", location, spec.unlocks, f"set {spec.variable}", used=is_needed
            )


def _resource(
    name: str, kind: str, location: str | None, unlocks: str, how: str = "", *, used: bool
) -> Resource:
    state: Literal["found", "absent"] = "found" if location else "absent"
    return Resource(name, kind, location, unlocks, how, used, state)


def _unreachable(missing: Resource, url: str, outage: Outage) -> Resource:
    return replace(missing, state="unreachable", url=url, how=f"{outage.text} ({url})")


def _embedded() -> Iterator[Resource]:
    """Yield the embedded engines as missing if OpenCV is not installed, else nothing."""
    if importlib.util.find_spec("cv2") is None:
        unlocks, how = "images, videos and audio without weights", "install `sixfold[embedded]`"
        yield Resource("embedded", "embedded", None, unlocks, how, used=True)


def _tasks(models: FoundModels) -> str:
    """Return a description of the tasks by model, or of the missing file."""
    tasks = [
        f"{', '.join(task for task, file in models.serves.items() if file == model)} by {model}"
        for model in dict.fromkeys(models.serves.values())
    ]
    return "; ".join(tasks) or next(iter(models.missing.values()), "").rstrip(".")


def _search_resource(engine: SearchEngine | None) -> Resource:
    missing = Resource("SearXNG", "search", None, _WEB_SEARCH, "set searxng of [search]", used=True)
    if engine is None:
        return missing
    status = engine.status
    if status.state == "found":
        return replace(missing, found=f"at {status.url}", state="found", url=status.url)
    return replace(missing, how=f"{status.detail} ({status.url})", state=status.state, url=status.url)


# -- model servers ---------------------------------------------------------------------------------


def _chat_resources(servers: Sequence[ServerStatus]) -> Iterator[Resource]:
    """Yield the kinds of local servers, running or not, and then the configured servers."""
    configured = [server for server in servers if not server.discovered and _is_own_server(server)]
    for kind in local_servers.CHAT:
        how = f"start {kind.program}" if kind.program else ""
        missing = Resource(kind.title, "chat", None, _CHAT, how, used=True)
        discovered = [server for server in servers if server.kind == kind.kind and server.discovered]
        present = [
            _server_resource(missing, server)
            for server in discovered
            if server.outage is not None or server.state != "absent"
        ]
        if present or not any(_is_at(server, kind) for server in configured):
            yield from present or [missing]
    for each in configured:
        yield _server_resource(Resource(_title(each), "chat", None, _CHAT, "", used=True), each)


def _is_own_server(server: ServerStatus) -> bool:
    """Return whether a configured server belongs to the operator, or does not respond."""
    # Any server can have a provider's API; one that responds lists its models.
    if server.kind in CHAT_PROVIDERS and server.outage is None:
        return server.host in _OWN_HOSTS and bool(server.listing)
    return server.outage is not None or server.state != "absent"


def _is_at(server: ServerStatus, kind: LocalServer) -> bool:
    """Return whether a server has the local address that is probed for this kind."""
    return server.host in _OWN_HOSTS and urlsplit(server.url).port == kind.port


def _title(server: ServerStatus) -> str:
    return server.title if server.name in (server.kind, server.title) else f"{server.name} ({server.title})"


def _server_resource(missing: Resource, server: ServerStatus) -> Resource:
    if server.state == "slow":
        how = f"wait for {missing.name}: {server.url} did not respond in time"
        return replace(missing, state="slow", url=server.url, how=how)
    if server.outage is not None:
        return _unreachable(missing, server.url, server.outage)
    where = f"at {server.url}" if server.url else "in this program"
    offers = _offers(server)
    return replace(missing, found=where, state="found", url=server.url, models=server.models, unlocks=offers)


def _offers(server: ServerStatus) -> str:
    """Return a description of the tasks of a server's models, and a hint for Ollama without chat models."""
    models = server.listing
    chat = any(model.chat for model in models)
    # As in the router: a discovered model must declare that it accepts images.
    sees = any(model.vision or (model.vision is None and not server.discovered) for model in models)
    embeds = any(EMBEDDINGS in model.capabilities for model in models)
    tasks = [*(("chat", "text-llm") if chat else ()), *(("vision",) if sees else ())]
    tasks += ["embeddings"] if embeds else []
    pull = "`ollama pull qwen3` for chat" if server.kind == "ollama" and not chat else ""
    if not tasks:
        return pull or ("it has no usable model" if models else "it lists no models")
    *others, last = tasks
    place = _ON_THIS_MACHINE if server.host in _OWN_HOSTS else ""
    offers = f"{', '.join(others)} and {last}{place}" if others else f"{last}{place}"
    return f"{offers}; {pull}" if pull else offers


# -- this machine ----------------------------------------------------------------------------------


def _gpus() -> str | None:
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "Apple GPU"
    return _nvidia() or _gpu_in_topology(Path("/sys/class/kfd/kfd/topology/nodes"), "AMD GPU")


def _gpu_in_topology(nodes: Path, name: str) -> str | None:
    """Return `name` if the kernel lists a GPU with compute units, else None."""
    with contextlib.suppress(OSError, ValueError):
        for properties in nodes.glob("*/properties"):
            values = dict(
                line.split(maxsplit=1) for line in properties.read_text().splitlines() if " " in line
            )
            if int(values.get("simd_count", "0")) > 0:
                return name
    return None


def _nvidia() -> str | None:
    return ", ".join(f"{gpu.name}, {gpu.total_bytes / _GIB:.0f} GiB" for gpu in nvml.list_gpus()) or None


def _weights(data_dir: Path) -> str | None:
    """Return the families with weights in the data folder, separated by commas, or None."""
    folders = (data_dir / "weights").glob("*/")
    return ", ".join(sorted(path.name for path in folders if model_files.has_visible(path))) or None
