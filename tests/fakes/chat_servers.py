"""Fake model servers on loopback: OpenAI's chat completions and responses, Anthropic's messages, and faults.

The request determines the response: `say N words` returns N words, an available tool is called, and
requested JSON is returned. One word is one output token, one message ten input tokens.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.fakes import fault_server
from tests.fakes.openai_media import MediaEndpoints

MODELS = ("small", "large")
_WORDS = re.compile(r"say (\d+) words")


def _same_usage(usage: dict[str, Any]) -> Any:
    return usage


@dataclass
class ReceivedRequest:
    """Received request."""

    path: str
    headers: dict[str, str]
    document: dict[str, Any]
    raw: bytes


@dataclass
class ModelServer:
    """Fake model server: the requests it received, and its configured behavior.

    `mode` is well, fail, refuse, excess, limit, key, hang, slow, wait, truncate, trickle, cut, garbage, sorry
    or nousage, or infinite or many for moderations; those in `modes` come first, one for each request.
    """

    port: int = 0
    mode: str = "well"
    modes: list[str] = field(default_factory=list[str])
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    request_event: asyncio.Event = field(default_factory=asyncio.Event)
    disconnect_event: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    # Ids of responses that were deleted.
    forgotten: list[str] = field(default_factory=list[str])
    # Items of a native response before its message.
    items: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    # Text of chat completions in place of the requested one.
    answer: str = ""
    # Chats call a tool only for a last message with this text.
    tool_word: str = ""
    # The arguments of calls of tools in chats, and whether a tool's result is answered by another call.
    tool_arguments: dict[str, Any] = field(default_factory=lambda: {"city": "Oslo"})
    calls_forever: bool = False
    # Fields of a chat's message and of an Anthropic message that name objects it stores.
    stored_fields: dict[str, Any] = field(default_factory=dict[str, Any])
    # Whether a stream ends with its usage although the request does not ask for it.
    always_usage: bool = False
    # How many events of a stream "trickle" holds back; 0 for half of them.
    withheld_events: int = 0
    # Changes the usage that a chat, a response or a message reports.
    report: Callable[[dict[str, Any]], Any] = _same_usage

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
            Route("/v1/responses/compact", self.compact, methods=["POST"]),
            Route("/v1/responses/input_tokens", self.count_response, methods=["POST"]),
            Route("/v1/responses/{response_id}", self.forget, methods=["DELETE"]),
            Route("/v1/messages", self.messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", self.count, methods=["POST"]),
            *MediaEndpoints(self).routes(),
        ]

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})

    async def chat(self, request: Request) -> Response:
        document, mode, fault = await self._take(request)
        if fault is not None:
            return fault
        if self.tool_word not in json.dumps(document["messages"][-1]):
            document = {**document, "tools": []}
        reply = _chat_reply(document, self.tool_arguments, forever=self.calls_forever)
        if self.answer:
            reply |= {"text": self.answer, "tokens": len(self.answer.split())}
        usage = self.usage(document, reply)
        shared = {"id": "chatcmpl-1", "created": 1, "model": document["model"]}
        if not document.get("stream"):
            message = {"role": "assistant", "content": reply["text"], "tool_calls": reply["calls"]}
            message |= self.stored_fields
            if not reply["calls"]:
                del message["tool_calls"]
            choice = {"index": 0, "message": message, "finish_reason": reply["stop"]}
            answer = {**shared, "object": "chat.completion", "choices": [choice], "usage": usage}
            if mode == "nousage":
                del answer["usage"]
            return self._full_reply(answer, mode)
        expected = self.always_usage or (document.get("stream_options") or {}).get("include_usage")
        chunks = _chat_chunks(shared, reply, usage if expected and mode != "nousage" else None)
        if self.stored_fields:
            choice = {"index": 0, "delta": self.stored_fields, "finish_reason": None}
            chunks.insert(1, b"data: " + json.dumps({**shared, "choices": [choice]}).encode() + b"\n\n")
        return self._stream(chunks, mode)

    async def complete(self, request: Request) -> Response:
        """Continue each prompt `n` times with the words that it names."""
        document, mode, fault = await self._take(request)
        if fault is not None:
            return fault
        prompts = document["prompt"] if isinstance(document["prompt"], list) else [document["prompt"]]
        words = [_words(str(prompt)).split()[: document.get("max_tokens")] for prompt in prompts]
        words = [each for each in words for _ in range(document.get("n") or 1)]
        tokens = sum(map(len, words))
        usage = {"prompt_tokens": 5 * len(prompts), "completion_tokens": tokens}
        usage["total_tokens"] = sum(usage.values())
        shared = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": document["model"]}

        def choice(index: int, text: str, stop: str | None) -> dict[str, Any]:
            return {"index": index, "text": text, "logprobs": None, "finish_reason": stop}

        if not document.get("stream"):
            choices = [choice(index, " ".join(each), "stop") for index, each in enumerate(words)]
            answer = {**shared, "choices": choices, "usage": usage}
            if mode == "nousage":
                del answer["usage"]
            return self._full_reply(answer, mode)
        pieces = [choice(index, f" {word}", None) for index, each in enumerate(words) for word in each]
        pieces += [choice(index, "", "stop") for index in range(len(words))]
        documents = [{**shared, "choices": [piece]} for piece in pieces]
        if document.get("stream_options", {}).get("include_usage") and mode != "nousage":
            documents.append({**shared, "choices": [], "usage": usage})
        events = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in documents]
        return self._stream([*events, b"data: [DONE]\n\n"], mode)

    def usage(self, document: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        usage = {"prompt_tokens": 10 * len(document["messages"]), "completion_tokens": reply["tokens"]}
        usage |= {"total_tokens": sum(usage.values()), "prompt_tokens_details": {"cached_tokens": 4}}
        return self.report(usage)

    async def responses(self, request: Request) -> Response:
        document, mode, fault = await self._take(request)
        if fault is not None:
            return fault
        usage = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
        part = {"type": "output_text", "text": "I am native", "annotations": []}
        item = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        answer: dict[str, Any] = {
            "id": f"resp_{len(self.requests)}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
        }
        answer |= {
            "model": document["model"],
            "output": [*self.items, item],
            "usage": self.report(usage),
            "parallel_tool_calls": True,
        }
        answer |= {
            "tools": [],
            "tool_choice": "auto",
            "error": None,
            "incomplete_details": None,
            "metadata": {},
            "store": document.get("store") is not False,
        }
        if not document.get("stream"):
            return self._full_reply(answer, mode)
        delta = {"type": "response.output_text.delta", "delta": "I am native", "item_id": "msg_1"}
        delta |= {"output_index": 0, "content_index": 0, "logprobs": []}
        events = [{"type": "response.created", "response": {**answer, "usage": None}}, delta]
        events.append({"type": "response.completed", "response": answer})
        numbered = [{**event, "sequence_number": index} for index, event in enumerate(events)]
        return self._stream([_named_event(event) for event in numbered], mode)

    async def compact(self, request: Request) -> Response:
        """Compact a conversation as OpenAI does."""
        _, mode, fault = await self._take(request)
        if fault is not None:
            return fault
        item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAnative"}
        answer: dict[str, Any] = {"id": "resp_c1", "object": "response.compaction", "created_at": 1}
        answer |= {"output": [item]}
        answer |= {"usage": {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}}
        return self._full_reply(answer, mode)

    async def count_response(self, request: Request) -> Response:
        document, _, fault = await self._take(request)
        tokens = {"object": "response.input_tokens", "input_tokens": 7 * len(document["input"])}
        return fault or JSONResponse(tokens)

    async def forget(self, request: Request) -> Response:
        self.forgotten.append(request.path_params["response_id"])
        return JSONResponse({"deleted": True}, 500 if self.mode == "fail" else 200)

    async def messages(self, request: Request) -> Response:
        document, mode, fault = await self._take(request)
        if fault is not None:
            return fault
        assert document["max_tokens"] >= 1
        reply = _message_reply(document)
        usage = {"input_tokens": 10 * len(document["messages"]), "output_tokens": reply["tokens"]}
        usage |= {"cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": document["model"]}
        answer |= {
            "content": reply["blocks"],
            "stop_reason": reply["stop"],
            "stop_sequence": None,
            "usage": self.report(usage),
            **self.stored_fields,
        }
        if not document.get("stream"):
            if mode == "nousage":
                del answer["usage"]
            return self._full_reply(answer, mode)
        return self._stream(_message_events(answer), mode)

    async def count(self, request: Request) -> Response:
        document, _, fault = await self._take(request)
        return fault or JSONResponse({"input_tokens": 7 * len(document["messages"])})

    async def _take(self, request: Request) -> tuple[dict[str, Any], str, Response | None]:
        return await self.take(request, json.loads(await request.body()))

    async def take(
        self, request: Request, document: dict[str, Any]
    ) -> tuple[dict[str, Any], str, Response | None]:
        """Record a request; return its body, the mode, and the response of a fault if the mode is one."""
        raw = request._body if hasattr(request, "_body") else b""
        self.requests.append(ReceivedRequest(request.url.path, dict(request.headers), document, raw))
        self.request_event.set()
        mode = self.modes.pop(0) if self.modes else self.mode
        if mode == "hang":
            await asyncio.Event().wait()
        if mode == "wait":
            await self.go_on.wait()
        says = "This model's maximum context length is 9 tokens" if mode == "excess" else "It says so"
        error = {"error": {"message": says, "type": "x", "param": "temperature", "code": "y"}}
        faults = {"fail": 500, "refuse": 400, "excess": 400, "limit": 429, "key": 401}
        return document, mode, JSONResponse(error, faults[mode]) if mode in faults else None

    def _full_reply(self, answer: dict[str, Any], mode: str) -> Response:
        text = json.dumps(answer).encode()
        if mode == "garbage":
            text = b"<html>not what you asked</html>"
        if mode == "truncate":
            text = text[: len(text) // 2]
        return Response(text, media_type="application/json")

    def _stream(self, events: list[bytes], mode: str) -> Response:
        if mode == "garbage":
            return JSONResponse({"error": {"message": "no room"}})
        if mode == "sorry":
            events = [b'data: {"error":{"message":"no room"}}\n\n']

        async def pieces() -> AsyncIterator[bytes]:
            try:
                if mode == "slow":
                    await self.go_on.wait()
                for index, event in enumerate(events):
                    if mode == "truncate" and index == len(events) // 2:
                        return
                    if mode == "trickle" and index == len(events) - (
                        self.withheld_events or -(-len(events) // 2)
                    ):
                        await self.go_on.wait()
                    if mode == "cut":
                        yield event[:7]
                        await asyncio.sleep(0)
                        event = event[7:]
                    yield event
            finally:
                self.disconnect_event.set()

        return StreamingResponse(pieces(), media_type="text/event-stream")


def _words(text: str) -> str:
    result = _WORDS.search(text)
    return " ".join(["word"] * int(result[1])) if result else "Hello there"


def _chat_reply(
    document: dict[str, Any], arguments: dict[str, Any], *, forever: bool = False
) -> dict[str, Any]:
    last = document["messages"][-1]
    content = last["content"]
    text = (
        content if isinstance(content, str) else " ".join(p.get("text", "<picture>") for p in content or [])
    )
    tools = document.get("tools") or []
    if tools and document.get("tool_choice") != "none" and (forever or last["role"] != "tool"):
        function = {"name": tools[0]["function"]["name"], "arguments": json.dumps(arguments)}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        return {"text": None, "calls": calls, "stop": "tool_calls", "tokens": 5}
    if document.get("response_format"):
        return {"text": json.dumps({"city": "Oslo"}), "calls": [], "stop": "stop", "tokens": 5}
    message = f"The tool said {text}" if last["role"] == "tool" else _words(text)
    if "<picture>" in text:
        message = "I see a picture"
    words = message.split()
    limit = document.get("max_tokens") or document.get("max_completion_tokens") or 10_000
    cut = words[:limit]
    return {
        "text": " ".join(cut),
        "calls": [],
        "stop": "length" if cut != words else "stop",
        "tokens": len(cut),
    }


def _chat_chunks(shared: dict[str, Any], reply: dict[str, Any], usage: dict[str, Any] | None) -> list[bytes]:
    def chunk(delta: dict[str, Any], stop: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        document = {**shared, "object": "chat.completion.chunk", "choices": [choice]}
        return b"data: " + json.dumps({**document, "usage": None} if usage else document).encode() + b"\n\n"

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"content": piece}) for piece in re.findall(r"\s*\S+", reply["text"] or "")]
    for call in reply["calls"]:
        function = call["function"]
        call_start = {**call, "index": 0, "function": {"name": function["name"], "arguments": ""}}
        events.append(chunk({"tool_calls": [call_start]}))
        half = len(function["arguments"]) // 2
        for part in (function["arguments"][:half], function["arguments"][half:]):
            events.append(chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}))
    events.append(chunk({}, reply["stop"]))
    if usage:
        last = {**shared, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        events.append(b"data: " + json.dumps(last).encode() + b"\n\n")
    events.append(b"data: [DONE]\n\n")
    return events


def _named_event(event: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), json.dumps(event).encode())


def _message_reply(document: dict[str, Any]) -> dict[str, Any]:
    last = document["messages"][-1]["content"]
    blocks = last if isinstance(last, list) else [{"type": "text", "text": last}]
    kinds = {block["type"] for block in blocks}
    tools = document.get("tools") or []
    if tools and "tool_result" not in kinds:
        call = {"type": "tool_use", "id": "toolu_1", "name": tools[0]["name"], "input": {"city": "Oslo"}}
        return {"blocks": [call], "stop": "tool_use", "tokens": 5}
    text = _words(" ".join(block.get("text", "") for block in blocks))
    if "tool_result" in kinds:
        text = f"The tool said {blocks[0]['content'][0]['text']}"
    if "image" in kinds:
        text = "I see a picture"
    words = text.split()
    cut = words[: document["max_tokens"]]
    stop = "max_tokens" if cut != words else "end_turn"
    return {"blocks": [{"type": "text", "text": " ".join(cut)}], "stop": stop, "tokens": len(cut)}


def _message_events(answer: dict[str, Any]) -> list[bytes]:
    blank = {
        **answer,
        "container": None,
        "content": [],
        "stop_reason": None,
        "usage": {**answer["usage"], "output_tokens": 1} if answer["usage"] else None,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": blank}, {"type": "ping"}]
    for index, block in enumerate(answer["content"]):
        text = block["type"] == "text"
        empty = {"type": "text", "text": ""} if text else {**block, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        pieces = re.findall(r"\s?\S+", block["text"]) if text else [json.dumps(block["input"])]
        for piece in pieces:
            delta = {"type": "text_delta", "text": piece} if text else None
            delta = delta or {"type": "input_json_delta", "partial_json": piece}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    usage = {"output_tokens": (answer["usage"] or {}).get("output_tokens")}
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    delta |= {"container": answer["container"]} if "container" in answer else {}
    events += [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]
    return [_named_event(event) for event in events]


@asynccontextmanager
async def model_server(port: int = 0) -> AsyncGenerator[ModelServer, None]:
    fake = ModelServer()
    async with fault_server.serve(fake.routes(), port) as fake.port:
        yield fake
