"""Responses of hostile model servers: many parts, long ids, several ends, texts that delay each other."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.api.gateway.openai.embeddings.routes import read_vectors
from sixfold.api.gateway.openai.responses import references
from sixfold.api.gateway.openai.responses.capture import CapturePlan, ResponseCapture
from sixfold.api.gateway.provider_objects import ObjectRecorder
from sixfold.clients.chat.completions import Completions
from sixfold.clients.chat.converse import Converse
from sixfold.clients.chat.gemini import Gemini
from sixfold.clients.chat.messages import Messages
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.gateway import attempts
from sixfold.core.gateway.chat import MAX_RESPONSE_CHARS, MAX_RESPONSE_PARTS, ChatRequest
from sixfold.core.gateway.content_log import recorder
from sixfold.core.gateway.conversations.responses import ResponseStore
from sixfold.core.gateway.guardrails import streams
from sixfold.core.gateway.guardrails.service import MaskFilter
from sixfold.core.gateway.guardrails.streams import CollectedStream
from sixfold.core.gateway.ports import WireProtocol
from sixfold.core.gateway.reranking import parse_ranking
from tests.unit.gateway.test_response_stream import END, stream_of

MIB = 2**20
PARTS = f"more than {MAX_RESPONSE_PARTS:,} texts, pieces of reasoning and tool calls"
CHARS = f"more than {MAX_RESPONSE_CHARS:,} characters of text"
LONG = b"i" * (MAX_RESPONSE_CHARS + 1)
COMPLETIONS_CALL = b'data: {"choices":[{"delta":{"tool_calls":[{"index":%d}]}}]}\n\n'
MESSAGES_CALL = b'data: {"type":"content_block_start","index":%d,"content_block":{"type":"tool_use"}}\n\n'
GEMINI_CALL = b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f%d"}}]}}]}\n\n'
ALTERNATION = (
    b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\ndata: {"choices":[{"delta":{"reasoning":"b"}}]}\n\n'
)


@pytest.mark.parametrize(
    ("wire", "event"),
    [
        (Completions(), COMPLETIONS_CALL),
        (Completions(), ALTERNATION),
        (Messages(), MESSAGES_CALL),
        (Gemini(), GEMINI_CALL),
    ],
    ids=["completions", "alternation", "messages", "gemini"],
)
async def test_parts_of_a_converted_stream_are_limited(wire: WireProtocol, event: bytes) -> None:
    events = b"".join(event % number for number in range(MAX_RESPONSE_PARTS + 1))
    stream = stream_of(events, wire=wire)
    with pytest.raises(errors.EngineFailed, match=PARTS):
        async for _ in stream.events():
            pass


@pytest.mark.parametrize(
    ("wire", "event"),
    [
        (Completions(), b'data: {"choices":[{"delta":{"tool_calls":[{"id":"%s"}]}}]}\n\n' % LONG),
        (
            Messages(),
            b'data: {"type":"content_block_delta","delta":{"type":"signature_delta","signature":"%s"}}\n\n'
            % LONG,
        ),
    ],
    ids=["id", "signature"],
)
async def test_ids_and_signatures_count_as_characters(wire: WireProtocol, event: bytes) -> None:
    stream = stream_of(event, wire=wire)
    with pytest.raises(errors.EngineFailed, match=CHARS):
        async for _ in stream.events():
            pass


@pytest.mark.parametrize(
    ("wire", "body", "message"),
    [
        (Completions(), b'{"choices":[{"message":{"tool_calls":[%s{}]}}]}' % (b"{}," * 2_000), PARTS),
        (Converse(), b'{"output":{"message":{"content":[%s{}]}}}' % (b'{"toolUse":{}},' * 2_001), PARTS),
        (Completions(), b'{"id":"%s","choices":[{"message":{"content":"a"}}]}' % LONG, CHARS),
    ],
    ids=["calls", "converse", "id"],
)
def test_a_converted_response_is_limited(wire: WireProtocol, body: bytes, message: str) -> None:
    with pytest.raises(errors.EngineFailed, match=message):
        attempts.parse_answer(wire, body, ChatRequest(()))


class Endless:
    """An error response without an end."""

    status, retry_after = 500, ""

    def __init__(self) -> None:
        self.sent = 0

    async def read(self) -> bytes:
        self.sent += MIB // 4
        return bytes(MIB // 4)

    async def aclose(self) -> None:
        pass


async def test_a_long_error_is_not_read_to_its_end() -> None:
    stream = Endless()
    assert await attempts._read_error(stream) == b""
    assert stream.sent <= 2 * MIB


class Store:
    """A store that collects the records of responses."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    async def record(self, *record: Any, in_background: bool = False) -> None:
        assert not in_background
        self.records.append(record)


def capture_of(store: Store) -> ResponseCapture:
    plan = CapturePlan(Tenant("acct_1"), keep=True, previous="", raw=b'{"input":"hi"}')
    return ResponseCapture(cast("ResponseStore", store), plan)


async def blocks_of(*blocks: bytes) -> AsyncGenerator[bytes]:
    for block in blocks:
        yield block


def end(number: int) -> bytes:
    response = b'{"id":"resp_%d","status":"completed","output":[]}' % number
    return b'data: {"type":"response.completed","response":%s}\r\n\r\n' % response


async def test_only_the_first_end_of_a_response_is_stored() -> None:
    store = Store()
    blocks = [end(1) + end(2), end(3)]
    sent = [block async for block in capture_of(store).record_stream(blocks_of(*blocks), "")]
    assert sent == blocks
    assert [record[1].id for record in store.records] == ["resp_1"]


