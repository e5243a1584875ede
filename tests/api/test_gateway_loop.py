"""Large bodies of the gateway are parsed off the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold.api.gateway.openai import passthrough
from sixfold.app import catalog
from sixfold.clients.chat.completions import Completions
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.requirements import provider_tools
from sixfold.core.input_limits import json_decoding
from sixfold.core.predictions import requests as prediction_requests
from tests.api.app_fixture import running_app
from tests.api.gateway import running_gateway
from tests.fakes import fault_server
from tests.harness.backends import FILES

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


def record_loop_calls(monkeypatch: pytest.MonkeyPatch, *functions: tuple[Any, str]) -> list[str]:
    """Return a list to which each function adds its name when the event loop calls it."""
    loop, held = threading.get_ident(), list[str]()

    def recording(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if threading.get_ident() == loop:
                held.append(name)
            return function(*args, **options)

        return call

    for owner, name in functions:
        monkeypatch.setattr(owner, name, recording(name, getattr(owner, name)))
    return held


@pytest.mark.parametrize(
    ("path", "field"), [("/v1/images/edits", "image[]"), ("/v1/audio/transcriptions", "file")]
)
async def test_large_form_is_rebuilt_in_a_thread(
    path: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = record_loop_calls(monkeypatch, (passthrough, "form"))
    file = fault_server.tone(20, 16_000)
    async with running_gateway(tmp_path, FILES, prices={"acme/hear": PRICE, "acme/pic": PRICE}) as gateway:
        model = "acme/pic" if "images" in path else "acme/hear"
        form = [("model", (None, model)), ("prompt", (None, "x")), (field, ("a.wav", file))]
        response = await gateway.app.client.post(path, files=form, headers=gateway.headers)
        assert response.status_code == 200, response.text
        assert gateway.acme.requests
    assert held == []


async def test_large_inputs_of_a_run_are_hashed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = record_loop_calls(monkeypatch, (prediction_requests, "fingerprint"))
    async with running_app(tmp_path, catalog.models_document(), **FILES) as app:
        for texts in (["x" * 90_000] * 4, ["x"]):
            body = {"model": "embeddings", "input": texts}
            response = await app.client.post("/v1/embeddings", json=body, headers=app.bearer)
            assert response.status_code == 200, response.text
    assert held == ["fingerprint"]


async def test_many_chat_messages_are_parsed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = record_loop_calls(
        monkeypatch,
        (chats, "estimate"),
        (Completions, "build_request"),
        (Completions, "parse_response"),
    )
    messages = [{"role": "user", "content": "x"}] * 2_000
    async with running_gateway(tmp_path, prices={"acme/small": PRICE}) as gateway:
        sent = {"service": "chat", "model": "acme/small", "messages": messages}
        response = await gateway.app.client.post("/api/service", json=sent, headers=gateway.headers)
    # The response is short.
    assert (response.status_code, held) == (200, ["parse_response"])
