"""Workers as containers on this machine: Cog images on Docker or Podman.

Each worker is one container, which is called over HTTP (`clients.cog`). If the container is killed, the
worker is lost and its run is retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import shutil
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec

from sixfold.clients import cog, provider_client
from sixfold.clients.cog import CogClient
from sixfold.clients.containers import ContainersFailed, ContainerSpec, DockerClient, find_socket
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.engines import EngineError
from sixfold.core.media import mounts
from sixfold.core.workers.ports import WorkerSpec
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.drivers.remote import RemoteWorker
from sixfold.engines.providers.cog import CogContainer, CogEngine
from sixfold.net.clients import limited_client
from sixfold.worker import protocol

# The kind of these engines in the catalog, and the factory name that selects this driver.
KIND = "container"
UNLOCK = "start Docker, or Podman's socket (`systemctl start podman.socket`, SIXFOLD_CONTAINER_SOCKET)"
START_SECONDS = 300.0
_LOOK_SECONDS = 5.0
_END_SECONDS = 10.0
_NAME = re.compile(r"[^a-z0-9]+")
_MAX_TITLE_CHARS = 200


class ContainerHandle(Protocol):
    """A running container, or a space in a sandbox; `address` is the origin of its server."""

    address: str

    async def wait(self) -> str:
        """Wait until the container ends and return how it ended."""
        ...

    async def log(self) -> str:
        """Return the last lines of the container's output."""
        ...

    async def remove(self) -> None:
        """Kill and remove the container. Idempotent."""
        ...


class ContainerEngine(Protocol):
    """Starts containers: `clients.containers.DockerClient`, or a fake of it."""

    async def image_id(self, image: str) -> str:
        """Return the content id of an image, pulled if necessary; raises `ContainersFailed`."""
        ...

    async def has(self, image: str) -> bool:
        """Return whether an image is present; raises `ContainersFailed`."""
        ...

    async def start(self, name: str, spec: ContainerSpec, /) -> ContainerHandle:
        """Start a container; raises `ContainersFailed`."""
        ...

    async def build(self, image: str, context: bytes) -> None:
        """Build an image from a tar archive; raises `ContainersFailed`."""
        ...

    async def tidy(self) -> int:
        """Remove the containers left by an earlier server; return the number of removed containers."""
        ...

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        ...


class _StartedContainer(msgspec.Struct):
    handle: ContainerHandle
    server: CogClient
    image_id: str
    document: Mapping[str, Any]
    folder: Path = msgspec.field(default_factory=Path)


