"""Events of a stored or background response: those that a stream of the response would have had.

Their order and numbers depend only on the response, so that a client that was disconnected continues after
the last number it has read. The text of an item is one delta.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, cast

from sixfold import errors
from sixfold.api.gateway.chat_handler import KEEP_ALIVE
from sixfold.api.gateway.openai.parsing import encode
from sixfold.api.gateway.openai.responses import dialect
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.input_limits import json_decoding

_UNFINISHED = frozenset({"queued", "in_progress"})
# The pause between two reads of an unfinished response: it grows in proportion to the time already waited.
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, _PAUSE_GROWTH = 0.25, 2.0, 1.25
_Fields = dict[str, Any]
_Event = tuple[str, _Fields]


async def stream(
    find: Callable[[], Awaitable[bytes | str]], after: int, keep_alive_seconds: float
) -> AsyncGenerator[bytes]:
    """Yield the events with numbers above `after`; `find` returns the response as JSON.

    An unfinished response is awaited. If it is deleted meanwhile, an error event ends the stream.
    """
    try:
        body = await find()
        document = await _decoded(body)
        first_events = list(_begin(document))
        for number, event in enumerate(first_events):
            if number > after:
                yield _block(number, event)
        sent_at, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        while document["status"] in _UNFINISHED:
            if time.monotonic() - sent_at >= keep_alive_seconds:
                yield KEEP_ALIVE
                sent_at = time.monotonic()
            await asyncio.sleep(pause)
            pause = min(pause * _PAUSE_GROWTH, _MAX_PAUSE_SECONDS)
            body = await find()
            document = await _decoded(body)
        for block in await PARSER.run_large(len(body), _rest, document, len(first_events), after):
            yield block
    except errors.SixfoldError as error:
        yield dialect.render_error(error, "")


async def _decoded(body: bytes | str) -> _Fields:
    raw = body.encode() if isinstance(body, str) else body
    return await PARSER.run_large(len(raw), json_decoding.decode, raw)


def _begin(document: _Fields) -> Iterator[_Event]:
    """Yield the events that come before any output."""
    empty_response: _Fields = {
        **document,
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
    }
    if document.get("background"):
        queued_response: _Fields = {**empty_response, "status": "queued"}
        yield "response.created", {"response": queued_response}
        yield "response.queued", {"response": queued_response}
    else:
        yield "response.created", {"response": {**empty_response, "status": "in_progress"}}
    yield "response.in_progress", {"response": {**empty_response, "status": "in_progress"}}


def _rest(document: _Fields, first: int, after: int) -> list[bytes]:
    """Return the events of the output and the end, of which the first has the number `first`."""
    return [_block(number, event) for number, event in enumerate(_ending(document), first) if number > after]


def _ending(document: _Fields) -> Iterator[_Event]:
    for index, item in enumerate(document["output"]):
        yield from _item(index, item)
    if document["status"] == "failed":
        problem = cast("_Fields", document.get("error") or {})
        yield "error", {"code": problem.get("code"), "message": problem.get("message"), "param": None}
    yield f"response.{document['status']}", {"response": document}


def _item(index: int, item: _Fields) -> Iterator[_Event]:
    place: _Fields = {"item_id": item.get("id"), "output_index": index}
    empty: _Fields = {}
    events: Iterator[_Event] = iter(())
    match item.get("type"):
        case "message":
            empty, events = {"content": []}, _content(item, place)
        case "reasoning":
            empty, events = {"summary": []}, _summary(item, place)
        case "function_call":
            empty, events = {"arguments": ""}, _text("function_call_arguments", "arguments", item, place)
        case "custom_tool_call":
            empty, events = {"input": ""}, _text("custom_tool_call_input", "input", item, place)
        case "mcp_call":
            empty, events = {"arguments": ""}, _text("mcp_call_arguments", "arguments", item, place)
        case _:
            pass
    status: _Fields = {"status": "in_progress"} if "status" in item else {}
    added_item: _Fields = {**item, **empty, **status}
    yield "response.output_item.added", {"output_index": index, "item": added_item}
    yield from events
    yield "response.output_item.done", {"output_index": index, "item": item}


def _parts(item: _Fields, name: str) -> list[_Fields]:
    return cast("list[_Fields]", item.get(name) or [])


def _content(item: _Fields, place: _Fields) -> Iterator[_Event]:
    for number, part in enumerate(_parts(item, "content")):
        position = {**place, "content_index": number}
        is_refusal = part.get("type") == "refusal"
        name = "refusal" if is_refusal else "text"
        text, kind = part.get(name, ""), "refusal" if is_refusal else "output_text"
        details: _Fields = {} if is_refusal else {"logprobs": []}
        annotations: _Fields = {} if is_refusal else {"annotations": []}
        empty: _Fields = {**part, name: "", **annotations}
        yield "response.content_part.added", {**position, "part": empty}
        yield f"response.{kind}.delta", {**position, "delta": text, **details}
        for each, annotation in enumerate(_parts(part, "annotations")):
            fields = {**position, "annotation_index": each, "annotation": annotation}
            yield "response.output_text.annotation.added", fields
        yield f"response.{kind}.done", {**position, name: text, **details}
        yield "response.content_part.done", {**position, "part": part}


def _summary(item: _Fields, place: _Fields) -> Iterator[_Event]:
    for number, part in enumerate(_parts(item, "summary")):
        position, text = {**place, "summary_index": number}, part.get("text", "")
        yield "response.reasoning_summary_part.added", {**position, "part": {**part, "text": ""}}
        yield "response.reasoning_summary_text.delta", {**position, "delta": text}
        yield "response.reasoning_summary_text.done", {**position, "text": text}
        yield "response.reasoning_summary_part.done", {**position, "part": part}


def _text(kind: str, name: str, item: _Fields, place: _Fields) -> Iterator[_Event]:
    text = item.get(name) or ""
    yield f"response.{kind}.delta", {**place, "delta": text}
    named = {"name": item["name"]} if kind == "function_call_arguments" else {}
    yield f"response.{kind}.done", {**place, **named, name: text}


def _block(number: int, event: _Event) -> bytes:
    kind, fields = event
    body = encode({"type": kind, "sequence_number": number, **fields})
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)
