"""Cooperation of the processes of one server (`serve --processes N`).

Process 0 runs the predictions. It forwards their progress, log lines and node states to the other processes,
whose clients may be waiting for them. The process that receives a request for metrics adds up the metrics of
all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import logging
import shutil
import threading
import zlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.predictions.events import Event, EventBus, LogEvent, NodeStateChanged, ProgressEvent
from sixfold.store.process_channel import ProcessChannel
from sixfold.web.metrics import merge

_LOG = logging.getLogger("sixfold.processes")
_EVENT, _METRICS_REQUEST, _METRICS_RESPONSE = b"e", b"m", b"r"
# State changes are not included, because the database announces them.
_FORWARDED: tuple[type[Any], ...] = (ProgressEvent, LogEvent, NodeStateChanged)
METRICS_SECONDS = 2.0
# Seconds between two checks for the end of a process that does not respond.
_LOOK_SECONDS = 0.1


class ServerProcesses:
    """The other processes of this server, connected by `channel`; `folder` stores their metrics."""

    def __init__(self, channel: ProcessChannel, bus: EventBus, folder: Path) -> None:
        self.channel = channel
        self.metrics_folder = MetricsFolder(folder)
        self.own_metrics: Callable[[], Awaitable[bytes]] | None = None
        self.bus = bus
        self._is_receiving = False
        self._numbers = itertools.count()
        self._responses: dict[int, _Responses] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        bus.watchers.append(self._forward)
        channel.subscribe(_EVENT, self._publish)
        channel.subscribe(_METRICS_REQUEST, self._on_metrics_request)
        channel.subscribe(_METRICS_RESPONSE, self._on_metrics_response)

    # -- events ----------------------------------------------------------------------------------

    def _forward(self, prediction_id: str, event: Event) -> None:
        if self._is_receiving or not isinstance(event, _FORWARDED):
            return
        kind = _FORWARDED.index(type(event))
        try:
            self.channel.send(_EVENT, msgspec.msgpack.encode((prediction_id, kind, event)))
        except ValueError:
            _LOG.warning("an event is too large for the other processes", extra={"prediction": prediction_id})

    def _publish(self, _sender: str, body: bytes) -> None:
        prediction_id, kind, fields = msgspec.msgpack.decode(body)
        event = msgspec.convert(fields, _FORWARDED[kind])
        self._is_receiving = True
        try:
            self.bus.publish(prediction_id, event)
        finally:
            self._is_receiving = False

    # -- metrics ---------------------------------------------------------------------------------

    async def metrics(self, own: bytes) -> list[bytes]:
        """Return the metrics of all processes, with the last counters of ended processes.

        `own` contains the metrics of this process. Raises `StoreFailed` if a running process does not
        respond.
        """
        number, loop = next(self._numbers), asyncio.get_running_loop()
        self._responses[number] = pending = _Responses(set(self.channel.peers()))
        deadline = loop.time() + METRICS_SECONDS
        try:
            self.channel.send(_METRICS_REQUEST, str(number).encode(), tuple(pending.missing))
            # A process may have ended, or end before it responds.
            while pending.missing and pending.drop_ended(self.channel):
                if loop.time() >= deadline:
                    raise errors.StoreFailed(
                        f"A process did not send metrics within {METRICS_SECONDS:g} s: try again"
                    )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(pending.done.wait(), _LOOK_SECONDS)
        finally:
            del self._responses[number]
        return await asyncio.to_thread(self._collect, own, pending.texts)

    def _collect(self, own: bytes, texts: Mapping[str, bytes]) -> list[bytes]:
        self.metrics_folder.write(self.channel.name, own)
        return self.metrics_folder.with_ended(texts, self.channel.is_alive)

    async def keep_metrics(self) -> bytes:
        """Save the counters of this process for use after its end, and return its metrics."""
        # A process that is still starting does not have metrics yet.
        text = b"" if self.own_metrics is None else await self.own_metrics()
        await asyncio.to_thread(self.metrics_folder.write, self.channel.name, text)
        return text

    def _on_metrics_request(self, sender: str, body: bytes) -> None:
        task = asyncio.create_task(self._send_metrics(sender, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_metrics(self, to: str, number: bytes) -> None:
        try:
            text = zlib.compress(await self.keep_metrics(), 1)
            self.channel.send(_METRICS_RESPONSE, number + b"\0" + text, (to,))
        except (ValueError, errors.StoreFailed):
            _LOG.warning("the metrics of this process could not be sent", exc_info=True)

    def _on_metrics_response(self, sender: str, body: bytes) -> None:
        number, _, text = body.partition(b"\0")
        pending = self._responses.get(int(number))
        if pending is None or sender not in pending.missing:
            return
        pending.missing.discard(sender)
        pending.texts[sender] = zlib.decompress(text)
        if not pending.missing:
            pending.done.set()


class _Responses(msgspec.Struct):
    missing: set[str]
    texts: dict[str, bytes] = {}
    done: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def drop_ended(self, channel: ProcessChannel) -> bool:
        self.missing = {name for name in self.missing if channel.is_alive(name)}
        return bool(self.missing)


class MetricsFolder:
    """A folder with the last metrics of each process; one file has the sum for all ended processes.

    Without this sum, the totals of the server would fall when a process ends.
    """

    _SUM, _GUARD = "ended", "guard"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def clear(self) -> None:
        """Delete the files of a previous run of the server."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True)

    def write(self, name: str, text: bytes) -> bool:
        """Replace the metrics of a process; return False, without a change, if the disk is full."""
        new = self._folder / f".{name}.{threading.get_ident()}"
        try:
            new.write_bytes(text)
            new.replace(self._folder / name)
        except OSError as error:
            _LOG.warning("the metrics of a process could not be stored", extra={"reason": str(error)})
            return False
        return True

    def with_ended(self, texts: Mapping[str, bytes], is_alive: Callable[[str], bool]) -> list[bytes]:
        """Return the metrics of living processes, and the sum of the counters of all ended processes."""
        with (self._folder / self._GUARD).open("wb") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            # The metrics of a process that ended after its response are already in the sum.
            living = [text for name, text in texts.items() if is_alive(name)]
            return [*living, *self._sum(is_alive)]

    def _sum(self, is_alive: Callable[[str], bool]) -> list[bytes]:
        total = self._folder / self._SUM
        other_files = (file for file in self._folder.iterdir() if file.name not in (self._SUM, self._GUARD))
        stale = [file for file in other_files if not file.name.startswith(".") and not is_alive(file.name)]
        parts = [file.read_bytes() for file in (total, *stale) if file.exists()]
        if not stale:
            return parts
        combined_metrics = merge(parts, with_gauges=False)
        if self.write(self._SUM, combined_metrics):
            for file in stale:
                file.unlink()
        return [combined_metrics]
