"""Cooperation of the processes of one server (`serve --processes N`).

Process 0 runs the predictions. It forwards their progress, log lines and node states to the others, whose
clients may be waiting for them. The process that is asked for the metrics adds up those of all processes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.predictions.events import Event, EventBus, LogEvent, NodeStateChanged, ProgressEvent
from sixfold.store.process_channel import ProcessChannel

_LOG = logging.getLogger("sixfold.processes")
_EVENT, _METRICS_REQUEST, _METRICS_RESPONSE = b"e", b"m", b"r"
# State changes are not among them: the database announces those.
_FORWARDED: tuple[type[Any], ...] = (ProgressEvent, LogEvent, NodeStateChanged)
_METRICS_SECONDS = 2.0


class ServerProcesses:
    """The other processes of this server, connected by `channel`."""

    def __init__(self, channel: ProcessChannel, bus: EventBus) -> None:
        self.channel = channel
        self.own_metrics: Callable[[], Awaitable[bytes]] | None = None
        self.bus = bus
        self._is_receiving = False
        self._numbers = itertools.count()
        self._responses: dict[int, tuple[set[str], list[bytes], asyncio.Future[None]]] = {}
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

    async def metrics(self) -> list[bytes]:
        """Return the metrics of each other process; raises `StoreFailed` if one does not respond."""
        peers = self.channel.peers()
        if not peers:
            return []
        number, done = next(self._numbers), asyncio.get_running_loop().create_future()
        self._responses[number] = (set(peers), texts := [], done)
        try:
            self.channel.send(_METRICS_REQUEST, str(number).encode(), peers)
            async with asyncio.timeout(_METRICS_SECONDS):
                await done
        except TimeoutError:
            raise errors.StoreFailed(
                f"A process of this server sent no metrics within {_METRICS_SECONDS:g} s: try again"
            ) from None
        finally:
            del self._responses[number]
        return texts

    def _on_metrics_request(self, sender: str, body: bytes) -> None:
        task = asyncio.create_task(self._send_metrics(sender, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_metrics(self, to: str, number: bytes) -> None:
        try:
            # A process that is starting has none yet.
            text = zlib.compress(b"" if self.own_metrics is None else await self.own_metrics(), 1)
            self.channel.send(_METRICS_RESPONSE, number + b"\0" + text, (to,))
        except (ValueError, errors.StoreFailed):
            _LOG.warning("the metrics of this process could not be sent", exc_info=True)

    def _on_metrics_response(self, sender: str, body: bytes) -> None:
        number, _, text = body.partition(b"\0")
        missing, texts, done = self._responses.get(int(number), (set[str](), [], None))
        if done is None or sender not in missing:
            return
        missing.discard(sender)
        texts.append(zlib.decompress(text))
        if not missing and not done.done():
            done.set_result(None)
