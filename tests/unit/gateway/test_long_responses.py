"""Long responses and long conversations are converted in linear time and little memory."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from sixfold.api.gateway.anthropic import messages
from sixfold.api.gateway.chat_handler import ChatCall
from sixfold.api.gateway.ollama import requests as ollama
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.responses.event_writer import ResponseEventWriter
from sixfold.api.gateway.openai.responses.file_search import FileSearchOutput
from sixfold.api.gateway.openai.tools import PlainTool, ToolKind
from sixfold.api.gateway.web_search import WebSearchOutput
from sixfold.clients.chat.completions import Completions
from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    Event,
    MessageEnd,
    TextPart,
    ToolCallDelta,
    ToolCallStart,
)
from sixfold.core.gateway.guardrails import streams
from sixfold.core.gateway.guardrails.models import KINDS
from sixfold.core.gateway.guardrails.streams import EventLine, StreamMasker
from sixfold.core.gateway.ports import UpstreamFailure
from sixfold.core.gateway.pricing.usage import NOTHING
from sixfold.core.gateway.search.results import MAX_CITATIONS, WebFindings, WebResult
from sixfold.core.vector_stores.search import ChunkHit
from tests import loop_time

MANY = 40_000


def writer(**kinds: ToolKind) -> ResponseEventWriter:
    call = ChatCall("m", True, None, lambda: ChatRequest(()), tools=lambda: kinds)
    return ResponseEventWriter("req_1", "m", call)


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_texts_and_calls_of_a_response_are_collected() -> None:
    events = writer(plain=ToolKind("plain", text=True))
    events.begin()
    for text in ("a", "b"):
        events.add_reasoning(text)
    for text in ("c", "d"):
        events.add_text(text)
    events.begin_call(ToolCallStart(0, "c0", "f"))
    events.begin_call(ToolCallStart(1, "c1", "plain"))
    for number, text in ((0, '{"a"'), (1, '{"input": "x'), (0, ":1}"), (1, 'y"}')):
        events.add_arguments(ToolCallDelta(number, text))
    events.close()
    reasoning, message, function, plain = events.response(MessageEnd("end", NOTHING))["output"]
    assert (reasoning["summary"][0]["text"], message["content"][0]["text"]) == ("ab", "cd")
    assert (function["arguments"], plain["input"]) == ('{"a":1}', "xy")


def test_failed_response_has_the_text_so_far() -> None:
    events = writer()
    events.add_text("a")
    events.begin_call(ToolCallStart(0, "c0", "f"))
    events.add_arguments(ToolCallDelta(0, '{"a"'))
    final = events.fail({"message": "m"}).partition(b"event: response.failed\ndata: ")[2]
    message, call = json.loads(final)["response"]["output"]
    assert (message["content"][0]["text"], call["arguments"]) == ("a", '{"a"')


@pytest.mark.parametrize("kind", ["text", "reasoning", "call"])
def test_a_response_in_many_pieces_takes_linear_time(kind: str) -> None:
    def write() -> None:
        events = writer()
        events.begin_call(ToolCallStart(0, "c0", "f"))
        piece = "x" * 100
        for _ in range(20_000):
            if kind == "text":
                events.add_text(piece)
            elif kind == "reasoning":
                events.add_reasoning(piece)
            else:
                events.add_arguments(ToolCallDelta(0, piece))

    assert loop_time.cpu_seconds(write, 0.15) < 0.3


def test_plain_input_uses_little_more_memory_than_its_text() -> None:
    text = "x" * 2**20

    def read() -> None:
        tool = PlainTool()
        assert tool.add(json.dumps({"input": text})) == text
        assert tool.finish() == ""

    assert peak_bytes(read) < 16 * 2**20


def test_plain_input_that_begins_late_takes_linear_time() -> None:
    def read() -> None:
        tool = PlainTool()
        for _ in range(20_000):
            assert tool.add("          ") == ""
        assert tool.add('{"input": "a\\nb"}') == ""
        assert tool.finish() == "a\nb"

    assert loop_time.cpu_seconds(read, 0.05) < 0.2


def test_plain_input_in_pieces_is_returned_as_it_arrives() -> None:
    arguments = json.dumps({"input": 'a\n"b" \U0001f600 c'})
    for size in (1, 2, 5, 7):
        tool = PlainTool()
        pieces = [tool.add(arguments[at : at + size]) for at in range(0, len(arguments), size)]
        assert "".join([*pieces, tool.finish()]) == 'a\n"b" \U0001f600 c'


def system_messages() -> None:
    rows: list[dict[str, str]] = [{"role": "user", "content": "a"}]
    rows += [{"role": "system", "content": "b"}] * MANY
    chat = messages.parse(json.dumps({"messages": rows, "max_tokens": 1}).encode())
    (message,) = chat.messages
    assert len(message.parts) == 1 + MANY


def turns_of_one_role() -> None:
    turns = tuple(ChatMessage("assistant", (TextPart("a"),)) for _ in range(MANY))
    body = json.loads(Completions().build_request(ChatRequest(turns), "m", stream=False))
    assert [row["content"] for row in body["messages"]] == ["a" * MANY]


def calls_answered_in_reverse() -> None:
    numbers = range(10_000)
    calls = [{"id": f"c{number}", "function": {"name": "f"}} for number in numbers]
    results = [{"role": "tool", "tool_call_id": f"c{number}", "content": "a"} for number in reversed(numbers)]
    rows: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": calls}, *results]
    chat = ollama.parse_chat(json.dumps({"model": "m", "messages": rows}).encode()).parse()
    assert len(chat.messages) == 1 + len(numbers)


@pytest.mark.parametrize("work", [system_messages, turns_of_one_role, calls_answered_in_reverse])
def test_a_conversation_of_many_messages_takes_linear_time(work: Callable[[], None]) -> None:
    assert loop_time.cpu_seconds(work, 0.3) < 0.6


def test_results_of_ollama_answer_the_first_open_call_that_fits() -> None:
    calls = [{"id": name, "function": {"name": tool}} for name, tool in (("a", "f"), ("b", "g"), ("c", "f"))]
    results = [{"tool_name": "g"}, {}, {"tool_call_id": "c", "tool_name": "f"}]
    rows = [{"role": "assistant", "tool_calls": calls}, *({"role": "tool", **row} for row in results)]
    chat = ollama.parse_chat(json.dumps({"model": "m", "messages": rows}).encode()).parse()
    answered: list[Any] = [message.parts[0] for message in chat.messages[1:]]
    assert [result.call_id for result in answered] == ["b", "a", "c"]
    with pytest.raises(InvalidRequest, match="does not match a tool call"):
        ollama.parse_chat(json.dumps({"model": "m", "messages": [*rows, {"role": "tool"}]}).encode())


async def test_calls_queued_in_a_stream_of_messages_do_not_nest() -> None:
    async def events() -> AsyncGenerator[Event]:
        for number in range(3_000):
            yield ToolCallStart(number, f"c{number}", "f")
        for number in reversed(range(3_000)):
            yield ToolCallDelta(number, "{}")
        yield MessageEnd("tool", NOTHING)

    call = ChatCall("m", True, 9, lambda: ChatRequest(()))
    blocks = [block async for block in messages.render_stream(events(), call, "req_1")]
    stream = b"".join(blocks)
    assert stream.count(b'"type":"content_block_start"') == 3_000
    assert stream.count(b'"partial_json":"{}"') == 3_000
    assert stream.count(b'"type":"content_block_stop"') == 3_000


def choice(index: int, text: str = "a") -> bytes:
    return b'data: {"choices":[{"index":%d,"delta":{"content":"%s"}}]}\n' % (index, text.encode())


def test_a_masked_stream_of_many_texts_takes_linear_time() -> None:
    lines = [choice(index) for index in range(4_000)]

    def mask() -> None:
        masker = StreamMasker[bytes](KINDS)
        output = [part for line in lines for part in masker.add(EventLine(line, KINDS))]
        assert b"".join([*output, *masker.end()]) == b"".join(lines)

    assert loop_time.cpu_seconds(mask, 0.5) < 1


def test_a_masked_stream_has_a_limit_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_CHANNELS", 3)
    masker = StreamMasker[bytes](KINDS)
    for index in (0, 1, 2, 0):
        list(masker.add(EventLine(choice(index), KINDS)))
    with pytest.raises(UpstreamFailure, match="more than 3 text channels"):
        list(masker.add(EventLine(choice(3), KINDS)))


async def test_a_large_event_is_masked_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    add = StreamMasker.add

    def record(masker: Any, item: Any) -> Any:
        threads.append(threading.current_thread())
        return add(masker, item)

    monkeypatch.setattr(StreamMasker, "add", record)

    async def source() -> AsyncGenerator[bytes]:
        yield choice(0)
        yield choice(0, "bob@example.com " * 10_000)

    output = b"".join([block async for block in streams.mask_blocks(source(), KINDS)])
    assert output.count(b"[EMAIL]") == 10_000
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


def test_citations_of_a_text_have_a_limit() -> None:
    hit = ChunkHit("file-1", "a.txt", {}, "text", 1.0)
    result = WebResult("title", "https://example.com", "text")
    searches = FileSearchOutput("q", [hit], with_results=False), WebSearchOutput(WebFindings("q", [result]))
    for search in searches:
        assert len(search.annotations("[1][2]" * 20)) == 20
        assert len(search.annotations("[1]" * 20_000)) == MAX_CITATIONS
