"""Processes of loaded models, which are shared by requests and stopped when idle."""

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
from typing import Any

import msgspec

from sixfold import process_resources, settings
from sixfold.clients.chat.llama.files import GgufModel
from sixfold.clients.chat.llama.options import GgufOptions
from sixfold.core.gateway.ports import UpstreamFailure

_PROGRAM = "sixfold.clients.chat.llama.program"
# Loading a large file from a slow disk may take minutes.
_START_SECONDS = 600.0
# Maximum number of lines of llama.cpp's log for an error message.
_LINES = 50


class RunningProcess(msgspec.Struct):
    """A process that has loaded its model."""

    process: Process
    url: str
    key: str
    _log_task: asyncio.Task[None]

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.process.returncode is None

    async def stop(self) -> None:
        """Kill the process. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._log_task


async def start(name: str, model: GgufModel, options: GgufOptions) -> RunningProcess:
    """Load a model; raises `UpstreamFailure` with llama.cpp's reason."""
    key = secrets.token_urlsafe(24)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _PROGRAM, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_environment()
    )
    process_resources.restore_file_limit(process.pid)
    log_lines: deque[str] = deque(maxlen=_LINES)
    running = RunningProcess(process, "", key, asyncio.create_task(_collect_log(process, log_lines)))
    try:
        async with asyncio.timeout(_START_SECONDS):
            running.url = await _send_options(process, _options(name, model, options, key))
        if running.url:
            return running
    except TimeoutError as error:
        raise UpstreamFailure(f"did not load {name} within {_START_SECONDS:g} s") from error
    finally:
        if not running.url:
            await running.stop()
    raise UpstreamFailure(f"cannot load {name}: {_reason(log_lines) or 'its process ended'}")


async def _send_options(process: Process, options: dict[str, Any]) -> str:
    """Send the options and return the URL, empty if the process has ended."""
    if process.stdin is None or process.stdout is None:
        return ""
    with contextlib.suppress(OSError):
        process.stdin.write(json.dumps(options).encode() + b"\n")
        await process.stdin.drain()
    line = await process.stdout.readline()
    if not line:
        # The reason is printed last.
        await process.wait()
    return str(json.loads(line)["url"]) if line else ""


def _options(name: str, model: GgufModel, options: GgufOptions, key: str) -> dict[str, Any]:
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
    """Return environment variables without the keys and settings of the server."""
    return settings.worker_environment()


async def _collect_log(process: Process, log_lines: deque[str]) -> None:
    if process.stderr is None:
        return
    # An overlong line raises ValueError.
    with contextlib.suppress(ValueError):
        async for line in process.stderr:
            log_lines.append(line.decode(errors="replace").strip())


def _reason(log_lines: deque[str]) -> str:
    """Return the first error line without its prefix; later errors are its consequences."""
    line = next((line for line in log_lines if "error" in line.lower()), "")
    return re.sub(r"^.*?error[^:]*: ", "", line)[:300]


class _ProcessSlot(msgspec.Struct):
    """A model that is loaded or loading."""

    starting: asyncio.Task[RunningProcess]
    busy: int = 0
    idle_timer: asyncio.TimerHandle | None = None
    idle_since: float = 0.0

    @property
    def has_ended(self) -> bool:
        starting = self.starting
        if not starting.done():
            return False
        return starting.cancelled() or starting.exception() is not None or not starting.result().alive


class ProcessPool(msgspec.Struct):
    """A pool of at most `loaded` processes; the least recently used idle model is unloaded first."""

    options: GgufOptions
    _slots: dict[str, _ProcessSlot] = {}
    _lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    _released: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _stopping: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._slots)

    async def enter(self, name: str, model: GgufModel) -> tuple[RunningProcess, Callable[[], None]]:
        """Return a model's process, and a function that releases it, to be called exactly once.

        Raises `UpstreamFailure`.
        """
        async with self._lock:
            slot = self._slots.get(name)
            if slot is None or slot.has_ended:
                self._slots.pop(name, None)
                await self._free_slot()
                slot = _ProcessSlot(
                    asyncio.create_task(start(name, model, self.options), name=f"gguf {name}")
                )
                self._slots[name] = slot
            slot.busy += 1
            if slot.idle_timer is not None:
                slot.idle_timer.cancel()
        try:
            # Other requests may wait for the same process.
            running = await asyncio.shield(slot.starting)
        except BaseException:
            self._release(name, slot)
            raise
        return running, lambda: self._release(name, slot)

    def loaded(self) -> tuple[str, ...]:
        return tuple(name for name, slot in self._slots.items() if not slot.has_ended)

    async def unload(self, name: str) -> None:
        """Unload a model if no request uses it, and wait until its process has ended."""
        slot = self._slots.get(name)
        if slot is not None and slot.busy == 0:
            self._unload(name, slot)
            await asyncio.gather(*self._stopping)

    async def aclose(self) -> None:
        for name, slot in list(self._slots.items()):
            self._unload(name, slot)
        await asyncio.gather(*self._stopping)

    def _release(self, name: str, slot: _ProcessSlot) -> None:
        loop = asyncio.get_running_loop()
        slot.busy -= 1
        if slot.busy == 0:
            slot.idle_since = loop.time()
            slot.idle_timer = loop.call_later(self.options.idle_seconds, self._unload, name, slot)
            self._released.set()

    async def _free_slot(self) -> None:
        while len(self._slots) >= self.options.loaded:
            idle = [(slot.idle_since, name) for name, slot in self._slots.items() if slot.busy == 0]
            if idle:
                _, name = min(idle)
                self._unload(name, self._slots[name])
                await asyncio.gather(*self._stopping)
            else:
                self._released.clear()
                await self._released.wait()

    def _unload(self, name: str, slot: _ProcessSlot) -> None:
        if self._slots.get(name) is slot:
            del self._slots[name]
        if slot.idle_timer is not None:
            slot.idle_timer.cancel()
        task = asyncio.create_task(_stop_slot(slot))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


async def _stop_slot(slot: _ProcessSlot) -> None:
    slot.starting.cancel()
    with contextlib.suppress(UpstreamFailure, asyncio.CancelledError):
        await (await slot.starting).stop()
