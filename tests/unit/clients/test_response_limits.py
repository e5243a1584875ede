"""Responses and streams of hostile model servers are read in bounded time and memory."""

from __future__ import annotations

import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
import pytest

from sixfold.clients.chat import listing, sse
from sixfold.clients.chat.aws_events import AwsEventSplitter
from sixfold.clients.chat.completions import Completions, CompletionsParser
from sixfold.clients.chat.forwarded.media import MEDIA_PROTOCOLS
from sixfold.clients.chat.messages import Messages
from sixfold.clients.chat.rejections import parse_rejection
from sixfold.clients.chat.responses import ResponsesProtocol
from sixfold.clients.chat.transport import Transport
from sixfold.clients.searxng import SearxngClient
from sixfold.core.gateway import attempts
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, ToolCall, as_json
from sixfold.core.gateway.ports import UpstreamFailure, WireProtocol
from sixfold.net.fetch import Fetcher, FetchResponse
from tests import loop_time

MIB = 2**20
EMPTY = b"[]," * 700_000 + b"[]"
CHAT = b'{"choices":[{"message":{"content":[%s]}}]}' % EMPTY
EVENT = b'data: {"choices":[{"delta":{"content":[%s]}}]}\n\n' % EMPTY
EMBEDDINGS, TRANSCRIPTIONS, MODERATIONS = MEDIA_PROTOCOLS[0], MEDIA_PROTOCOLS[4], MEDIA_PROTOCOLS[-1]


class WholeBody:
    """A response that has arrived."""

    status = 200
    retry_after = ""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def read(self) -> bytes:
        body, self.body = self.body, b""
        return body

    async def aclose(self) -> None:
        pass


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (Completions(), CHAT),
        (EMBEDDINGS, b'{"data":[[1]],"usage":[%s]}' % EMPTY),
        (EMBEDDINGS, b'{"data":[%s]}' % EMPTY),
        (MODERATIONS, b'{"results":[%s1]}' % (b"1," * 3_100_000)),
    ],
    ids=["chat", "usage", "embeddings", "moderations"],
)
async def test_a_response_with_too_many_values_fails(wire: WireProtocol, body: bytes) -> None:
    with pytest.raises(UpstreamFailure, match="too many values"):
        await attempts.read_full_body(WholeBody(body), wire)


async def test_embeddings_may_have_millions_of_numbers() -> None:
    rows = b",".join([b'{"embedding":[%s1]}' % (b"0.125," * 100_000)] * 50)
    body, usage = await attempts.read_full_body(WholeBody(b'{"data":[%s]}' % rows), EMBEDDINGS)
    assert (len(body) > 28 * MIB, usage) == (True, (None, 0))


async def test_a_large_response_is_parsed_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []
    usage = Completions.usage

    def record(wire: Completions, body: bytes) -> object:
        readers.append(threading.current_thread())
        return usage(wire, body)

    monkeypatch.setattr(Completions, "usage", record)
    for size in (10, MIB):
        body = b'{"choices":[{"message":{"content":"%s"}}]}' % (b"x" * size)
        assert (await attempts.read_full_body(WholeBody(body), Completions()))[1] == (None, size)
    assert [thread is threading.main_thread() for thread in readers] == [True, False]


def test_a_usage_of_any_size_or_type_is_ignored() -> None:
    for usage in (b"[1]", b'"x"', b"[" * 500 + b"]" * 500, b'{"input_tokens":7,"a":"%s"}' % (b"x" * MIB)):
        assert EMBEDDINGS.usage(b'{"data":[{"embedding":[1]}],"usage":%s}' % usage)[0] is None
    counted = EMBEDDINGS.usage(b'{"data":[{"embedding":[1]}],"usage":{"input_tokens":7}}')[0]
    assert counted is not None
    assert counted.input == 7


def test_duration_with_hundreds_of_digits_is_ignored() -> None:
    for duration in (10**400, -(10**400)):
        assert TRANSCRIPTIONS.usage(b'{"text":"Hello.","duration":%d}' % duration) == (None, 6)


def test_an_event_with_too_many_values_is_refused() -> None:
    def read() -> None:
        with pytest.raises(UpstreamFailure, match="too many values"):
            CompletionsParser().forward(EVENT, keep_usage=True)

    assert peak_bytes(read) < 16 * MIB


