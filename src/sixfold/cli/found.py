"""What this machine has that could serve models, and what each of those things unlocks.

Little here waits: model servers get 200 ms, all at once, and a ComfyUI that is there a second to say what
it has. A GPU is asked through its driver's own library, as importing torch for that would take seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sixfold.settings import Settings
from sixfold.store import secrets
from sixfold.upstreams import local, nvml
from sixfold.upstreams.local import LocalServer

if TYPE_CHECKING:
    from sixfold.engines.remote.comfyui_stock import Found

PROBE_SECONDS = 0.2
COMFYUI_SECONDS = 1.0  # it is asked for its models too, once it is known to be there
_GIB = 2**30
_MAX_ANSWER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing that was looked for. `used` says whether an engine of this version can use it."""

    name: str
    kind: str
    found: str | None
    unlocks: str
    how: str
    used: bool = False

    def record(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


_PROVIDERS = (
    ("fal", "fal_key", "FAL_KEY", "picture, film and speech models by fal"),
    ("Replicate", "replicate_api_token", "REPLICATE_API_TOKEN", "pictures, films and speech at Replicate"),
    ("OpenAI", "openai_api_key", "OPENAI_API_KEY", "chat, pictures and speech by OpenAI"),
    ("Anthropic", "anthropic_api_key", "ANTHROPIC_API_KEY", "chat by Anthropic"),
)


async def look(configured: Settings, engine_kinds: Iterable[str]) -> tuple[Thing, ...]:
    """Everything that is looked for, whether it is there or not."""
    used = frozenset(engine_kinds)
    asked = (_answers(server, configured) for server in (local.CHAT if configured.probe else ()))
    cards, comfyui, urls = await asyncio.gather(
        asyncio.to_thread(_graphics), _comfyui(configured, "comfyui" in used), asyncio.gather(*asked)
    )
    weights = _weights(configured.data_dir)
    machine = (
        Thing("GPU", "weights", cards, "weights engines at their full speed", "", "weights" in used),
        Thing("weights", "weights", weights, "models on this machine", "", "weights" in used),
    )
    servers = (
        Thing(
            server.title,
            "chat",
            f"at {url}" if url else None,
            "free chat, and text-llm",
            f"start {server.program}" if server.program else "",
            used=True,
        )
        for server, url in zip(local.CHAT, urls or [None] * len(local.CHAT), strict=True)
    )
    providers = (
        Thing(
            name,
            "provider",
            _key(configured, field, variable),
            unlocks,
            f"set {variable}",
            "provider" in used or name.lower() in used,
        )
        for name, field, variable, unlocks in _PROVIDERS
    )
    return (*_embedded(), *machine, comfyui, *servers, *providers)


def _embedded() -> Iterator[Thing]:
    """The engines that come with the program, only where what they run on does not."""
    if importlib.util.find_spec("cv2") is None:
        unlocks, how = "pictures, films and sounds without weights", "install `sixfold[embedded]`"
        yield Thing("embedded", "embedded", None, unlocks, how, used=True)


def _key(configured: Settings, field: str, variable: str) -> str | None:
    """Where a provider's key comes from, with the little of it that may be shown."""
    key = secrets.provider_key(configured, field)
    if not key:
        return None
    where = f"{variable} is set" if getattr(configured, field) else "a key is stored"
    return f"{where} ({secrets.hint(key)})"


# -- model servers -------------------------------------------------------------------------------


async def _comfyui(configured: Settings, used: bool) -> Thing:
    """What a ComfyUI serves, by its version and its models; a configured one is asked in any case."""
    missing = Thing("ComfyUI", "comfyui", None, "pictures by its models", "start ComfyUI", used)
    url = configured.comfyui_url
    if not url:
        url = await _answers(local.COMFYUI, configured) if configured.probe else None
    if not url:
        return missing
    there = await _probed(url)
    if there.problem:
        return replace(missing, how=f"{there.problem.rstrip('.')} ({url})")
    models = dict.fromkeys(there.serves.values())
    done = [
        f"{' and '.join(task for task, by in there.serves.items() if by == model)} by {model}"
        for model in models
    ]
    said = "; ".join(done) or next(iter(there.missing.values()), missing.unlocks).rstrip(".")
    return replace(missing, found=f"{there.version} at {there.url}", unlocks=said)


async def _probed(url: str) -> Found:
    # Imported here, as most starts find no ComfyUI.
    import httpx

    from sixfold.engines.remote import comfyui

    async with httpx.AsyncClient(trust_env=False) as client:
        return await comfyui.probe(client, url, seconds=COMFYUI_SECONDS)


async def _answers(server: LocalServer, configured: Settings) -> str | None:
    """The address of a server that answers, or None; another program on its port is none."""
    if server.port in {configured.port, configured.comfyui_port}:
        return None  # that is us
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            answer = await _get(server.port, server.path)
    except (OSError, TimeoutError):
        return None
    head, _, body = answer.partition(b"\r\n\r\n")
    fits = b" 200 " in head[:16] and server.answers_with(body)
    return server.url if fits else None


async def _get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nX-Sixfold-Hop: 1\r\n\r\n".encode())
        answer = b""
        while len(answer) < _MAX_ANSWER_BYTES and (piece := await reader.read(_MAX_ANSWER_BYTES)):
            answer += piece
        return answer
    finally:
        writer.close()


# -- this machine --------------------------------------------------------------------------------


def _graphics() -> str | None:
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "Apple GPU"
    return _nvidia() or _listed(Path("/sys/class/kfd/kfd/topology/nodes"), "AMD GPU")


def _listed(nodes: Path, name: str) -> str | None:
    """A GPU that the kernel lists with some compute units."""
    with contextlib.suppress(OSError, ValueError):
        for properties in nodes.glob("*/properties"):
            facts = dict(
                line.split(maxsplit=1) for line in properties.read_text().splitlines() if " " in line
            )
            if int(facts.get("simd_count", "0")) > 0:
                return name
    return None


def _nvidia() -> str | None:
    """Name and memory of the NVIDIA cards."""
    return ", ".join(f"{card.name}, {card.total_bytes / _GIB:.0f} GiB" for card in nvml.cards()) or None


def _weights(data_dir: Path) -> str | None:
    """The families whose weights lie in the data folder."""
    with contextlib.suppress(OSError):
        families = sorted(path.name for path in (data_dir / "weights").iterdir() if path.is_dir())
        return ", ".join(families) or None
    return None
