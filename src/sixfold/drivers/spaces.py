"""Gradio spaces on this machine, each with one worker in a container or a sandbox.

A space is started for a run, called by the same engine as hosted spaces, and stopped when it is idle. In a
sandbox, the space is reachable only through a socket of the server; in a container, it has a separate
network.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from sixfold import settings
from sixfold.clients import bubblewrap
from sixfold.clients.bubblewrap import Sandbox
from sixfold.clients.containers import ContainerSpec
from sixfold.clients.gradio.folders import PORT
from sixfold.clients.gradio.server import GradioServer, SpaceError
from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.core.workers.ports import WorkerSpec
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.core.workers.remote_engines import RemoteLost
from sixfold.drivers import forkserver, sandbox
from sixfold.drivers.container import ContainerDriver, ContainerHandle, finish_watches
from sixfold.drivers.remote import RemoteWorker
from sixfold.drivers.temp_dirs import OwnedTempDir
from sixfold.engines.providers.gradio import GradioEngine
from sixfold.net.clients import limited_client
from sixfold.worker import protocol

# The factory name that selects this driver.
KIND = "space-here"
START_SECONDS = 300.0
_LOOK_SECONDS = 0.05
_GONE_SECONDS = 0.2
_LOG_LINES = 20
_OUTPUT_BYTES, _LINE_BYTES = 64 * 1024, 4096
_SERVING = {"GRADIO_SERVER_PORT": str(PORT), "GRADIO_ANALYTICS_ENABLED": "False"}
_FAILURES = (SpaceError, httpx.HTTPError, OSError)


class SpaceTarget(msgspec.Struct, frozen=True):
    """The location of a space: a container image, or the folder, file and packages for a sandbox."""

    image: str = ""
    folder: str = ""
    app: str = ""
    packages: str = ""
    network: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SpaceTarget:
        """Return the target described by an engine's options."""
        return cls(**{name: options[name] for name in cls.__struct_fields__ if name in options})


class _LocalSpace:
    """Host services for one local space, without credentials or downloads from other hosts."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.guarded = client

    def key(self, name: str) -> str:
        return ""

    async def download(self, url: str, target: Path, *, max_bytes: int) -> str:
        raise EngineError("The space returned a file from another host.")


class _StartedSpace:
    def __init__(self, handle: ContainerHandle, client: httpx.AsyncClient) -> None:
        self.handle = handle
        self.client = client

    async def close(self) -> None:
        await self.client.aclose()
        await self.handle.remove()


class _SpaceEngine:
    """The engine of one worker, which stops its space when closed."""

    def __init__(self, started: _StartedSpace, options: Mapping[str, Any]) -> None:
        self.name, self.version = "space", str(options.get("version", "1"))
        self._started = started
        engine_options = {
            name: value for name, value in options.items() if name not in SpaceTarget.__struct_fields__
        }
        engine_options |= {"base": started.handle.address, "trusted": True}
        self._engine = GradioEngine(_LocalSpace(started.client), **engine_options)

    async def run(self, task: Task, context: Context) -> Result:
        """Run the task in the space; raises `RemoteLost` if the space has ended."""
        try:
            return await self._engine.run(task, context)
        except EngineError as error:
            if reason := await self._gone():
                raise RemoteLost(f"was lost: the space {reason}") from error
            raise

    async def _gone(self) -> str:
        """Return how the space ended, or an empty string.

        The end is known shortly after the connections break.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_SECONDS):
                return await self._started.handle.wait()
        return ""

    async def close(self) -> None:
        """Stop the space. Idempotent."""
        await self._started.close()