def test_an_event_of_millions_of_lines_is_refused() -> None:
    with pytest.raises(UpstreamFailure, match="more than 100,000 lines"):
        list(sse.data(b"data:0\n" * 200_000))


def test_endless_line_is_buffered_in_linear_time() -> None:
    def feed() -> None:
        splitter = sse.EventSplitter()
        for _ in range(6 * 1024):
            assert splitter.feed(b"x" * 1024) == (b"", True)

    assert loop_time.cpu_seconds(feed, 0.1) < 0.3


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_event_end_is_found_at_any_chunk_boundary(end: bytes) -> None:
    data = b"data: a" + end + b"data: b"
    for cut in range(1, len(data)):
        splitter = sse.EventSplitter()
        parts = [splitter.feed(data[:cut])[0], splitter.feed(data[cut:])[0], splitter.flush()]
        assert b"".join(parts) == data + b"\n\n"
        assert parts[2] == b"data: b\n\n"


def test_many_small_aws_events_are_split_in_linear_time() -> None:
    prelude = struct.pack(">II", 16, 0)
    message = prelude + struct.pack(">I", zlib.crc32(prelude))
    message += struct.pack(">I", zlib.crc32(message))
    block = message * 100_000

    def split() -> None:
        assert len(AwsEventSplitter().feed(block)) == 100_000

    assert loop_time.cpu_seconds(split, 0.3) < 0.5


def test_uses_of_tools_are_counted_as_they_arrive() -> None:
    event = b'data: {"type":"response.output_item.done","item":{"type":"web_search_call"}}\n\n'
    container = (
        b'data: {"type":"response.output_item.done","item":{"type":"shell_call","container_id":"%d"}}\n\n'
    )
    scanner = ResponsesProtocol().scanner()

    def scan() -> None:
        for _ in range(20):
            scanner.forward(event * 1_000, keep_usage=True)

    assert peak_bytes(scan) < MIB
    for number in range(1_500):
        scanner.forward(container % number * 2, keep_usage=True)
    units = scanner.usage and scanner.usage.units
    assert units is not None
    assert (units.web_searches, units.code_containers) == (20_000, 1_000)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deeply_nested_json_is_handled_without_an_exception(opening: bytes) -> None:
    deep = opening * 10_000
    assert parse_rejection(b'{"error":' + deep).message == "The model server rejected this request"
    scanner = Completions().scanner()
    scanner.forward(b'data: {"usage":' + deep + b"\n\n", keep_usage=True)
    assert scanner.usage is None


async def test_a_list_of_models_with_too_many_values_is_refused() -> None:
    class Lists:
        async def get(self, url: str, headers: Mapping[str, str]) -> WholeBody:
            return WholeBody(b'{"data":[%s{}]}' % (b"{}," * 1_300_000))

    async def authorize(method: str, url: str, body: bytes) -> dict[str, str]:
        return {}

    queries = listing.ModelQueries(cast("Transport", Lists()), "http://127.0.0.1/v1", authorize)
    tracemalloc.start()
    with pytest.raises(UpstreamFailure, match="too many values"):
        await listing.openai_models(queries)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * MIB


async def test_many_results_of_a_web_search_do_not_block_the_loop() -> None:
    rows = b",".join(b'{"url":"http://a.b/%d"}' % number for number in range(38_000))

    class Results:
        async def send(self, *_request: Any, **_limits: Any) -> FetchResponse:
            return FetchResponse(200, {}, b'{"results":[%s]}' % rows)

    client = SearxngClient(cast("Fetcher", Results()), "http://127.0.0.1", 10)
    async with loop_time.watched() as loop:
        results = await client.search("quagga")
    assert results[0].url == "http://a.b/0"
    assert loop.longest < 0.03


def test_arguments_of_calls_are_passed_on_without_decoding() -> None:
    arguments = f'{{"a": [{EMPTY.decode()}]}}'
    chat = ChatRequest((ChatMessage("assistant", (ToolCall("c", "f", arguments),)),))

    def build() -> None:
        assert len(Messages().build_request(chat, "m", stream=False)) > len(EMPTY)

    assert peak_bytes(build) < 6 * len(EMPTY)
    assert as_json('{"a":\n [1, "b\\n c"]}') == msgspec.Raw(b'{"a":[1,"b\\n c"]}')
    assert [as_json(text) for text in ("", "{", "[" * 10_000, "\udc80")] == [None] * 4
