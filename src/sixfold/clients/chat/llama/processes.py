"""Processes of loaded models: starting, sharing between requests, stopping when idle."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sixfold import open_files, settings
from sixfold.clients.chat.llama.files import GgufModel
from sixfold.clients.chat.llama.options import GgufOptions
from sixfold.core.gateway.ports import UpstreamFailure

_PROGRAM = "sixfold.clients.chat.llama.program"
# A large file may be on a slow disk.
_START_SECONDS = 600.0
# Lines of llama.cpp's log that are kept for an error message.
_LINES = 50


@dataclass(slots=True)
class RunningProcess:
    """A process that has loaded its model."""

    process: Process
    url: str
    key: str
    _said: asyncio.Task[None]

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.process.returncode is None

    async def stop(self) -> None:
        """Kill the process. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._said


async def start(name: str, model: GgufModel, options: GgufOptions) -> RunningProcess:
    """Load a model; raises `UpstreamFailure` with llama.cpp's reason."""
    key = secrets.token_urlsafe(24)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _PROGRAM, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_environment()
    )
    open_files.restore(process.pid)
    lines: deque[str] = deque(maxlen=_LINES)
    running = RunningProcess(process, "", key, asyncio.create_task(_listen(process, lines)))
    try:
        async with asyncio.timeout(_START_SECONDS):
            running.url = await _ordered(process, _order(name, model, options, key))
        if running.url:
            return running
    except TimeoutError as error:
        raise UpstreamFailure(f"did not load {name} within {_START_SECONDS:g} s") from error
    finally:
        if not running.url:
            await running.stop()
    raise UpstreamFailure(f"cannot load {name}: {_reason(lines) or 'its process ended'}")


async def _ordered(process: Process, order: dict[str, Any]) -> str:
    """Send the options and return the URL, empty if the process has ended."""
    if process.stdin is None or process.stdout is None:
        return ""
    with contextlib.suppress(OSError):
        process.stdin.write(json.dumps(order).encode() + b"\n")
        await process.stdin.drain()
    line = await process.stdout.readline()
    if not line:
        # The reason is printed last.
        await process.wait()
    return str(json.loads(line)["url"]) if line else ""


def _order(name: str, model: GgufModel, options: GgufOptions, key: str) -> dict[str, Any]:
    return {
        "model": name,
        "path": str(model.path),
        "projector": str(model.projector or ""),
        "key": key,
        "context": options.context,
        "slots": options.slots,
        "threads": options.threads,
        "gpu_layers": options.gpu_layers,
    }


def _environment() -> dict[str, str]:
    """Return an environment without keys and settings of the server."""
    return settings.worker_environment()


async def _listen(process: Process, lines: deque[str]) -> None:
    if process.stderr is None:
        return
    # An overlong line raises ValueError.
    with contextlib.suppress(ValueError):
        async for line in process.stderr:
            lines.append(line.decode(errors="replace").strip())


def _reason(lines: deque[str]) -> str:
    """Return the first error line without its prefix; later errors only follow from it."""
    line = next((line for line in lines if "error" in line.lower()), "")
    return re.sub(r"^.*?error[^:]*: ", "", line)[:300]


@dataclass(slots=True)
class _ProcessSlot:
    """A model that is loaded or loading."""

    coming: asyncio.Task[RunningProcess]
    busy: int = 0
    leaving: asyncio.TimerHandle | None = None
    since: float = 0.0

    @property
    def gone(self) -> bool:
        coming = self.coming
        if not coming.done():
            return False
        return coming.cancelled() or coming.exception() is not None or not coming.result().alive


@dataclass(slots=True)
class ProcessPool:
    """At most `loaded` models at a time; the least recently used idle one is unloaded first."""

    options: GgufOptions
    _rooms: dict[str, _ProcessSlot] = field(default_factory=dict[str, _ProcessSlot])
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def __len__(self) -> int:
        """Return the number of models that are loaded or loading."""
        return len(self._rooms)

    async def enter(self, name: str, model: GgufModel) -> tuple[RunningProcess, Callable[[], None]]:
        """Return a model's process, and a function to call once when it is no longer needed.

        Raises `UpstreamFailure`.
        """
        async with self._turn:
            room = self._rooms.get(name)
            if room is None or room.gone:
                self._rooms.pop(name, None)
                await self._make_room()
                room = _ProcessSlot(
                    asyncio.create_task(start(name, model, self.options), name=f"gguf {name}")
                )
                self._rooms[name] = room
            room.busy += 1
            if room.leaving is not None:
                room.leaving.cancel()
        try:
            # Other requests may wait for the same process.
            running = await asyncio.shield(room.coming)
        except BaseException:
            self._leave(name, room)
            raise
        return running, lambda: self._leave(name, room)

    async def aclose(self) -> None:
        """Stop all processes."""
        for name, room in list(self._rooms.items()):
            self._end(name, room)
        await asyncio.gather(*self._stopping)

    def _leave(self, name: str, room: _ProcessSlot) -> None:
        loop = asyncio.get_running_loop()
        room.busy -= 1
        if room.busy == 0:
            room.since = loop.time()
            room.leaving = loop.call_later(self.options.idle_seconds, self._end, name, room)
            self._left.set()

    async def _make_room(self) -> None:
        while len(self._rooms) >= self.options.loaded:
            idle = [(room.since, name) for name, room in self._rooms.items() if room.busy == 0]
            if idle:
                _, name = min(idle)
                self._end(name, self._rooms[name])
                await asyncio.gather(*self._stopping)
            else:
                self._left.clear()
                await self._left.wait()

    def _end(self, name: str, room: _ProcessSlot) -> None:
        if self._rooms.get(name) is room:
            del self._rooms[name]
        if room.leaving is not None:
            room.leaving.cancel()
        task = asyncio.create_task(_stopped(room))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


async def _stopped(room: _ProcessSlot) -> None:
    room.coming.cancel()
    with contextlib.suppress(UpstreamFailure, asyncio.CancelledError):
        await (await room.coming).stop()
