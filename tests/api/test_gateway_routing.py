"""Routing of gateway calls: selected servers, retries, and no server available."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.gateway import request_log
from tests.api.app_fixture import bearer
from tests.api.gateway import running_gateway
from tests.fakes import fault_server
from tests.fakes.chat_servers import model_server
from tests.harness import image_files

STREAM: dict[str, Any] = {"stream": True}
PIXEL = image_files.data_uri(fault_server.image(2, 2))


async def test_the_next_server_answers_when_one_fails(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        for mode in ("fail", "limit", "key", "garbage"):
            gateway.acme.mode = mode
            response = await gateway.chat(model="both")
            assert (response.status_code, response.headers["x-sixfold-engine"]) == (200, "anth/small")
        gateway.acme.mode = "fail"
        streamed = await gateway.chat(model="both", **STREAM)
        assert streamed.text.rstrip().endswith("data: [DONE]")
        assert {call["target"] for call in await gateway.settled(5)} == {"anth/small"}


@pytest.mark.parametrize("mode", ["garbage", "sorry"])
async def test_stream_falls_back_when_a_200_carries_an_error(tmp_path: Path, mode: str) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode = mode
        streamed = await gateway.chat(model="both", **STREAM)
        assert streamed.text.endswith("data: [DONE]\n\n")
        (call,) = await gateway.settled()
        assert (call["target"], call["status"], call["attempts"]) == ("anth/small", "succeeded", 2)


async def test_base_url_without_a_path_gets_the_version_of_the_api(tmp_path: Path) -> None:
    async with model_server() as server:
        origin = server.url.removesuffix("/v1")
        rows = {
            "anth": {"kind": "anthropic", "base_url": origin, "api_key": "k", "models": ["small"]},
            "here": {"kind": "ollama", "base_url": f"{origin}/", "models": ["small"]},
        }
        async with running_gateway(tmp_path, upstreams=rows, aliases={}) as gateway:
            for model in ("anth/small", "here/small"):
                assert (await gateway.chat(model=model)).status_code == 200
        assert [each.path for each in server.requests] == ["/v1/messages", "/v1/chat/completions"]


async def test_openai_reasoning_models_get_max_completion_tokens(tmp_path: Path) -> None:
    request = {"service": "chat", "prompt": "say 9 words", "max_tokens": 2}
    for native, name in ((True, "max_completion_tokens"), (False, "max_tokens")):
        async with model_server() as server:
            row = {"kind": "openai", "base_url": server.url, "responses": native, "local": True}
            async with running_gateway(tmp_path / name, upstreams={"one": row}, aliases={}) as gateway:
                response = await gateway.app.client.post(
                    "/api/service", json={**request, "model": "one/small"}, headers=gateway.headers
                )
                assert response.json()["output"] == "word word"
                (observed_request,) = (each for each in server.requests if each.path.endswith("/completions"))
                assert [key for key in observed_request.document if key.startswith("max_")] == [name]


async def test_transient_failures_are_retried(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, retries=2) as gateway:
        gateway.acme.modes = ["fail", "limit"]
        response = await gateway.chat()
        assert response.status_code == 200
        assert (await gateway.settled())[0]["attempts"] == 3


async def test_invalid_request_is_not_retried_on_other_servers(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, retries=2) as gateway:
        gateway.acme.mode = "refuse"
        response = await gateway.chat(model="both")
        assert (response.status_code, len(gateway.acme.requests), len(gateway.anth.requests)) == (400, 1, 0)


async def test_server_that_keeps_failing_is_skipped(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode = "fail"
        for _ in range(5):
            await gateway.chat(model="both")
        assert len(gateway.acme.requests) == 5
        for _ in range(3):
            assert (await gateway.chat(model="both")).status_code == 200
        assert len(gateway.acme.requests) == 5


async def test_the_only_server_is_tried_once_while_it_fails(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode = "fail"
        for _ in range(5):
            assert (await gateway.chat(max_tokens=9)).status_code == 502
        assert len(gateway.acme.requests) == 5
        gateway.acme.mode = "wait"
        gateway.acme.request_event.clear()
        trial = asyncio.create_task(gateway.chat(max_tokens=9))
        await gateway.acme.request_event.wait()
        response = await gateway.chat(max_tokens=9)
        assert (response.status_code, 1 <= int(response.headers["retry-after"]) <= 5) == (502, True)
        gateway.acme.mode = "well"
        gateway.acme.go_on.set()
        assert ((await trial).status_code, len(gateway.acme.requests)) == (200, 6)
        assert (await gateway.chat(max_tokens=9)).status_code == 200


async def test_local_server_is_free_and_unpriced_server_is_refused(tmp_path: Path) -> None:
    async with model_server() as own:
        rows = {
            "here": {"kind": "vllm", "base_url": own.url},
            "paid": {"kind": "openai", "base_url": own.url, "api_key": "k"},
        }
        async with running_gateway(tmp_path, upstreams=rows, prices={}, aliases={}) as gateway:
            assert (await gateway.chat(model="here/small")).headers["x-sixfold-cost"] == "0.00"
            response = await gateway.chat(model="paid/small")
            assert (response.status_code, response.json()["error"]["code"]) == (400, "unpriced_model")
            [call] = await gateway.settled()
            assert (call["cost_usd"], call["usage"]["output_tokens"]) == ("0.00", 3)
        async with running_gateway(
            tmp_path / "b", upstreams=rows, prices={}, aliases={}, allow_unpriced=True
        ) as gateway:
            assert (await gateway.chat(model="paid/small")).status_code == 200


async def test_the_same_request_is_answered_from_the_cache_for_free(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, cache=True) as gateway:
        first, second, other = (
            await gateway.chat(),
            await gateway.chat(),
            await gateway.chat(text="say 4 words"),
        )
        assert (first.content, len(gateway.acme.requests)) == (second.content, 2)
        assert (second.headers["x-sixfold-cache"], second.headers["x-sixfold-cost"]) == ("hit", "0.00")
        assert "x-sixfold-cache" not in other.headers
        other_account = await gateway.app.client.post(
            "/v1/chat/completions",
            json={"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]},
            headers=bearer(gateway.app.other),
        )
        assert "x-sixfold-cache" not in other_account.headers


async def test_refunded_call_is_not_answered_from_the_cache(either: Path) -> None:
    async with running_gateway(either, cache=True) as gateway:
        first = await gateway.chat()
        before = await gateway.app.balance()
        refunding = request_log.refund(first.headers["x-request-id"], "of no use")
        await gateway.app.database.write(refunding)
        second, third = await gateway.chat(), await gateway.chat()
        assert "x-sixfold-cache" not in second.headers
        assert second.headers["x-sixfold-cost"] == first.headers["x-sixfold-cost"]
        assert third.headers["x-sixfold-cache"] == "hit"
        assert (await gateway.app.balance(), len(gateway.acme.requests)) == (before, 2)


async def test_other_question_to_chat_service_misses_the_cache(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, cache=True) as gateway:
        messages: list[tuple[str, str]] = []
        for text in ("say 3 words", "say 4 words", "say 3 words"):
            request = {"service": "chat", "model": "acme/small", "prompt": text}
            answer = (
                await gateway.app.client.post("/api/service", json=request, headers=gateway.headers)
            ).json()
            messages.append((answer["output"], answer["cost"]))
        assert [text for text, _ in messages] == ["word word word", "word word word word", "word word word"]
        assert messages[1][1] != "0.00"
        assert (messages[2][1], len(gateway.acme.requests)) == ("0.00", 2)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"])
async def test_fields_that_select_other_models_are_not_forwarded(tmp_path: Path, path: str) -> None:
    chosen: dict[str, Any] = {
        "models": ["expensive"],
        "route": "fallback",
        "fallbacks": ["expensive"],
        "provider": {"order": ["dear"]},
        "api_base": "https://elsewhere.example",
        "service_tier": "priority",
    }
    messages = [{"role": "user", "content": "hi"}]
    async with model_server() as server:
        row = {"kind": "anthropic" if path.endswith("messages") else "openai", "base_url": server.url}
        row |= {"local": True} | ({"responses": True} if path.endswith("responses") else {})
        async with running_gateway(tmp_path, upstreams={"one": row}, aliases={}) as gateway:
            key = bearer(await gateway.app.limited_key(KeyLimits(services=("one/small",))))
            body = {"model": "one/small", "messages": messages, "input": "hi", "max_tokens": 5, **chosen}
            answer = await gateway.app.client.post(path, json=body, headers=key)
            assert answer.status_code == 200, answer.text
            (document,) = (each.document for each in server.requests if each.document)
            assert (document["model"], document.keys() & chosen.keys()) == ("small", set())
            response = await gateway.app.client.post(path, json={**body, "model": "small"}, headers=key)
            assert response.status_code == 403


@pytest.mark.parametrize("action", ["fail", "hang", "crash"])
@pytest.mark.parametrize("service", ["chat", "vision"])
async def test_failpoint_of_a_chat_service_fails_its_calls(tmp_path: Path, service: str, action: str) -> None:
    points = {"failpoints": f"engine.run.{service}={action}"}
    async with running_gateway(tmp_path, points, timeout_seconds=0.2) as gateway:
        client, headers = gateway.app.client, gateway.headers
        before = (await client.get("/api/account", headers=headers)).json()
        body = {"service": service, "prompt": "say 3 words", "model": "acme/small", "image_url": PIXEL}
        response = await client.post("/api/service", json=body, headers=headers)
        assert (response.status_code, response.json()["code"]) == (502, "generation_failed")
        assert gateway.acme.requests == []
        assert await gateway.pending() == 0
        assert (await client.get("/api/account", headers=headers)).json() == before


async def test_failpoint_of_chat_fails_the_compatible_apis_too(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, {"failpoints": "engine.run.chat=fail"}) as gateway:
        for more in ({}, STREAM):
            response = await gateway.chat(**more)
            assert (response.status_code, response.json()["error"]["code"]) == (502, "generation_failed")
        assert gateway.acme.requests == []