async def test_invalid_items_and_long_ids_are_not_stored() -> None:
    store = Store()
    body = b'{"id":"resp_1","status":"completed","store":true,"output":[%s]}'
    sent = body % (b'1,"a",{"id":5},{"id":[1]},{"id":"%s"},{"id":"msg_1"}' % (b"x" * 300))
    assert await capture_of(store).record(sent, "acme/small") == sent
    assert store.records[0][2].ids == ("msg_1",)
    deep = body % (b"[" * 20_000 + b"]" * 20_000)
    assert await capture_of(store).record(deep, "acme/small") == deep
    long_id = b'{"id":"%s","status":"completed","output":[]}' % (b"r" * 300)
    assert await capture_of(store).record(long_id, "") == long_id
    assert len(store.records) == 1


async def test_ids_of_objects_in_a_stream_are_limited() -> None:
    store = Store()
    recording = ObjectRecorder(cast("ResponseStore", store), Tenant("acct_1"), "chat")
    event = b'data: {"choices":[{"delta":{"audio":{"id":"%s"}}}]}\n\n'
    events = event % LONG + b"".join(event % b"audio_%d" % number for number in range(1_200))
    blocks = [block async for block in recording.record_stream(blocks_of(events), "acme/small")]
    assert blocks == [events]
    assert [len(record[2].ids) for record in store.records] == [1_000]
    assert references.created([], stored=True) == ()


# -- guardrails and the content log ------------------------------------------------------------------

UNDECIDED = b'data: {"choices":[{"index":0,"delta":{"content":"sk-"}}]}\n\n'
OTHER_CHANNEL = b'data: {"choices":[{"index":1,"delta":{"content":" "}}]}\n\n'


async def collect(source: AsyncGenerator[bytes]) -> bytes:
    return b"".join([block async for block in source])


@pytest.mark.parametrize("more", [OTHER_CHANNEL, b":\n\n"], ids=["text", "comment"])
async def test_lines_behind_an_undecided_text_are_limited(more: bytes) -> None:
    blocks = blocks_of(UNDECIDED, *([more * 1_000] * 10))
    with pytest.raises(errors.EngineFailed, match="cannot be masked"):
        await collect(MaskFilter(["secrets"]).blocks(blocks))


async def test_a_last_line_without_an_end_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_CHANNELS", 0)
    with pytest.raises(errors.EngineFailed, match="more than 0 text channels"):
        await collect(MaskFilter(["secrets"]).blocks(blocks_of(UNDECIDED.rstrip())))


@pytest.mark.parametrize("raw", [True, False])
async def test_a_stream_that_cannot_be_masked_has_failed(raw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_CHANNELS", 0)
    outcomes: list[str] = []
    stream = stream_of(OTHER_CHANNEL.replace(b"1", b"0") + END, ended=outcomes)
    stream.filter = MaskFilter(["secrets"])
    with pytest.raises(errors.EngineFailed, match="more than 0 text channels"):
        async for _ in stream.blocks() if raw else stream.events():
            pass
    assert outcomes == ["failed"]


async def test_endless_line_is_not_masked() -> None:
    blocks = blocks_of(*([b"a" * MIB] * 20))
    with pytest.raises(errors.EngineFailed, match="a line that is too long"):
        await collect(MaskFilter(["secrets"]).blocks(blocks))


@pytest.mark.parametrize(
    "line",
    [
        b'data: {"choices":[{"index":[1],"delta":{"content":"a b"}}]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":{},"function":{"arguments":"a b"}}]}}]}\n\n',
        b'data: {"type":"content_block_delta","index":[],"delta":{"text":"a b"}}\n\n',
        b'data: {"type":"response.output_text.delta","item_id":{},"delta":"a b"}\n\n',
    ],
)
async def test_a_channel_may_have_a_name_of_any_type(line: bytes) -> None:
    assert await collect(MaskFilter(["secrets"]).blocks(blocks_of(line))) == line


def test_collected_lines_without_data_take_no_objects() -> None:
    data = b":\n" * MIB + UNDECIDED + b"\n" * MIB
    tracemalloc.start()
    collected = CollectedStream([*streams.lines_of(data)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert collected.texts == ["sk-"]
    assert b"".join(collected.output(["sk-"])) == data
    assert b"".join(collected.output(["masked"])) == data.replace(b'"sk-"', b'"masked"')
    assert peak < 2 * len(data)


async def test_content_log_reads_a_limited_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_MAX_LINES", 3)
    read: list[Any] = []
    logging = recorder._RecordingFilter(read.append, None)
    sent = OTHER_CHANNEL * 5 + END
    assert await collect(logging.blocks(blocks_of(sent))) == sent
    assert read[0]() == "   "


# -- embeddings and rankings -------------------------------------------------------------------------


def test_vectors_are_not_decoded() -> None:
    body = b'{"data":[{"embedding":[%s1]}],"usage":{"prompt_tokens":7}}' % (b"1," * MIB)
    tracemalloc.start()
    vectors, tokens = read_vectors(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(vectors), len(bytes(vectors[0])), tokens) == (1, 2 * MIB + 3, 7)
    assert peak < 2 * len(body)
    with pytest.raises(errors.EngineFailed, match="did not return vectors"):
        read_vectors(b'{"data":[{"embedding":"AAAA"}]}')


def test_a_document_is_ranked_once() -> None:
    rows = b'{"index":1,"relevance_score":0.5},{"index":0,"relevance_score":0.9},' * 1_000
    ranking = parse_ranking(b'{"results":[%s{"index":1,"score":1}]}' % rows)
    assert [(document.index, document.score) for document in ranking] == [(0, 0.9), (1, 0.5)]
    with pytest.raises(ValueError, match="more than 10,000"):
        parse_ranking(b"[%s]" % b",".join(b'{"index":%d,"score":1}' % number for number in range(10_001)))
