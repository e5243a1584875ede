"""Fake model server that returns a given text in chunks of three characters, in four protocols."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes import fault_server

PIECE = 3
_CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


@dataclass
class SayingServer:
    """Configured text, and the received requests."""

    says: str = ""
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _take(self, request: Request) -> dict[str, Any]:
        self.requests.append(json.loads(await request.body()))
        return self.requests[-1]

    def _pieces(self) -> list[str]:
        return [self.says[at : at + PIECE] for at in range(0, len(self.says), PIECE)]

    async def chat(self, request: Request) -> Response:
        shared = {"id": "c", "object": "chat.completion", "created": 1, "model": "small"}
        if not (await self._take(request)).get("stream"):
            message = {"role": "assistant", "content": self.says}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return JSONResponse({**shared, "choices": [choice], "usage": _CHAT_USAGE})
        deltas: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}]
        deltas += [{"delta": {"content": piece}} for piece in self._pieces()]
        deltas.append({"delta": {}, "finish_reason": "stop"})
        events = [{**shared, "choices": [{"index": 0, **delta}]} for delta in deltas]
        return _events([*events, {**shared, "choices": [], "usage": _CHAT_USAGE}], done=True)

    async def complete(self, request: Request) -> Response:
        shared = {"id": "t", "object": "text_completion", "created": 1, "model": "small"}
        if not (await self._take(request)).get("stream"):
            choice = {"index": 0, "text": self.says, "finish_reason": "stop"}
            return JSONResponse({**shared, "choices": [choice], "usage": _CHAT_USAGE})
        texts: list[dict[str, Any]] = [{"text": piece, "finish_reason": None} for piece in self._pieces()]
        texts.append({"text": "", "finish_reason": "stop"})
        events = [{**shared, "choices": [{"index": 0, **text}]} for text in texts]
        return _events([*events, {**shared, "choices": [], "usage": _CHAT_USAGE}], done=True)

    async def messages(self, request: Request) -> Response:
        answer = {"id": "m", "type": "message", "role": "assistant", "model": "small"}
        answer |= {"stop_reason": "end_turn", "stop_sequence": None, "usage": _USAGE}
        if not (await self._take(request)).get("stream"):
            return JSONResponse({**answer, "content": [{"type": "text", "text": self.says}]})
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**answer, "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        ]
        events += [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in self._pieces()
        ]
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        events += [{"type": "content_block_stop", "index": 0}]
        events += [{"type": "message_delta", "delta": delta, "usage": _USAGE}, {"type": "message_stop"}]
        return _events(events)

    async def count(self, request: Request) -> Response:
        await self._take(request)
        return JSONResponse({"input_tokens": 7})

    async def responses(self, request: Request) -> Response:
        part = {"type": "output_text", "text": self.says, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        answer = {"id": f"resp_{len(self.requests)}", "object": "response", "created_at": 1, "model": "small"}
        answer |= {"status": "completed", "output": [{**item, "content": [part]}], "usage": _USAGE}
        answer |= {"parallel_tool_calls": True, "tools": [], "tool_choice": "auto"}
        if not (await self._take(request)).get("stream"):
            return JSONResponse(answer)
        position = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {**answer, "output": [], "usage": None}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
            {"type": "response.content_part.added", **position, "part": {**part, "text": ""}},
        ]
        events += [
            {"type": "response.output_text.delta", **position, "delta": piece, "logprobs": []}
            for piece in self._pieces()
        ]
        events += [{"type": "response.output_text.done", **position, "text": self.says, "logprobs": []}]
        events += [{"type": "response.completed", "response": answer}]
        return _events([{**event, "sequence_number": index} for index, event in enumerate(events)])


def _events(events: list[dict[str, Any]], *, done: bool = False) -> Response:
    named = "type" in events[0]
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    ]
    return Response(
        "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]), media_type="text/event-stream"
    )


@asynccontextmanager
async def saying_server() -> AsyncIterator[SayingServer]:
    server = SayingServer()
    routes = [
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/completions", server.complete, methods=["POST"]),
        Route("/v1/messages", server.messages, methods=["POST"]),
        Route("/v1/responses", server.responses, methods=["POST"]),
        Route("/v1/messages/count_tokens", server.count, methods=["POST"]),
        Route("/v1/responses/input_tokens", server.count, methods=["POST"]),
    ]
    async with fault_server.serve(routes) as port:
        server.port = port
        yield server