class SpaceDriver:
    name = KIND

    def __init__(
        self,
        containers: ContainerDriver,
        *,
        failpoints: Mapping[str, protocol.Failpoint] | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.failpoints: dict[str, protocol.Failpoint] = dict(failpoints or {})
        self.workers: set[RemoteWorker] = set()
        self._containers = containers
        containers.guests.append(self.close)
        self._environ = settings.worker_environment()
        self._start_seconds = start_seconds
        self._watches: set[asyncio.Task[None]] = set()

    async def start(self, spec: WorkerSpec) -> RemoteWorker:
        """Start a space and return its worker; raises `WorkerStartFailed` with its output."""
        started = await self._started(SpaceTarget.of(spec.options), spec.memory_bytes, spec.start_seconds)
        # A space continues to run a function that was canceled, and later runs would wait for it.
        worker = RemoteWorker(self, spec, _SpaceEngine(started, spec.options), aborts=False)
        self.workers.add(worker)
        watch = asyncio.create_task(_watch(started.handle, worker))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return worker

    async def inspect(self, target: SpaceTarget) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
        """Start a space to read its `/config`, `/info` and prefix. Raises `WorkerStartFailed`."""
        started = await self._started(target, self._containers.memory_bytes, 0)
        try:
            server = GradioServer(started.client, started.handle.address)
            config, info = await server.describe()
        except _FAILURES as failure:
            raise StartFailed(str(failure)) from failure
        finally:
            await started.close()
        return config, info, server.prefix

    async def close(self) -> None:
        """Stop every space. Idempotent."""
        for worker in tuple(self.workers):
            await worker.kill()
        await finish_watches(self._watches)

    async def _started(self, target: SpaceTarget, memory_bytes: int, seconds: float) -> _StartedSpace:
        handle, client = await self._start_handle(target, memory_bytes)
        try:
            await _ready(GradioServer(client, handle.address), handle, max(seconds, self._start_seconds))
        except BaseException as error:
            log = await handle.log()
            await client.aclose()
            await handle.remove()
            if isinstance(error, StartFailed):
                raise StartFailed("\n".join(part for part in (str(error), log) if part)) from error
            raise
        return _StartedSpace(handle, client)

    async def _start_handle(
        self, target: SpaceTarget, memory_bytes: int
    ) -> tuple[ContainerHandle, httpx.AsyncClient]:
        if target.image:
            environment = {**_SERVING, "GRADIO_SERVER_NAME": "0.0.0.0"}  # noqa: S104 - inside its own network
            container = ContainerSpec(
                target.image, memory_bytes, network=target.network, port=PORT, environment=environment
            )
            return await self._containers.run_container(container), limited_client()
        if fault := await asyncio.to_thread(bubblewrap.fault):
            raise StartFailed(f"it requires a sandbox, and {fault}")
        handle = await SandboxHandle.start(target, memory_bytes, self._environ)
        return handle, limited_client(socket=handle.socket)


async def _ready(server: GradioServer, handle: ContainerHandle, seconds: float) -> None:
    """Wait until the application responds; raises `StartFailed` if the application ends or takes too long."""
    exit_task = asyncio.ensure_future(handle.wait())
    try:
        async with asyncio.timeout(seconds):
            while not exit_task.done():
                with contextlib.suppress(*_FAILURES):
                    await server.describe()
                    return
                await asyncio.wait({exit_task}, timeout=_LOOK_SECONDS)
        raise StartFailed(f"the space {exit_task.result()} before it responded")
    except TimeoutError as error:
        raise StartFailed(f"the space did not respond within {seconds:g} seconds") from error
    finally:
        exit_task.cancel()
        await asyncio.gather(exit_task, return_exceptions=True)


async def _watch(handle: ContainerHandle, worker: RemoteWorker) -> None:
    await worker.end(f"went away: the space {await handle.wait()}")


class SandboxHandle:
    """A space in a sandbox, with the interface of a container."""

    address = "http://space"

    def __init__(self, process: asyncio.subprocess.Process, folder: OwnedTempDir) -> None:
        self.socket = folder.path / "socket"
        self._process = process
        self._folder = folder
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._reading = asyncio.create_task(self._read())
        self._end = asyncio.create_task(sandbox.wait(process, folder.path))

    @classmethod
    async def start(cls, target: SpaceTarget, memory_bytes: int, environ: Mapping[str, str]) -> SandboxHandle:
        """Start the process; the application begins to listen later."""
        folder = await asyncio.to_thread(OwnedTempDir)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(folder.path / "socket"))
                listener.listen(64)
                work = folder.path / "work"
                work.mkdir(mode=0o700)
                return cls(
                    await _start_sandbox(target, memory_bytes, environ, listener.fileno(), work), folder
                )
        except BaseException:
            folder.leave()
            raise

    async def wait(self) -> str:
        return await asyncio.shield(self._end)

    async def log(self) -> str:
        return "\n".join(self._lines)

    async def remove(self) -> None:
        """Kill the process and remove its folder. Idempotent."""
        if self._process.returncode is None:
            sandbox.kill(self._process)
        await self._end
        await self._reading
        await asyncio.to_thread(self._folder.leave)

    async def _read(self) -> None:
        # The output is read to its end, because a full pipe would stop the space.
        assert self._process.stdout is not None  # noqa: S101 - created with a pipe
        partial = b""
        while data := await self._process.stdout.read(_OUTPUT_BYTES):
            *lines, partial = (partial + data).split(b"\n")
            # A progress bar is one line, of which its end is shown.
            partial = partial[-_LINE_BYTES:]
            last = lines[-_LOG_LINES:]
            self._lines.extend(line[-_LINE_BYTES:].decode(errors="replace").rstrip() for line in last)
        if partial:
            self._lines.append(partial.decode(errors="replace").rstrip())


async def _start_sandbox(
    target: SpaceTarget, memory_bytes: int, environ: Mapping[str, str], listener: int, work: Path
) -> asyncio.subprocess.Process:
    folders = [Path(target.folder), *([Path(target.packages)] if target.packages else [])]
    ours = forkserver.environment(environ)
    path = os.pathsep.join(part for part in (target.packages, target.folder, ours["PYTHONPATH"]) if part)
    homes = dict.fromkeys(("HOME", "TMPDIR", "GRADIO_TEMP_DIR"), str(work))
    arguments = [
        sys.executable,
        "-m",
        "sixfold.worker.sandbox_proxy",
        str(listener),
        str(PORT),
        str(memory_bytes),
    ]
    arguments += [sys.executable, str(Path(target.folder) / target.app)]
    return await asyncio.create_subprocess_exec(
        *bubblewrap.command(Sandbox(tuple(folders), (work,), at=Path(target.folder))),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**ours, **_SERVING, **homes, "GRADIO_SERVER_NAME": "127.0.0.1", "PYTHONPATH": path},
        pass_fds=(listener,),
        start_new_session=True,
    )
