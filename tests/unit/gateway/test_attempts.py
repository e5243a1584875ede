"""When a failed server may be called again, and how its responses are read."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.clients.chat.completions import Completions
from sixfold.clients.chat.messages import Messages
from sixfold.core.concurrency.memory_limit import MemoryLease, MemoryLimit
from sixfold.core.gateway.attempts import (
    FailoverClient,
    UpstreamResponse,
    parse_retry_after,
    read_full_body,
)
from sixfold.core.gateway.policy import GatewayPolicy
from sixfold.core.gateway.ports import UpstreamFailure
from tests.harness.waiting import wait_until


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("", None),
        ("soon", None),
        ("inf", None),
        ("nan", None),
        ("1e300", None),
    ],
)
def test_retry_after_in_seconds_is_parsed_if_plausible(message: str, seconds: float | None) -> None:
    assert parse_retry_after(message) == seconds


def test_retry_after_as_a_date_is_parsed() -> None:
    response = parse_retry_after(formatdate(time.time() + 3600, usegmt=True))
    assert response is not None
    assert 3000 < response <= 3600
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert parse_retry_after("Wed, 21 Oct 2199 07:28:00 GMT") is None


class Upstream:
    """A server whose responses are these blocks; `closed` counts those that were closed."""

    status = 200
    retry_after = ""

    def __init__(self, *blocks: bytes) -> None:
        self._blocks = list(blocks)
        self.closed = 0

    async def open(self, *_call: object, **_options: object) -> Upstream:
        return self

    async def read(self) -> bytes:
        if not self._blocks:
            await asyncio.Event().wait()
        return self._blocks.pop(0)

    async def aclose(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("blocks", "error"), [((b"x" * 200_000,) * 2, UpstreamFailure), ((b"x",), TimeoutError)]
)
async def test_endless_token_count_response_is_closed(
    blocks: tuple[bytes, ...], error: type[Exception]
) -> None:
    upstream = Upstream(*blocks)
    client = FailoverClient(
        GatewayPolicy(timeout_seconds=0.05), cast("Any", None), cast("Any", None), MemoryLimit(0, "")
    )
    with pytest.raises(error):
        await client.count_tokens(cast("Any", SimpleNamespace(upstream=upstream)), Messages(), b"{}", {})
    assert upstream.closed == 1


async def test_large_responses_at_once_wait_for_memory() -> None:
    memory = MemoryLimit(4 * 2**20, "Too many large responses", 0.05)
    body = b'{"choices":[{"message":{"content":"%s"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
    large, small = body % (b"x" * 3 * 2**20), body % b"x"

    async def read(content: bytes, lease: MemoryLease) -> int:
        return len((await read_full_body(Upstream(content, b""), Completions(), lease))[0])

    async with memory.lease("ada") as first, memory.lease("bob") as second:
        assert await read(large, first) == len(large)
        assert await read(small, second) == len(small)
        with pytest.raises(errors.TooManyRequests, match="Too many large responses"):
            await read(large, second)
        first.release()
        assert await read(large, second) == len(large)


class MeasuredUpstream(Upstream):
    """A server that responds when the memory of the request's body has been released."""

    name, gpu, in_local_network = "acme", None, False

    def wire(self, _: str) -> Completions:
        return Completions()

    async def open(self, *call: object, **_options: object) -> Upstream:
        del call
        # The thread of the parser may have the body for a moment.
        await wait_until(lambda: tracemalloc.get_traced_memory()[0] < 2**20)
        return self


async def test_body_of_an_attempt_is_not_kept_during_the_response() -> None:
    size = 8 * 2**20
    body = b'{"model":"small","messages":[{"role":"user","content":"%s"}]}' % (b"x" * size)
    answer = b'{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
    upstream = MeasuredUpstream(answer, b"")
    target = SimpleNamespace(name="acme/small", model="small", upstream=upstream)
    request = SimpleNamespace(wire="chat", body=body, size=size, stream=False, headers={}, account_id="ada")
    active = SimpleNamespace(request=request, record=SimpleNamespace(attempts=0), started_at=0.0)
    health = SimpleNamespace(record_success=lambda *_: None, record_failure=lambda *_: None)
    client = FailoverClient(GatewayPolicy(), cast("Any", health), cast("Any", None), MemoryLimit(0, ""))
    tracemalloc.start()
    try:
        arguments: Any = (active, target, None, read_full_body)
        result = await client._attempt_once(*arguments)
    finally:
        tracemalloc.stop()
    assert isinstance(result, UpstreamResponse)
