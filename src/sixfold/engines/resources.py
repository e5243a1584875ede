"""What this installation can run engines on: a GPU, weights, ComfyUI, model servers, provider keys.

It reports what the engines themselves were last told: it sends no requests of its own. A GPU is read through
its driver's library, since importing torch for that takes seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import platform
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from sixfold.clients import local_servers, nvml
from sixfold.clients.chat.servers import ServerStatus
from sixfold.clients.hosts import LOOPBACK
from sixfold.clients.local_servers import LocalServer
from sixfold.core.catalog.availability import Resource
from sixfold.core.gateway.capabilities import EMBEDDINGS
from sixfold.engines.providers.comfyui.availability import ComfyAvailability
from sixfold.engines.providers.comfyui.capabilities import FoundModels
from sixfold.settings import Settings
from sixfold.store import secrets

_REFRESH_SECONDS = 2.0
_GIB = 2**30
_HERE = " on this machine"
_CHAT = f"chat, text-llm and vision{_HERE}"
_OWN_HOSTS = frozenset({"", LOOPBACK, "localhost", "::1"})  # the empty one is that of models in this program
_PROVIDERS = (
    ("fal", "fal_key", "FAL_KEY", "image, video and speech models by fal"),
    ("Replicate", "replicate_api_token", "REPLICATE_API_TOKEN", "images, videos and speech at Replicate"),
    ("OpenAI", "openai_api_key", "OPENAI_API_KEY", "chat, images and speech by OpenAI"),
    ("Anthropic", "anthropic_api_key", "ANTHROPIC_API_KEY", "chat by Anthropic"),
)
_PROVIDER_KINDS = frozenset({"openai", "anthropic"})
Look = Callable[[], Awaitable[object]]


class InstalledResources:
    """Reports the resources of one installation.

    `kinds` are the kinds of engines in the catalog, `comfyui` and `chat` know which servers answer, and
    `looks` make both look again.
    """

    def __init__(
        self,
        settings: Settings,
        kinds: Iterable[str],
        comfyui: ComfyAvailability | None,
        chat: Callable[[], Sequence[ServerStatus]],
        looks: Sequence[Look],
    ) -> None:
        self._settings = settings
        self._kinds = frozenset(kinds)
        self._comfyui = comfyui
        self._chat = chat
        self._looks = looks
        self._refreshing: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Look at everything again; callers at the same time share one look, and wait 2 s at most."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="refresh-resources")
        done, _ = await asyncio.wait([self._refreshing], timeout=_REFRESH_SECONDS)
        for task in done:
            task.result()

    async def _refresh(self) -> None:
        await asyncio.gather(*(look() for look in self._looks))

    async def resources(self) -> tuple[Resource, ...]:
        """Return everything that is looked for, whether it is there or not."""
        cards, families = await asyncio.gather(
            asyncio.to_thread(_graphics), asyncio.to_thread(_weights, self._settings.data_dir)
        )
        used = "weights" in self._kinds
        return (
            *_embedded(),
            _resource("GPU", "weights", cards, "weights engines at their full speed", used=used),
            _resource("weights", "weights", families, "models on this machine", used=used),
            self._comfyui_resource(),
            *_chat_resources(self._chat()),
            *self._providers(),
        )

    def _comfyui_resource(self) -> Resource:
        missing = Resource(
            "ComfyUI", "comfyui", None, "images by its models", "start ComfyUI", "comfyui" in self._kinds
        )
        latest = self._comfyui.latest if self._comfyui is not None else {}
        configured = self._settings.comfyui_url.rstrip("/")
        found = next((each for each in latest.values() if not each.problem), None)
        found = found or next(iter(latest.values()), None)
        if found is None:
            return missing
        if found.slow:
            reason = found.problem.removeprefix("ComfyUI ").rstrip(".")
            how = f"wait for ComfyUI: {found.url} {reason}"
            return replace(missing, state="slow", url=found.url, how=how)
        if found.problem:
            return (
                replace(missing, how=f"{found.problem.rstrip('.')} ({found.url})") if configured else missing
            )
        where = f"{found.version} at {found.url}"
        done = _tasks(found) or missing.unlocks
        return replace(missing, found=where, state="found", url=found.url, models=found.models, unlocks=done)

    def _providers(self) -> Iterator[Resource]:
        for name, field, variable, unlocks in _PROVIDERS:
            used = "provider" in self._kinds or name.lower() in self._kinds
            key = secrets.provider_key(self._settings, field)
            where = f"{variable} is set" if getattr(self._settings, field) else "a key is stored"
            found = f"{where} ({secrets.hint(key)})" if key else None
            yield _resource(name, "provider", found, unlocks, f"set {variable}", used=used)


def _resource(
    name: str, kind: str, found: str | None, unlocks: str, how: str = "", *, used: bool
) -> Resource:
    state: Literal["found", "absent"] = "found" if found else "absent"
    return Resource(name, kind, found, unlocks, how, used, state)


def _embedded() -> Iterator[Resource]:
    """Yield the embedded engines only where what they run on is not installed."""
    if importlib.util.find_spec("cv2") is None:
        unlocks, how = "images, videos and sounds without weights", "install `sixfold[embedded]`"
        yield Resource("embedded", "embedded", None, unlocks, how, used=True)


def _tasks(found: FoundModels) -> str:
    """Say which tasks a ComfyUI does with which model, or which file it lacks."""
    done = [
        f"{' and '.join(task for task, by in found.serves.items() if by == model)} by {model}"
        for model in dict.fromkeys(found.serves.values())
    ]
    return "; ".join(done) or next(iter(found.missing.values()), "").rstrip(".")


# -- model servers ---------------------------------------------------------------------------------


def _chat_resources(servers: Sequence[ServerStatus]) -> Iterator[Resource]:
    """Yield a line for each kind of server that is looked for, then those that the configuration names."""
    listed = [each for each in servers if not each.discovered and _is_own_server(each)]
    for kind in local_servers.CHAT:
        how = f"start {kind.program}" if kind.program else ""
        missing = Resource(kind.title, "chat", None, _CHAT, how, used=True)
        there = [each for each in servers if each.kind == kind.kind and each.discovered]
        present = [_server_resource(missing, each) for each in there if each.state != "absent"]
        if present or not any(_is_at(each, kind) for each in listed):
            yield from present or [missing]
    for each in listed:
        yield _server_resource(Resource(_title(each), "chat", None, _CHAT, "", used=True), each)


def _is_own_server(server: ServerStatus) -> bool:
    """Whether a configured server is one of the operator's own, and there."""
    if server.kind in _PROVIDER_KINDS:  # any server that speaks such a protocol, which shows by its models
        return server.host in _OWN_HOSTS and bool(server.listing)
    return server.state != "absent"


