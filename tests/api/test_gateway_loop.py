"""Large bodies of the gateway are parsed off the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold.clients.chat.completions import Completions
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.requirements import provider_tools
from sixfold.core.input_limits import json_decoding
from tests.api.gateway import running_gateway

LARGE = "x" * 400_000
MESSAGES = [{"role": "user", "content": LARGE}]
ITEMS: dict[str, Any] = {"input": MESSAGES}
PRICE = {"input_per_million_usd": "1", "output_per_million_usd": "1"}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "response": ("/v1/responses", ITEMS),
    "stream of a response": ("/v1/responses", {**ITEMS, "stream": True}),
    "response with tools": (
        "/v1/responses",
        {**ITEMS, "tools": [{"type": "function", "name": "look", "parameters": {}, "description": LARGE}]},
    ),
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}),
    "message": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}),
    "count of tokens": ("/v1/messages/count_tokens", {"messages": MESSAGES}),
    "embeddings": ("/v1/embeddings", {"input": LARGE}),
}


@pytest.mark.parametrize("name", CALLS)
async def test_large_body_is_not_read_in_the_event_loop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, readers = threading.get_ident(), [(json_decoding, "decode"), (provider_tools, "_parsed")]
    held: list[str] = []

    def noting(label: str, function: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def read(raw: bytes) -> Any:
            if threading.get_ident() == loop and memoryview(raw).nbytes >= len(LARGE):
                held.append(label)
            return function(raw)

        return read

    for module, reader in readers:
        monkeypatch.setattr(module, reader, noting(reader, getattr(module, reader)))
    path, body = CALLS[name]
    async with running_gateway(tmp_path, prices={"acme/small": PRICE}) as gateway:
        sent = {"model": "acme/small", **body}
        response = await gateway.app.client.post(path, json=sent, headers=gateway.headers)
    assert (response.status_code, held) == (200, [])


async def test_many_chat_messages_are_parsed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, held = threading.get_ident(), list[str]()

    def record(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            if threading.get_ident() == loop:
                held.append(name)
            return function(*args, **options)

        monkeypatch.setattr(owner, name, call)

    record(chats, "estimate")
    record(Completions, "build_request")
    record(Completions, "parse_response")
    messages = [{"role": "user", "content": "x"}] * 2_000
    async with running_gateway(tmp_path, prices={"acme/small": PRICE}) as gateway:
        sent = {"service": "chat", "model": "acme/small", "messages": messages}
        response = await gateway.app.client.post("/api/service", json=sent, headers=gateway.headers)
    # The response is short.
    assert (response.status_code, held) == (200, ["parse_response"])
