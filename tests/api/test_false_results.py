"""Responses of status 200 without a result: errors, web pages and empty documents, which are free."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.types import Receive, Scope, Send

from tests.api.gateway import Gateway, listening, running_gateway
from tests.fakes import fault_server
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")
PRICES = {
    "each/text": {"input_per_million_usd": 100, "output_per_million_usd": 1000},
    "each/vec": {"input_per_million_usd": 100},
    "each/pic": {"per_image_usd": "0.05"},
    "each/say": {"character_per_million_usd": 100},
    "each/hear": {"per_minute_usd": "0.06"},
    "each/mod": {"input_per_million_usd": 100},
}
TEXT = {"model": "each/text", "max_tokens": 20}
CHAT = {**TEXT, "messages": [{"role": "user", "content": "hello"}]}
SPEECH = {"model": "each/say", "input": "hello", "voice": "x"}
IMAGE_REQUEST = {"model": "each/pic", "prompt": "a hill", "n": 3}
CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "chat": ("chat/completions", CHAT),
    "chat stream": ("chat/completions", {**CHAT, "stream": True}),
    "messages": ("messages", CHAT),
    "completions": ("completions", {**TEXT, "prompt": "hello"}),
    "embeddings": ("embeddings", {"model": "each/vec", "input": "hello", "encoding_format": "float"}),
    "images": ("images/generations", IMAGE_REQUEST),
    "image stream": ("images/generations", {**IMAGE_REQUEST, "stream": True}),
    "speech": ("audio/speech", SPEECH),
    "speech events": ("audio/speech", {**SPEECH, "stream_format": "sse"}),
    "transcription": ("audio/transcriptions", {"model": "each/hear"}),
    "transcript stream": ("audio/transcriptions", {"model": "each/hear", "stream": "true"}),
    "moderations": ("moderations", {"model": "each/mod", "input": "hello"}),
}
ERROR = b'{"error": {"message": "The provider failed", "code": 502}}'
LATE_ERROR = (
    b'{"choices": [{"index": 0, "finish_reason": "error", "message": {"role": "assistant", "content": ""},'
    b' "error": {"code": 502, "message": "no"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 9},'
    b' "data": [{"error": "no"}], "results": [{"error": "no"}]}'
)
EMPTY = b'{"choices": [], "data": [null, {}], "results": [{}]}'
PARTIAL = b'data: {"type": "image_generation.partial_image", "b64_json": "iVBOR"}\n\n'
DOCUMENTS: Mapping[str, tuple[bytes, str]] = {
    "error": (ERROR, "application/json"),
    "error within": (LATE_ERROR, "application/json"),
    "empty": (EMPTY, "application/json"),
    "page": (b"\n<!DOCTYPE html><html><body>Bad gateway</body></html>", "text/html"),
}
EVENTS: Mapping[str, bytes] = {
    "done": b"data: [DONE]\n\n",
    "comments": b": keep-alive\n\n",
    "error": b'event: error\ndata: {"type": "error", "error": {"message": "no"}}\n\n',
}


class FixedServer:
    """ASGI app that sends one response to every request."""

    def __init__(self) -> None:
        self.body, self.kind = b"", "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", self.kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


@pytest.fixture(scope="module")
def server() -> FixedServer:
    return FixedServer()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(server: FixedServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    folder = tmp_path_factory.mktemp("false")
    async with listening(server) as origin:
        models = [name.partition("/")[2] for name in PRICES]
        row = {"kind": "openai", "base_url": f"{origin}/v1", "api_key": "sk-1", "models": models}
        native = {**row, "models": ["text"], "responses": True}
        rows, prices = {"each": row, "native": native}, {**PRICES, "native/text": PRICES["each/text"]}
        async with running_gateway(
            folder, settings=FILES, upstreams=rows, prices=prices, aliases={}
        ) as gateway:
            yield gateway


async def _call(gateway: Gateway, name: str) -> httpx.Response:
    path, body = CALLS[name]
    if not path.startswith("audio/trans"):
        return await gateway.app.client.post(f"/v1/{path}", json=body, headers=gateway.headers)
    files = {"file": ("a.wav", fault_server.tone(30, 8000), "audio/wav")}
    return await gateway.app.client.post(f"/v1/{path}", data=body, files=files, headers=gateway.headers)


async def _is_free(gateway: Gateway) -> bool:
    call = await gateway.last_call()
    return (call["status"], call["cost_usd"]) == ("failed", "0.00")


@pytest.mark.parametrize("name", CALLS)
async def test_documents_without_a_result_are_free(gateway: Gateway, server: FixedServer, name: str) -> None:
    for case, (server.body, server.kind) in DOCUMENTS.items():
        response = await _call(gateway, name)
        assert response.status_code == 502 or "generation_failed" in response.text, (case, response.text)
        assert await _is_free(gateway), (case, response.text)
    assert await gateway.app.faults() == ()


@pytest.mark.parametrize("name", [name for name in CALLS if name.endswith(("stream", "events"))])
async def test_streams_without_a_result_are_free(gateway: Gateway, server: FixedServer, name: str) -> None:
    server.kind = "text/event-stream"
    cases = {**EVENTS, "partial": PARTIAL} if name == "image stream" else EVENTS
    for case, server.body in cases.items():
        response = await _call(gateway, name)
        assert response.status_code == 502 or "generation_failed" in response.text, (case, response.text)
        assert await _is_free(gateway), (case, response.text)
    assert await gateway.app.faults() == ()


async def test_a_failed_response_keeps_its_error_and_is_free(gateway: Gateway, server: FixedServer) -> None:
    usage = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}
    failed = {"id": "resp_1", "object": "response", "status": "failed", "output": [], "usage": usage}
    failed["error"] = {"code": "server_error", "message": "The provider failed"}
    server.kind, server.body = "application/json", json.dumps(failed).encode()
    body = {"model": "native/text", "input": "hello", "max_output_tokens": 20}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app.asgi)) as client:
        url = "http://127.0.0.1:8600/v1/responses"
        response = await client.post(url, json=body, headers=gateway.headers)
    assert response.json() == failed
    assert (await gateway.last_call())["cost_usd"] == "0.00"
    server.body = json.dumps({**failed, "status": "incomplete", "error": None}).encode()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app.asgi)) as client:
        await client.post(url, json=body, headers=gateway.headers)
    assert (await gateway.last_call())["cost_usd"] == "0.0055"


async def test_a_stream_is_charged_for_the_images_it_has(gateway: Gateway, server: FixedServer) -> None:
    event = b'data: {"type": "image_generation.completed", "b64_json": "iVBOR"}\n\n'
    server.kind, server.body = "text/event-stream", PARTIAL + 2 * event
    assert (await _call(gateway, "image stream")).content == server.body
    call = await gateway.last_call()
    assert (call["status"], call["cost_usd"]) == ("succeeded", "0.10")


async def test_an_image_without_content_is_not_charged(gateway: Gateway, server: FixedServer) -> None:
    server.kind, server.body = (
        "application/json",
        b'{"created": 1, "data": [{"url": "http://a/b"}, null, {}]}',
    )
    body = CALLS["images"][1]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app.asgi)) as client:
        url = "http://127.0.0.1:8600/v1/images/generations"
        response = await client.post(url, json=body, headers=gateway.headers)
    assert response.content == server.body
    call = await gateway.last_call()
    assert (call["status"], call["cost_usd"]) == ("succeeded", "0.05")