def _is_at(server: ServerStatus, kind: LocalServer) -> bool:
    """Whether a server is one that would be found as this kind on this machine."""
    return server.host in _OWN_HOSTS and urlsplit(server.url).port == kind.port


def _title(server: ServerStatus) -> str:
    return server.title if server.name in (server.kind, server.title) else f"{server.name} ({server.title})"


def _server_resource(missing: Resource, server: ServerStatus) -> Resource:
    if server.state == "slow":
        how = f"wait for {missing.name}: {server.url} did not answer in time"
        return replace(missing, state="slow", url=server.url, how=how)
    where = f"at {server.url}" if server.url else "in this program"
    offers = _offers(server)
    return replace(missing, found=where, state="found", url=server.url, models=server.models, unlocks=offers)


def _offers(server: ServerStatus) -> str:
    """Say for what the models of a server can be asked, and how Ollama gets one for conversations."""
    models = server.listing
    chat = any(model.chat for model in models)
    # As in the router: one that was found has to say that it accepts images.
    sees = any(model.vision or (model.vision is None and not server.discovered) for model in models)
    embeds = any(EMBEDDINGS in model.capabilities for model in models)
    able = [*(("chat", "text-llm") if chat else ()), *(("vision",) if sees else ())]
    able += ["embeddings"] if embeds else []
    pull = "`ollama pull qwen3` for chat" if server.kind == "ollama" and not chat else ""
    if not able:
        return pull or ("no model of use here" if models else "no model is listed")
    *most, last = able
    place = _HERE if server.host in _OWN_HOSTS else ""
    offers = f"{', '.join(most)} and {last}{place}" if most else f"{last}{place}"
    return f"{offers}; {pull}" if pull else offers


# -- this machine ----------------------------------------------------------------------------------


def _graphics() -> str | None:
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "Apple GPU"
    return _nvidia() or _listed(Path("/sys/class/kfd/kfd/topology/nodes"), "AMD GPU")


def _listed(nodes: Path, name: str) -> str | None:
    """Return `name` where the kernel lists a GPU with compute units."""
    with contextlib.suppress(OSError, ValueError):
        for properties in nodes.glob("*/properties"):
            facts = dict(
                line.split(maxsplit=1) for line in properties.read_text().splitlines() if " " in line
            )
            if int(facts.get("simd_count", "0")) > 0:
                return name
    return None


def _nvidia() -> str | None:
    return ", ".join(f"{card.name}, {card.total_bytes / _GIB:.0f} GiB" for card in nvml.cards()) or None


def _weights(data_dir: Path) -> str | None:
    """Return the families whose weights lie in the data folder."""
    with contextlib.suppress(OSError):
        families = sorted(path.name for path in (data_dir / "weights").iterdir() if path.is_dir())
        return ", ".join(families) or None
    return None
