"""Recording of calls for accounts that have enabled the content log, without delaying the calls."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import islice

import msgspec

from sixfold import errors
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.chat import ChatResponse, Event
from sixfold.core.gateway.content_log.storage import MAX_CHARS, ContentLog, LoggedCall
from sixfold.core.gateway.guardrails import streams, texts
from sixfold.core.gateway.guardrails.streams import Channel, CollectedStream, PlainEvent
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest, StreamFilter
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.input_limits import json_decoding

_LOG = logging.getLogger("sixfold.content")
# Maximum number of calls that wait to be written; further calls are not recorded.
_MAX_PENDING = 512
# Maximum bytes of a stream that are kept for its text.
_MAX_BYTES, _MAX_LINES = 2**20, 20_000


class ContentRecorder:
    """Writes calls in the background."""

    def __init__(self, log: ContentLog) -> None:
        self.log = log
        self._tasks: set[asyncio.Task[None]] = set()

    def record(self, request: GatewayRequest, reply: GatewayReply) -> None:
        answer, raw = reply.answer, reply.raw or b""
        self._start(request, lambda: _text_of_answer(answer) if answer is not None else _text_of_body(raw))

    def follow(self, request: GatewayRequest, stream: ResponseStream) -> None:
        """Record a stream when it ends, even if its caller disconnects."""
        stream.filter = _RecordingFilter(lambda read: self._start(request, read), stream.filter)

    async def drain(self) -> None:
        """Wait until all calls are written."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, request: GatewayRequest, read: Callable[[], str]) -> None:
        if len(self._tasks) >= _MAX_PENDING:
            _LOG.warning(
                "more than %d calls are waiting for the content log; one call was not logged", _MAX_PENDING
            )
            return
        task = asyncio.get_running_loop().create_task(self._write(request, read))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, request: GatewayRequest, read: Callable[[], str]) -> None:
        try:
            await self.log.write(await self._read(request, read))
        except (errors.SixfoldError, msgspec.MsgspecError, UnicodeError):
            _LOG.exception("the content log could not be written")

    async def _read(self, request: GatewayRequest, read: Callable[[], str]) -> LoggedCall:
        content = await PARSER.run(_sent, request)
        response = await PARSER.run(read)
        return LoggedCall(
            request.request_id,
            request.account_id,
            request.key_id,
            request.endpoint,
            request.model,
            request.content_days,
            content,
            response,
        )


def _sent(request: GatewayRequest) -> str:
    return request.body[: 4 * MAX_CHARS].decode("utf-8", "replace") or str(request.parse())


class _RecordingFilter:
    """Collects the bytes or events that a stream forwards."""

    def __init__(self, end: Callable[[Callable[[], str]], None], inner: StreamFilter | None) -> None:
        self._end = end
        self._inner = inner

    async def blocks(self, source: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        content = bytearray()
        try:
            async with aclosing(source if self._inner is None else self._inner.blocks(source)) as blocks:
                async for block in blocks:
                    content += block[: _MAX_BYTES - len(content)]
                    yield block
        finally:
            self._end(lambda: _text_of_stream(bytes(content)))

    async def events(self, source: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        channels: dict[Channel, io.StringIO] = {}
        size = 0
        try:
            async with aclosing(source if self._inner is None else self._inner.events(source)) as events:
                async for event in events:
                    item = PlainEvent(event)
                    for channel, text in item.pieces if size < _MAX_BYTES else ():
                        channels.setdefault(channel, io.StringIO()).write(text)
                    size += item.size
                    yield event
        finally:
            self._end(lambda: _joined([text.getvalue() for text in channels.values()]))


def _text_of_stream(content: bytes) -> str:
    return _joined(CollectedStream([*islice(streams.lines_of(content), _MAX_LINES)]).texts)


def _joined(texts: list[str]) -> str:
    return "\n".join(texts)[:MAX_CHARS]


def _text_of_answer(answer: ChatResponse) -> str:
    pieces: list[str] = []

    def note(text: str) -> str:
        pieces.append(text)
        return text

    texts.change_response(answer, note)
    return _joined(pieces)


def _text_of_body(raw: bytes) -> str:
    """Return the strings that a model has written in a JSON document."""
    try:
        document = json_decoding.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, errors.InputTooLarge):
        return raw[:MAX_CHARS].decode("utf-8", "replace")
    return _joined([slot.text for slot in texts.slots(document) if slot.is_content and slot.text])
