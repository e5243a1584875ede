"""Streams of model servers: any chunking parses to the same events, without delay or loss."""

from __future__ import annotations

import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.clients.chat import sse
from sixfold.clients.chat.completions import Completions, CompletionsParser
from sixfold.clients.chat.messages import Messages
from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    MessageEnd,
    ReasoningDelta,
    ReasoningPart,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
)
from sixfold.core.gateway.pricing.usage import NOTHING

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"usage":null}\n\n'
CALL = (
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":'
    b'{"name":"f","arguments":""}}]}}]}\n\n'
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}\n\n'
)
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":3}}}\n\n'
)
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
WHOLE = CHUNK % b"Hello" + b": a comment\n\n" + CHUNK % b" you" + END + USAGE + DONE


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_stream_is_parsed_independently_of_chunks(cuts: list[int]) -> None:
    scan = CompletionsParser()
    passed = b"".join(scan.forward(piece, keep_usage=True) for piece in pieces(WHOLE, cuts))
    passed += scan.forward(b"", keep_usage=True)
    assert passed == WHOLE
    assert (scan.complete, scan.chars) == (True, 9)
    assert scan.usage is not None
    assert (scan.usage.input, scan.usage.output, scan.usage.cached) == (7, 2, 3)


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_unrequested_usage_is_removed(cuts: list[int]) -> None:
    scan = CompletionsParser()
    passed = b"".join(scan.forward(piece, keep_usage=False) for piece in pieces(WHOLE, cuts))
    passed += scan.forward(b"", keep_usage=False)
    assert b"usage" not in passed
    assert b"\n\n\n" not in passed
    assert list(sse.data(passed)) == list(sse.data(WHOLE.replace(USAGE, b"").replace(b',"usage":null', b"")))
    assert scan.usage is not None


@pytest.mark.parametrize(
    ("chunk", "passed"),
    [
        (b'{"usage": null, "choices":[]}', b'{"choices":[]}'),
        (b'{"choices":[] , "usage":null , "id":"c"}', b'{"choices":[]  , "id":"c"}'),
        (
            rb'{"choices":[{"delta":{"content":", \"usage\":null,"}}],"usage":null}',
            rb'{"choices":[{"delta":{"content":", \"usage\":null,"}}]}',
        ),
    ],
)
def test_empty_usage_is_removed_from_a_chunk(chunk: bytes, passed: bytes) -> None:
    event = b"data: %s\n\n"
    assert CompletionsParser().forward(event % chunk, keep_usage=True) == event % chunk
    assert CompletionsParser().forward(event % chunk, keep_usage=False) == event % passed


def test_an_empty_usage_of_a_large_event_is_found_quickly() -> None:
    event = CHUNK % (b"word " * 1_400_000)
    passed: list[bytes] = []

    def seconds(*, keep_usage: bool) -> float:
        parser, before = CompletionsParser(), time.thread_time()
        passed.append(parser.forward(event, keep_usage=keep_usage))
        return time.thread_time() - before

    # A pattern without a literal prefix is tried at each byte and takes more than 6 times as long.
    removing, keeping = (min(seconds(keep_usage=keep) for _ in range(4)) for keep in (False, True))
    assert removing < 4 * keeping
    assert set(passed) == {event, event.replace(b',"usage":null', b"")}


def test_usage_in_an_event_with_text_is_removed_from_it() -> None:
    event = b'data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":1}}\n\n'
    assert (
        CompletionsParser().forward(event, keep_usage=False)
        == b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    )


def test_text_that_contains_usage_is_unchanged() -> None:
    event = b'data: {"choices":[{"delta":{"content":"\\"usage\\": {"}}]}\n\n'
    assert CompletionsParser().forward(event, keep_usage=False) == event


def test_complete_events_are_forwarded_and_partial_ones_held() -> None:
    scan = CompletionsParser()
    assert scan.forward(CHUNK % b"a" + b"data: {", keep_usage=True) == CHUNK % b"a"
    assert scan.forward(b"}\n", keep_usage=True) == b""
    assert scan.forward(b"\n", keep_usage=True) == b"data: {}\n\n"


@pytest.mark.parametrize("end", [b"", END])
def test_stream_is_complete_only_after_its_end_event(end: bytes) -> None:
    scan = CompletionsParser()
    scan.forward(CHUNK % b"a" + end, keep_usage=True)
    assert scan.complete is bool(end)


def test_error_event_in_a_stream_is_reported() -> None:
    scan = CompletionsParser()
    scan.forward(b'data: {"error":{"message":"overloaded"}}\n\n', keep_usage=True)
    assert "overloaded" in scan.error


