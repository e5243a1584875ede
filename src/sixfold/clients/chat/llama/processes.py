"""Models in memory: each one's process, who asks it at the moment, and when it goes."""

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
_START_SECONDS = 600.0  # a large file comes from a slow disk
_LINES = 50  # of what llama.cpp says, kept for when it fails


@dataclass(slots=True)
class RunningProcess:
    """A process that has loaded its model."""

    process: Process
    url: str
    key: str
    _said: asyncio.Task[None]

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.returncode is None

    async def stop(self) -> None:
        """End it. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._said


async def start(name: str, model: GgufModel, options: GgufOptions) -> RunningProcess:
    """Load a model; raises `UpstreamFailure` with what llama.cpp says of it."""
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
    """Where it is asked; nothing where it has ended instead."""
    if process.stdin is None or process.stdout is None:
        return ""
    with contextlib.suppress(OSError):
        process.stdin.write(json.dumps(order).encode() + b"\n")
        await process.stdin.drain()
    line = await process.stdout.readline()
    if not line:
        await process.wait()  # what it has to say about that comes last
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
    """No key and no setting of the server; which graphics cards it may use is the machine's to say."""
    return settings.worker_environment()


async def _listen(process: Process, lines: deque[str]) -> None:
    if process.stderr is None:
        return
    with contextlib.suppress(ValueError):  # a line that is too long
        async for line in process.stderr:
            lines.append(line.decode(errors="replace").strip())


def _reason(lines: deque[str]) -> str:
    """The first thing that went wrong, without who says so; what follows is that it went wrong."""
    line = next((line for line in lines if "error" in line.lower()), "")
    return re.sub(r"^.*?error[^:]*: ", "", line)[:300]


@dataclass(slots=True)
class _ProcessSlot:
    """A model that is in memory or on its way there."""

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
    """At most `loaded` models at once; the one that was asked longest ago makes room, once it is idle."""

    options: GgufOptions
    _rooms: dict[str, _ProcessSlot] = field(default_factory=dict[str, _ProcessSlot])
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def __len__(self) -> int:
        """How many models are in memory or on their way there."""
        return len(self._rooms)

    async def enter(self, name: str, model: GgufModel) -> tuple[RunningProcess, Callable[[], None]]:
        """The process of a model, and what to call, once, when it is not needed any more.

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
            running = await asyncio.shield(room.coming)  # others may wait for it too
        except BaseException:
            self._leave(name, room)
            raise
        return running, lambda: self._leave(name, room)

    async def aclose(self) -> None:
        """End them all."""
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
