"""Streams of many small events, and streams without an end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import tracemalloc
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.api.gateway.chat_handler import EventStreamResponse
from sixfold.api.gateway.openai.responses.capture import CapturePlan, ResponseCapture
from sixfold.clients.chat import completions
from sixfold.clients.chat.completions import Completions
from sixfold.core.concurrency.memory_limit import MemoryLimit
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway import response_stream
from sixfold.core.gateway.chat import ChatRequest, TextDelta
from sixfold.core.gateway.ports import WireProtocol
from sixfold.core.gateway.pricing.usage import NOTHING
from sixfold.core.gateway.response_stream import ResponseStream

DELTA = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
SCOPE: Any = {"type": "http"}
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Blocks:
    """A response that sends one block again and again."""

    def __init__(self, block: bytes = b"") -> None:
        self._block = block

    async def read(self) -> bytes:
        return self._block

    async def aclose(self) -> None:
        pass


def stream_of(
    first: bytes,
    more: bytes = b"",
    memory: MemoryLimit | None = None,
    wire: WireProtocol = Completions(),  # noqa: B008  it has no state
    ended: list[str] | None = None,
) -> ResponseStream:
    request = SimpleNamespace(wire="messages", expected_usage=None, keep_usage=False)
    active = SimpleNamespace(
        request=request,
        started_at=time.perf_counter(),
        conversation=lambda: ChatRequest(()),
        estimated=lambda _reported, _output: NOTHING,
    )
    target = SimpleNamespace(name="acme/small", upstream=SimpleNamespace(local=True))
    response = SimpleNamespace(
        wire=wire,
        stream=Blocks(more),
        first_block=first,
        target=target,
        rates=SimpleNamespace(output=0),
        lease=(memory or MemoryLimit(0, "")).lease("acct"),
    )

    async def on_end(*call: Any) -> Any:
        if ended is not None:
            ended.append(call[-1].state)

    return ResponseStream(cast("Any", active), cast("Any", response), 600, on_end)


async def test_many_small_events_let_other_tasks_run() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    events = [event async for event in stream_of(DELTA * 5_000 + END).events()]
    counting.cancel()
    assert sum(isinstance(event, TextDelta) for event in events) == 5_000
    assert turns >= 20


async def test_a_text_that_is_converted_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "MAX_RESPONSE_CHARS", 5_000)
    ended: list[str] = []
    stream = stream_of(DELTA, DELTA * 1_000, ended=ended)
    received = 0

    async def read() -> None:
        nonlocal received
        async for _ in stream.events():
            received += 1

    with pytest.raises(errors.EngineFailed, match="sent more than 5,000 characters of text"):
        await read()
    assert (received, ended) == (5_000, ["left"])


@pytest.mark.parametrize("is_raw", [True, False])
async def test_endless_stream_is_ended_at_the_limit(is_raw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_stream, "MAX_BYTES", 2**20)
    ended: list[str] = []
    stream = stream_of(DELTA, DELTA * 1_000, ended=ended)

    async def read() -> None:
        async for _ in stream.blocks() if is_raw else stream.events():
            pass

    with pytest.raises(errors.EngineFailed, match="sent a stream of more than 1 MiB"):
        await read()
    assert ended == ["left"]


async def collect(stream: ResponseStream) -> bytes:
    return b"".join([block async for block in stream.blocks()])


def event(size: int) -> bytes:
    return b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"a" * size)


async def test_a_large_event_is_scanned_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[int, int] = {}
    read = completions.read_document

    def noting(data: bytes) -> Any:
        threads[len(data)] = threading.get_ident()
        return read(data)

    monkeypatch.setattr(completions, "read_document", noting)
    events = event(10), event(2**20)
    for each in events:
        assert await collect(stream_of(each + END)) == each + END
    small, large = (threads[len(each) - len(b"data: \n\n")] for each in events)
    assert small == threading.get_ident() != large


async def test_incomplete_events_share_a_limit() -> None:
    memory = MemoryLimit(4 * 2**20, "The memory is in use", 0.01)
    ended: list[str] = []
    streams = [stream_of(event(3 * 2**20)[:-9], b"a" * 2**20, memory, ended=ended) for _ in range(2)]
    pending_tasks = [asyncio.create_task(collect(stream)) for stream in streams]
    done_tasks, _ = await asyncio.wait(pending_tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    error = next(iter(done_tasks)).exception()
    assert isinstance(error, errors.EngineFailed)
    assert (error.message, ended) == ("The memory is in use", ["failed"]), "nothing was delivered"
    for task in pending_tasks:
        task.cancel()
    await asyncio.wait(pending_tasks)
    assert memory.total == 0


async def test_memory_of_an_event_is_released_when_it_is_sent() -> None:
    memory = MemoryLimit(2**30, "")
    async with contextlib.aclosing(stream_of(event(2**21) + DELTA, END, memory=memory).blocks()) as blocks:
        assert len(await anext(blocks)) > 2**21
        assert memory.total > 2**21
        await anext(blocks)
        assert memory.total == 0


async def test_long_responses_that_are_converted_share_a_limit() -> None:
    memory = MemoryLimit(8 * 2**20, "The memory is in use", 0.01)
    text = event(2**19) * 2 + DELTA
    async with contextlib.aclosing(stream_of(text, DELTA, memory).events()) as first:
        while not memory.total:
            await anext(first)
        assert memory.total == 6 * 2**20
        ended: list[str] = []
        with pytest.raises(errors.EngineFailed, match="The memory is in use; the part before is charged"):
            async for _ in stream_of(DELTA, text, memory, ended=ended).events():
                pass
        assert ended == ["left"]
    assert memory.total == 0


async def test_a_large_block_is_sent_in_pieces() -> None:
    async def blocks() -> AsyncGenerator[bytes]:
        for size in (0, 10, 2**20 + 1):
            yield b"a" * size

    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    await EventStreamResponse(blocks())(SCOPE, cast("Any", asyncio.Event().wait), send)
    assert [len(piece) for piece in sent if len(piece) > 10] == [2**18] * 4
    assert sum(map(len, sent)) == 2**20 + 11


async def test_a_canceled_stream_waits_for_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish, order = threading.Event(), threading.Event(), list[str]()
    forward = completions.CompletionsParser.forward

    def slow(parser: Any, block: bytes, *, keep_usage: bool) -> bytes:
        started.set()
        assert finish.wait(30)
        order.append("scanned")
        return forward(parser, block, keep_usage=keep_usage)

    monkeypatch.setattr(completions.CompletionsParser, "forward", slow)
    stream = stream_of(event(2**20) + END)
    reading = asyncio.create_task(collect(stream))
    assert await asyncio.to_thread(started.wait, 30)
    reading.cancel()
    await asyncio.sleep(0)
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    order.append("closed")
    assert order == ["scanned", "closed"]


async def test_a_sent_event_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, sizes = asyncio.Event(), list[int]()
    parts = [b'data: {"choices":[{"delta":{"content":"', *[b"a" * 2**16] * 64, b'"}}]}\n\n']

    async def read(_blocks: Blocks) -> bytes:
        if parts:
            return parts.pop(0)
        waiting.set()
        await asyncio.Event().wait()
        return b""

    async def send(message: Any) -> None:
        sizes.append(len(message.get("body", b"")))

    monkeypatch.setattr(Blocks, "read", read)
    plan = CapturePlan(cast("Any", None), keep=False, previous="", raw=b"")
    tracemalloc.start()
    try:
        blocks = ResponseCapture(cast("Any", None), plan).record_stream(stream_of(DELTA).blocks(), "")
        sending = asyncio.create_task(
            EventStreamResponse(blocks)(SCOPE, cast("Any", asyncio.Event().wait), send)
        )
        await asyncio.wait_for(waiting.wait(), 30)
        # The thread has returned its last result.
        await PARSER.run(int)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    sending.cancel()
    await asyncio.wait({sending})
    assert sum(sizes) > 2**22
    assert kept < 2**20
