"""Streams of many small events, and streams without an end."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.clients.chat.completions import Completions
from sixfold.core.gateway import response_stream
from sixfold.core.gateway.chat import ChatRequest, TextDelta
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.gateway.usage import NOTHING

DELTA = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Blocks:
    """A response that sends one block again and again."""

    def __init__(self, block: bytes = b"") -> None:
        self._block = block

    async def read(self) -> bytes:
        return self._block

    async def aclose(self) -> None:
        pass


def stream_of(first: bytes, more: bytes = b"") -> ResponseStream:
    request = SimpleNamespace(wire="messages", expected_usage=None, keep_usage=False)
    active = SimpleNamespace(
        request=request,
        started_at=time.perf_counter(),
        conversation=lambda: ChatRequest(()),
        estimated=lambda _reported, _output: NOTHING,
    )
    target = SimpleNamespace(name="acme/small", upstream=SimpleNamespace(local=True))
    response = SimpleNamespace(
        wire=Completions(),
        stream=Blocks(more),
        first_block=first,
        target=target,
        rates=SimpleNamespace(output=0),
    )

    async def on_end(*_call: Any) -> Any:
        return None

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
    monkeypatch.setattr(response_stream, "_MAX_CHARS", 5_000)
    stream = stream_of(DELTA, DELTA * 1_000)
    received = 0

    async def read() -> None:
        nonlocal received
        async for _ in stream.events():
            received += 1

    with pytest.raises(errors.EngineFailed, match="sent more than 5,000 characters of text"):
        await read()
    assert 4_000 <= received <= 5_000


@pytest.mark.parametrize("is_raw", [True, False])
async def test_a_stream_without_an_end_is_cut_off(is_raw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_stream, "_MAX_BYTES", 2**20)
    stream = stream_of(DELTA, DELTA * 1_000)

    async def read() -> None:
        async for _ in stream.blocks() if is_raw else stream.events():
            pass

    with pytest.raises(errors.EngineFailed, match="sent a stream of more than 1 MiB"):
        await read()