class ContainerDriver:
    """Starts a container for each worker.

    `engine` returns Docker or Podman, or None if neither is available. `memory_bytes` is the limit for images
    and spaces that are started only to read their schema, 0 for none.

    A spec's options are `image`, and `cpus`, `network`, `gpus` and `environment` as in `ContainerSpec`.
    """

    name = KIND

    def __init__(
        self,
        engine: Callable[[], ContainerEngine | None],
        *,
        failpoints: Mapping[str, protocol.Failpoint] | None = None,
        start_seconds: float = START_SECONDS,
        memory_bytes: int = 0,
    ) -> None:
        self.memory_bytes = memory_bytes
        self.failpoints: dict[str, protocol.Failpoint] = dict(failpoints or {})
        self.workers: set[RemoteWorker] = set()
        # Functions that stop containers of other drivers before this driver closes.
        self.guests: list[Callable[[], Awaitable[None]]] = []
        self._find = engine
        self._engine: ContainerEngine | None = None
        self._tidy = False
        self._opening = asyncio.Lock()
        self._client: httpx.AsyncClient | None = None
        self._start_seconds = start_seconds
        self._watches: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self, spec: WorkerSpec) -> RemoteWorker:
        """Start a container and load its model; raises `WorkerStartFailed` with its output."""
        if self._closed:
            raise StartFailed("the driver is closed")
        container_spec = _spec_of(spec.options, spec.memory_bytes)
        seconds = max(self._start_seconds, spec.start_seconds)
        started = await self._started(container_spec, spec.scratch, seconds)
        engine = CogEngine(self._place(started))
        worker = RemoteWorker(self, spec, engine)
        engine.end_worker = worker.end
        self.workers.add(worker)
        watch = asyncio.create_task(_watch(started.handle, worker))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return worker

    @property
    def can_start(self) -> bool:
        """Whether Docker or Podman is available."""
        return self._found() is not None

    async def standing(self, image: str) -> EngineStatus:
        """Return whether a container of an image could be started now, without pulling the image."""
        engine = self._found()
        if engine is None:
            return EngineStatus(False, "neither Docker nor Podman was found")
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                is_present = await engine.has(image)
        except TimeoutError:
            return EngineStatus(False, "Docker or Podman does not respond")
        except ContainersFailed as failed:
            return EngineStatus(False, str(failed))
        return (
            EngineStatus(True, f"the image {image}")
            if is_present
            else EngineStatus(False, f"the image {image} is not present")
        )

    async def inspect(
        self, image: str, scratch: Path, *, name: str = "", hardware: str | None = None
    ) -> dict[str, Any]:
        """Start an image, read its schema, and return its catalog document; raises `EngineError`.

        The document contains an engine `cog` and one model, named after the image unless `name` is given, as
        `CustomModels.put` expects.
        """
        try:
            spec = ContainerSpec(image, self.memory_bytes)
            started = await self._started(spec, scratch, self._start_seconds)
        except StartFailed as failed:
            raise EngineError(f"{image} cannot be used: {failed}.") from failed
        try:
            return _document(image, started, name or name_of(image), hardware)
        except cog.CogUnreachable as broken:
            raise EngineError(f"{image} cannot be used: {broken}.") from broken
        finally:
            await self._place(started).remove()

    async def run_container(self, spec: ContainerSpec) -> ContainerHandle:
        """Start a container of any kind; raises `WorkerStartFailed`."""
        try:
            engine = await self._opened()
            await engine.image_id(spec.image)
            return await engine.start(f"sixfold-{uuid.uuid4().hex[:16]}", spec)
        except ContainersFailed as failed:
            raise StartFailed(str(failed)) from failed

    async def tidy(self) -> None:
        """Remove the containers that an earlier server left, if Docker or Podman is available."""
        if self.can_start:
            with contextlib.suppress(ContainersFailed):
                await self._opened()

    async def build(self, image: str, context: bytes) -> None:
        """Build an image from a tar archive; raises `EngineError` with the build's message."""
        try:
            await (await self._opened()).build(image, context)
        except (ContainersFailed, StartFailed) as failed:
            raise EngineError(f"{image} cannot be built: {failed}") from failed

    async def close(self) -> None:
        """Remove every container. Idempotent."""
        self._closed = True
        for leave in self.guests:
            await leave()
        for worker in tuple(self.workers):
            await worker.kill()
        await finish_watches(self._watches)
        if self._client is not None:
            await self._client.aclose()
        # A repeated or concurrent call must not use the client that this one closes.
        engine, self._engine = self._engine, None
        if engine is not None:
            if self._tidy:
                # Containers whose start was interrupted.
                with contextlib.suppress(ContainersFailed):
                    await engine.tidy()
            await engine.close()

    def _found(self) -> ContainerEngine | None:
        self._engine = self._engine or self._find()
        return self._engine

    async def _opened(self) -> ContainerEngine:
        """Return the engine; the first call removes containers left by an earlier server."""
        async with self._opening:
            engine = self._found()
            if engine is None:
                raise StartFailed(f"Docker or Podman does not respond: {UNLOCK}")
            if not self._tidy:
                await engine.tidy()
                self._tidy = True
            return engine

    async def _started(self, spec: ContainerSpec, scratch: Path, seconds: float) -> _StartedContainer:
        name = f"sixfold-{uuid.uuid4().hex[:16]}"
        folder = await asyncio.to_thread(_folder, scratch, name)
        handle: ContainerHandle | None = None
        try:
            engine = await self._opened()
            image_id = await engine.image_id(spec.image)
            handle = await engine.start(name, msgspec.structs.replace(spec, folders={mounts.PATH: folder}))
            # Opened here and not in the constructor: a client loads all root certificates, which takes 20 ms.
            self._client = self._client or limited_client()
            server = CogClient(self._client, handle.address)
            await _ready(server, handle, seconds)
            return _StartedContainer(handle, server, image_id, await server.document(), folder)
        except BaseException as error:
            log = await handle.log() if handle is not None else ""
            if handle is not None:
                await handle.remove()
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, ContainersFailed | cog.CogUnreachable | StartFailed):
                raise StartFailed("\n".join(part for part in (str(error), log) if part)) from error
            raise

    def _place(self, started: _StartedContainer) -> CogContainer:
        async def remove() -> None:
            await started.handle.remove()
            await asyncio.to_thread(shutil.rmtree, started.folder, ignore_errors=True)

        joined = cog.concatenated(started.document)
        return CogContainer(started.server, started.image_id, started.folder, remove, joined)