def test_tool_calls_are_streamed_as_they_arrive() -> None:
    listening = Completions().stream_parser(ChatRequest(()))
    assert list(listening.events(CALL)) == [ToolCallStart(0, "c", "f"), ToolCallDelta(0, "{}")]


@pytest.mark.parametrize(
    "call",
    [
        b'{"index":null,"id":"c","function":{"name":"f","arguments":"{\\"a\\":1}"}}',
        b'{"id":"c","function":{"name":"f","arguments":{"a":1}}}',
    ],
)
def test_tool_calls_of_each_server_format_are_parsed(call: bytes) -> None:
    listening = Completions().stream_parser(ChatRequest(()))
    chunk = b'data: {"choices":[{"delta":{"tool_calls":[%s]}}]}\n\n' % call
    assert list(listening.events(chunk)) == [ToolCallStart(0, "c", "f"), ToolCallDelta(0, '{"a":1}')]
    body = b'{"choices":[{"message":{"content":null,"tool_calls":[%s]}}]}' % call
    assert Completions().parse_response(body, ChatRequest(())).calls == (ToolCall("c", "f", '{"a":1}'),)
    assert listening.chars == Completions().usage(body)[1] == len('{"a":1}')


def test_forced_tool_call_has_the_tool_finish_reason() -> None:
    listening = Completions().stream_parser(ChatRequest(()))
    list(listening.events(CALL + END))
    assert listening.end() == MessageEnd("tool", NOTHING)
    body = b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f"}}]},"finish_reason":"stop"}]}'
    assert Completions().parse_response(body, ChatRequest(())).stop == "tool"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_sent_back_only_to_its_kind_of_server(field: str) -> None:
    wire = Completions()
    text = wire.parse_response(
        b'{"choices":[{"message":{"content":"x","%s":"hm"}}]}' % field.encode(), ChatRequest(())
    )
    assert text.parts[0] == ReasoningPart("hm", field)
    listening = wire.stream_parser(ChatRequest(()))
    thought = b'data: {"choices":[{"delta":{"%s":"hm"}}]}\n\n' % field.encode()
    events = list(listening.events(thought + CHUNK % b"x" + CHUNK % b"y"))
    assert events == [ReasoningDelta("hm"), ReasoningDelta("", field), TextDelta("x"), TextDelta("y")]
    chat = ChatRequest((ChatMessage("assistant", (*text.parts, ToolCall("c", "f", "{}"))),), effort="low")
    request = json.loads(wire.build_request(chat, "m", stream=False))
    assert request["messages"][0][field] == "hm"
    other = json.loads(Messages().build_request(chat, "m", stream=False))
    assert [block["type"] for block in other["messages"][0]["content"]] == ["text", "tool_use"]
    assert "thinking" not in other


def test_long_user_name_is_sent_as_its_hash() -> None:
    messages = [
        json.loads(Completions().build_request(ChatRequest((), user=name), "m", stream=False))
        for name in ("ada", "a" * 65)
    ]
    assert (messages[0]["user"], len(messages[1]["user"])) == ("ada", 64)


def test_last_event_without_a_terminator_is_parsed() -> None:
    data = CHUNK % b"a" + END + USAGE.rstrip(b"\n")
    scan, listening = CompletionsParser(), Completions().stream_parser(ChatRequest(()))
    assert (scan.forward(data, keep_usage=True) + scan.forward(b"", keep_usage=True)).endswith(USAGE)
    list(listening.events(data))
    list(listening.events(b""))
    assert scan.usage == listening.usage is not None


def test_error_beside_other_fields_is_reported() -> None:
    scan = CompletionsParser()
    scan.forward(b'data: {"choices":null,"error":{"message":"gone"}}\n\n', keep_usage=True)
    assert "gone" in scan.error


@pytest.mark.parametrize(
    ("reason", "believed"), [("7", 7), ("7.0", 7), ("null", None), ('"7"', None), ("9e40", None)]
)
def test_implausible_usage_numbers_are_ignored(reason: str, believed: int | None) -> None:
    body = b'{"choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":%s,"completion_tokens":1}}'
    used, chars = Completions().usage(body % reason.encode())
    assert (used.input if used is not None else None) == believed
    assert chars == (2 if believed is None else 0)


def test_cached_tokens_count_as_input() -> None:
    events = (
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":5,'
        b'"cache_read_input_tokens":3,"cache_creation_input_tokens":2,"output_tokens":1}}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"Hi"}}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
        b'"usage":{"output_tokens":4}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
    )
    listening = Messages().stream_parser(ChatRequest(()))
    assert list(listening.events(events)) == [TextDelta("Hi")]
    assert listening.complete
    assert listening.usage is not None
    assert (listening.usage.input, listening.usage.output) == (10, 4)
    assert (listening.usage.cached, listening.usage.cache_write) == (3, 2)
