"""Ollama as a model server: its OpenAI-compatible `/v1`, through every API of the gateway.

The fake answers by https://docs.ollama.com/api/openai-compatibility.md: thoughts in `reasoning`, a call whole
in one piece, usage in a last piece without choices; and every call at index 0, as in ollama/ollama#15457.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.api.gateway import Gateway, running_gateway
from tests.api.test_gateway import PIXEL
from tests.fakes import fault_server

USAGE = {"prompt_tokens": 26, "completion_tokens": 7, "total_tokens": 33}
ENTRY = {"id": "qwen3:4b", "object": "model", "created": 1, "owned_by": "library"}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
    for name in ("weather", "time")
]


class Ollama:
    """Fake Ollama that records its requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def routes(self) -> list[Route]:
        return [Route("/v1/models", self.models), Route("/v1/chat/completions", self.chat, methods=["POST"])]

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [ENTRY]})

    async def chat(self, request: Request) -> Response:
        requests = json.loads(await request.body())
        self.requests.append(requests)
        message: dict[str, Any] = {"role": "assistant", "content": "Four.", "reasoning": "Two and two."}
        stop = "stop"
        if requests.get("tools"):
            message["content"], stop = "", "tool_calls"
            message["tool_calls"] = [
                {
                    "id": f"call_{n}",
                    "index": 0,
                    "type": "function",
                    "function": {"name": tool["function"]["name"], "arguments": json.dumps({"n": n})},
                }
                for n, tool in enumerate(requests["tools"])
            ]
        head = {"id": "chatcmpl-1", "created": 1, "model": "qwen3:4b", "system_fingerprint": "fp_ollama"}
        if not requests.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": stop}
            document = {**head, "object": "chat.completion", "choices": [choice], "usage": USAGE}
            return JSONResponse(document)
        assert requests["stream_options"] == {"include_usage": True}
        pieces = [{"role": "assistant", "content": "", "reasoning": message["reasoning"]}]
        pieces += [{"role": "assistant", "content": message["content"]}] if message["content"] else []
        pieces += [{"role": "assistant", "tool_calls": [call]} for call in message.get("tool_calls", ())]

        async def events() -> AsyncIterator[str]:
            for delta in pieces:
                choices = [{"index": 0, "delta": delta, "finish_reason": None}]
                yield f"data: {json.dumps({**head, 'choices': choices})}\n\n"
            end = [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": stop}]
            yield f"data: {json.dumps({**head, 'choices': end})}\n\n"
            yield f"data: {json.dumps({**head, 'choices': [], 'usage': USAGE})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


@pytest.fixture
async def talking(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Ollama]]:
    fake = Ollama()
    async with fault_server.serve(fake.routes()) as port:
        upstreams = {"ollama": {"kind": "ollama", "base_url": f"http://127.0.0.1:{port}/v1"}}
        async with running_gateway(tmp_path, upstreams=upstreams, aliases={}, prices={}) as there:
            yield there, fake


async def test_ollama_text_reasoning_and_usage_are_returned_free(talking: tuple[Gateway, Ollama]) -> None:
    there, _ = talking
    full_response = await there.chat("2 + 2?", "ollama/qwen3:4b")
    assert full_response.json()["choices"][0]["message"]["content"] == "Four."
    client = there.openai()
    events = [
        event async for event in await client.responses.create(model="qwen3:4b", input="?", stream=True)
    ]
    last_event: Any = events[-1]
    assert (last_event.type, last_event.response.output_text) == ("response.completed", "Four.")
    assert [item.type for item in last_event.response.output] == ["reasoning", "message"]
    assert (last_event.response.usage.input_tokens, last_event.response.usage.output_tokens) == (26, 7)
    for call in await there.settled(2):
        used = call["usage"]
        assert (used["input_tokens"], used["output_tokens"], float(call["cost_usd"])) == (26, 7, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_ollama_calls_with_equal_index_are_two_calls(
    talking: tuple[Gateway, Ollama], stream: bool
) -> None:
    there, fake = talking
    body: Any = {"model": "ollama/qwen3:4b", "input": "?", "tools": TOOLS, "stream": stream}
    answer: Any = await there.openai().responses.create(**body)
    if stream:
        answer = [event async for event in answer][-1].response
    calls = [item for item in answer.output if item.type == "function_call"]
    assert [(call.call_id, call.name, call.arguments) for call in calls] == [
        ("call_0", "weather", '{"n": 0}'),
        ("call_1", "time", '{"n": 1}'),
    ]
    assert [tool["function"]["name"] for tool in fake.requests[0]["tools"]] == ["weather", "time"]


async def test_image_of_an_anthropic_message_is_inline_for_ollama(talking: tuple[Gateway, Ollama]) -> None:
    there, fake = talking
    data = PIXEL.partition("base64,")[2]
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    answer = await there.anthropic().messages.create(
        model="ollama/qwen3:4b", max_tokens=64, messages=[{"role": "user", "content": [image]}]
    )
    assert answer.usage.output_tokens == 7
    assert fake.requests[0]["messages"][0]["content"][0]["image_url"]["url"] == PIXEL