def _folder(scratch: Path, name: str) -> Path:
    """Create a folder for mounted files that the container's user can read."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = scratch.absolute() / f"{name}.artifacts"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


async def _ready(server: CogClient, handle: ContainerHandle, seconds: float) -> None:
    """Wait until the model is loaded.

    Raises `CogUnreachable`, and `StartFailed` if the container ends or loading takes too long.
    """
    loading = asyncio.create_task(server.ready())
    exit_task = asyncio.create_task(handle.wait())
    try:
        finished, _ = await asyncio.wait(
            {loading, exit_task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if loading in finished:
            loading.result()
        elif exit_task in finished:
            raise StartFailed(f"the container {exit_task.result()} before the model was loaded")
        else:
            raise StartFailed(f"the model was not loaded within {seconds:g} seconds")
    finally:
        loading.cancel()
        exit_task.cancel()
        await asyncio.gather(loading, exit_task, return_exceptions=True)


async def finish_watches(watches: set[asyncio.Task[None]]) -> None:
    """Wait for the tasks that clean up after ended workers, then cancel those that remain."""
    for late in (await asyncio.wait(watches, timeout=_END_SECONDS))[1] if watches else ():
        late.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


async def _watch(handle: ContainerHandle, worker: RemoteWorker) -> None:
    reason = await handle.wait()
    with contextlib.suppress(ContainersFailed):
        await worker.end(f"went away: its container {reason}")


def _spec_of(options: Mapping[str, Any], memory_bytes: int) -> ContainerSpec:
    allowed = {"image", "cpus", "network", "gpus", "environment", "temporary_bytes"}
    if unknown := options.keys() - allowed:
        raise StartFailed(f"container option {min(unknown)!r} is not supported")
    try:
        return ContainerSpec(memory_bytes=memory_bytes, **options)
    except TypeError as error:
        raise StartFailed("the container option `image` is required") from error


# -- an image as a model of the catalog ----------------------------------------------------------------


def name_of(image: str) -> str:
    """Return the model name for an image: `host/owner/sharpen:2` gives `sharpen`."""
    last = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return _NAME.sub("-", last.lower()).strip("-") or "model"


def _document(image: str, started: _StartedContainer, name: str, hardware: str | None) -> dict[str, Any]:
    info = provider_client.mapping(started.document.get("info"))
    title = provider_client.text_of(info.get("title"))[:_MAX_TITLE_CHARS] or name
    engine = {
        "factory": KIND,
        "kind": KIND,
        "version": started.image_id[:16] or "1",
        "quality": "full",
        "concurrency": 1,
        "idle_seconds": 300,
        "start_seconds": START_SECONDS,
        "unlock": f"{UNLOCK} and pull the image (`docker pull {image}`)",
        "options": {"image": image},
    }
    model = {
        "title": name if title == "Cog" else title,
        "description": f"The container image {image}.",
        "output_kind": cog.output_kind(started.document),
        "price": "container-time",
        "inputs": cog.inputs(started.document),
        "engines": ["cog"],
        **({"hardware": hardware} if hardware else {}),
    }
    return {"engines": {"cog": engine}, "models": {name: model}}


def open_engine(socket: Path | None, data_dir: Path, process: int = 0) -> DockerClient | None:
    """Return a client of Docker or Podman, or None without a socket.

    The client is for one process of the server with this data folder. Each process removes the containers
    that the process of the same number has left, because those of the other processes may be running.
    """
    path = find_socket(socket)
    name = f"{data_dir.absolute()}:{process}" if process else str(data_dir.absolute())
    owner = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return None if path is None else DockerClient(path, owner)
